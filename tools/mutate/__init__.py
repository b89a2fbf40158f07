"""Generate mutants of the pure packages and report the ones that no test notices."""
