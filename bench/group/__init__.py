"""Compare three nodes with one node and with a NATS cluster of three."""
