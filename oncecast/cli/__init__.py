"""The `oncecast` command: one module per command, joined in `main`."""
