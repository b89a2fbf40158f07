"""Archive topics as tables of files that contain each message once."""
