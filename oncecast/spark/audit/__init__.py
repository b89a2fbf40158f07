"""The audit of traces on Spark: see docs/audit.md for the format of a trace and the rules."""
