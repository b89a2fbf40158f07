"""Generate mutants of the pure packages and report those that no test detects."""
