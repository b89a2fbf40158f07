"""Three nodes beside one, and beside three of NATS; see docs/benchmarks.md."""
