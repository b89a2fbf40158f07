"""The client session as pure state machines: calls, producers, readers and routes."""
