"""Compare streams with Cyclone DDS and Zenoh, with one writer and one reader process."""
