"""Run thousands of stacks in one thread, deterministically."""
