"""The protocols for group membership, election, locks and queues, as pure state machines."""
