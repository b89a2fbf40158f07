"""The serve command."""
