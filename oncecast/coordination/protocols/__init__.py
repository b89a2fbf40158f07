"""Pure protocols for group membership, election, locks and queues."""
