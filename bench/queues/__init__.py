"""A queue of many processes, of which takers are killed: see docs/benchmarks.md."""
