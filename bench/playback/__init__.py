"""Frame times of the playback page while the time line is scrubbed."""
