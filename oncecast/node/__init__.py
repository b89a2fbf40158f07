"""Node processes: settings, assembly of stacks, servers, health and metrics."""
