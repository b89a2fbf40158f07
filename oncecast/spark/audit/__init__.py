"""The audit of traces on Spark. docs/audit.md describes the format of a trace and the rules."""
