"""The `oncecast` command. Each command is a module, and `main` joins them."""
