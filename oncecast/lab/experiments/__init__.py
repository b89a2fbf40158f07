"""Runs whose traces become the tables and figures of the experiments."""
