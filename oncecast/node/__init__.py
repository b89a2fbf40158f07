"""A node put together: its protocols, its settings, its process."""
