"""The sim command: run, replay and sweep scenarios."""
