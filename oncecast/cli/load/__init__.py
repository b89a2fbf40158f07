"""The load command: put and read messages at a rate, and audit them."""
