"""Named simulations, each with a storm of faults, checks and a seed."""
