"""Runs that produce the traces behind the tables and figures of the experiments."""
