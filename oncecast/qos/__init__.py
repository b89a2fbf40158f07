"""Streams with qualities of service: what writers offer, readers request, and caches keep."""
