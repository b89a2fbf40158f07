"""Run thousands of stacks deterministically in one thread."""
