"""Scenarios, paper reproductions, experiments and simulator benchmarks."""
