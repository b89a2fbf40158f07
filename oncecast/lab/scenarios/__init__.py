"""Named simulations: each has a storm of faults, checks and a seed."""
