"""Measure the resources that a node uses.

The cost must depend on the work, not on the amount of stored data.
"""
