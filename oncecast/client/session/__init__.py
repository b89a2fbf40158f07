"""The pure half of the client: calls, producers, readers and routes."""
