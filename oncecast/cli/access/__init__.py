"""Commands for users, tokens and rules."""
