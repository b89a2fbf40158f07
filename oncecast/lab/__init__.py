"""Scenarios, reproductions of papers, experiments and simulator benchmarks."""
