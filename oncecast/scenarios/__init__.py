"""Simulated situations with names: each is a story, the promises it must keep, and a seed."""
