"""The node process: settings, stacks, servers, health, metrics and audit."""
