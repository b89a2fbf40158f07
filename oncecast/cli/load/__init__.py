"""The load command: put and read messages at a given rate, and audit them."""
