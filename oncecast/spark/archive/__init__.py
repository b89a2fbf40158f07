"""Topics as tables of files, with each message once."""
