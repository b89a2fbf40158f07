"""The broker of a node: the pub/sub state machine, its service, and the client protocols."""
