"""Settings and fixtures shared by all tests."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

import oncecast
from oncecast.kernel.compiling import build
from tools.compile import outdated

# Use the same examples on every machine, and no deadline: a test must not fail on a busy machine.
settings.register_profile("oncecast", derandomize=True, deadline=None)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
settings.load_profile("oncecast")

# A compiled module hides its source. Never test another build, or an older source, than intended.
if os.environ.get("ONCECAST_BUILD", build()) != build():
    pytest.exit(f"the tests run with the {build()} build; check pythonpath", 1)
for source in outdated(Path(oncecast.__file__).parent.parent):
    pytest.exit(f"{source} is newer than its compiled file; run `make fast` or `make pure`", 1)

# A shell that runs the tests in the background makes them and their children ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Keep bytecode even if PYTHONDONTWRITEBYTECODE is set, as in many containers. The tests start
# hundreds of nodes, and compiling would take half of each start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The commands that tests run must not use the connections saved by the user of this machine.
os.environ["ONCECAST_CONTEXTS"] = os.devnull + "/contexts.json"

# One worker runs all tests in a file, and all tests that share a Spark session, which is slow to
# start. The longest tests start first, so that no worker is left alone with one at the end.
LONGEST = (
    "spark/test_live.py",
    "spark",
    "lab",
    "live",
    "ring",
    "cli",
    "overlay",
)


SPARK = "tests/spark/"


class Files(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Files:
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank(item.path.relative_to(Path(__file__).parent)))


def rank(file: Path) -> int:
    ranks = (at for at, each in enumerate(LONGEST) if file.is_relative_to(each))
    return next(ranks, len(LONGEST))
