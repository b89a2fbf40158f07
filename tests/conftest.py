"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# The same examples on every machine, and no clock: a busy machine must not fail a test.
settings.register_profile("oncecast", derandomize=True, deadline=None)
settings.load_profile("oncecast")

# A shell that runs the tests in the background has them ignore SIGINT, and their children too.
signal.signal(signal.SIGINT, signal.default_int_handler)
