"""The playback command: show recorded runs in a browser."""
