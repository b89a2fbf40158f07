"""Runs that produce the traces for the tables and figures of the experiments."""
