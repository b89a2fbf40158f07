"""Commands for locks, elections, queues and streams."""
