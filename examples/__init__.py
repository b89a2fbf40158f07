"""Small programs that use oncecast. Each runs as a test; see docs/examples.md."""
