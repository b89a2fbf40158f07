"""Measure what a node costs. The cost must grow with the work, not with the stored data."""
