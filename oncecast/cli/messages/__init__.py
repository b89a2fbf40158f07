"""Commands for topics, subscriptions and messages."""
