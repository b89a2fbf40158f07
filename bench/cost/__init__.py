"""What a node costs: it must grow with the work, not with what is kept. See docs/benchmarks.md."""
