"""The protocols and caches of streams, as pure state machines."""
