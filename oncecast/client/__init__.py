"""The client library: asynchronous (`client`), blocking (`blocking`), and with the node inside."""
