"""The `oncecast` command: one module a command, joined in `main`."""
