"""Torture a stream from topic to topic: kills, speculation, zombies and old checkpoints."""
