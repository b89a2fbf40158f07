"""The client library: asynchronous (`client`), blocking (`blocking`) and embedded (`embedded`)."""
