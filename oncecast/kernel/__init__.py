"""What a protocol is, and how protocols are wired into one pure node."""
