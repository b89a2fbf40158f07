"""The `oncecast` command. Each command is a module; `main` combines them."""
