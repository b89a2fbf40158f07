"""Streams beside Cyclone DDS and Zenoh, each with a writer's and a reader's process."""
