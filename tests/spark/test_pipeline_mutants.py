"""Without any one of their rules source and sink are found out, by a query that dies."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncecast import blocking
from oncecast.spark import ranges, sink, source
from tests.live.test_serve import Process
from tests.mutants import Mutant, Story, must_be_noticed, replaced
from tests.spark import test_micro_batches as queries
from tests.spark.micro_batches import storm

pytestmark = pytest.mark.mutants

SEEDS = 5


@contextmanager
def node() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="oncecast-mutants-") as directory:
        process = Process("--data", directory)
        try:
            yield f"127.0.0.1:{process.port}"
        finally:
            process.end(signal.SIGTERM)
            assert process.process.stderr is not None
            process.process.stderr.close()


def dying_driver(seed: int) -> None:
    with node() as address:
        storm(address, "in", seed, subscription="query")


def two_queries(seed: int) -> None:
    with node() as address:
        for name in ("one", "other"):
            storm(address, name, seed)


def exact(test: Callable[[str, blocking.Client], None]) -> Story:
    def story(seed: int) -> None:
        with node() as address, blocking.connect(address) as client:
            test(address, client)

    story.__name__ = test.__name__
    return story


RULES: dict[str, tuple[Story, Any, str, str, str]] = {
    "published under another identity by each driver": (
        dying_driver, sink, "identity", '"sql.streaming.queryId"', '"spark.jobGroup.id"',
    ),
    "batch left out of the identity": (
        dying_driver, sink, "identity", "int(number)", "0",
    ),
    "query left out of the identity": (
        two_queries, sink, "identity", 'f"spark/{query}"', '"spark"',
    ),
    "attempts with the same name": (
        dying_driver, sink.Stager, "__init__", ".{uuid4().hex}", "",
    ),
    "end not kept to": (
        dying_driver, source, "as_positions", "Position(**at)",
        "Position(**at)._replace(next=at['next'] + (at['next'] % 70 == 0))",
    ),
    "beginning of the first micro-batch forgotten": (
        exact(queries.test_query_that_dies_in_its_first_micro_batch_begins_where_it_was),
        ranges, "resumed", "start is None or start[:2] != end[:2]", "start is None",
    ),
}  # fmt: skip
MUTANTS = [
    Mutant(rule, replaced(owner, name, text, replacement), story, SEEDS)
    for rule, (story, owner, name, text, replacement) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_without_a_rule_somebody_notices(mutant: Mutant) -> None:
    """PIPE-2 PIPE-3"""
    must_be_noticed(mutant)
