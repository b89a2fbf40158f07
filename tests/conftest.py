"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine, and no clock: a busy machine must not fail a test.
settings.register_profile("oncecast", derandomize=True, deadline=None)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
settings.load_profile("oncecast")

# A shell that runs the tests in the background has them ignore SIGINT, and their children too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is compiled is kept, even where PYTHONDONTWRITEBYTECODE is set, as in many containers: the
# tests start hundreds of nodes, and half of such a start would be spent on compiling.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A file is one worker's. What takes long begins first, lest one is alone with it at the end.
LONGEST = (
    "scenarios/test_paxos.py",
    "pipeline/test_live.py",
    "pipeline",
    "scenarios",
    "live",
    "cli",
    "ring",
    "overlay",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.path.relative_to(Path(__file__).parent)))


def rank(file: Path) -> int:
    ranks = (at for at, each in enumerate(LONGEST) if file.is_relative_to(each))
    return next(ranks, len(LONGEST))
