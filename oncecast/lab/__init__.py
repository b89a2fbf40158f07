"""Scenarios, reproductions of papers, experiments and benchmarks of the simulator."""
