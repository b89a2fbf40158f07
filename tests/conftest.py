"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every machine, and no clock: a busy machine must not fail a test.
settings.register_profile("oncecast", derandomize=True, deadline=None)
settings.load_profile("oncecast")
