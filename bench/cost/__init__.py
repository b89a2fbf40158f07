"""Measure the resources that a node uses.

The cost must grow with the work, not with the stored data.
"""
