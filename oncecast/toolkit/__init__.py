"""What a handful of processes need to act together: group, leader, locks and queues."""
