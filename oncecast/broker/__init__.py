"""Own topics on a node: the state machine, its service, and the protocols that serve clients."""
