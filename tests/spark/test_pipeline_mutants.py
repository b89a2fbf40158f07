"""Remove one source or sink rule at a time, and check that a crashing query detects it."""

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
from tests.mutants import Detector, Mutant, assert_detected, replaced
from tests.spark import test_micro_batches as queries
from tests.spark import test_sink as sinks
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


def exact(test: Callable[..., None]) -> Detector:
    def detector(seed: int) -> None:
        with node() as address, blocking.connect(address) as client:
            test(address=address, client=client)

    detector.__name__ = test.__name__
    return detector


RULES: dict[str, tuple[Detector, Any, str, str, str]] = {
    "a batch's identity changes with each driver": (
        dying_driver, sink, "identify", '"sql.streaming.queryId"', '"spark.jobGroup.id"',
    ),
    "a batch's identity lacks its number": (
        dying_driver, sink, "identify", "int(number)", "0",
    ),
    "a batch's identity lacks the query": (
        two_queries, sink, "identify", 'f"spark/{app or query}"', '"spark"',
    ),
    "attempts of a task share a name": (
        dying_driver, sink.Stager, "__init__", ".{uuid4().hex}", "",
    ),
    "the digest depends on parts and not on rows": (
        exact(sinks.test_replay_in_another_order_adds_nothing), sink, "digest_of_rows",
        "sorted(total.items())", "[each.names for each in parts]",
    ),
    "replayed batches are not compared": (
        exact(sinks.test_query_with_a_restored_older_checkpoint_fails), sink, "publish",
        "if options.check else", "if not options.check else",
    ),
    "runs of a query have no names": (
        exact(sinks.test_only_one_of_two_cloned_queries_can_continue), sink, "identify",
        "int(number), run", "int(number)",
    ),
    "topics that drop the rows are written": (
        exact(sinks.test_topic_that_would_drop_the_rows_is_refused), sink, "publish",
        "keep = options.keep", "keep = False",
    ),
    "the recorded end is ignored": (
        dying_driver, source, "as_positions", "Position(*(at[key] for key in KEYS))",
        "Position(*(at[key] for key in KEYS))._replace(next=at['next'] + (at['next'] % 70 == 0))",
    ),
    "the start of the first micro-batch is forgotten": (
        exact(queries.test_query_that_crashes_in_its_first_micro_batch_restarts_at_the_same_offset),
        ranges, "resumed", "start is None or start[:2] != end[:2]", "start is None",
    ),
}  # fmt: skip
MUTANTS = [
    Mutant(rule, replaced(owner, name, text, replacement), detector, SEEDS)
    for rule, (detector, owner, name, text, replacement) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_missing_rule_is_detected(mutant: Mutant) -> None:
    """PIPE-2 PIPE-3"""
    assert_detected(mutant)
