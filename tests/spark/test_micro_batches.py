"""PIPE-2 PIPE-3: in a model of Spark, each result exists once wherever a query crashes."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql.types import StructType

from oncecast import Policy, blocking
from oncecast.spark.register import OncecastSource
from tests.spark.micro_batches import Checkpoint, Driver, lower, storm, values

pytestmark = pytest.mark.long

KEEP = Policy(keep_all=True)


@pytest.mark.parametrize("seed", range(8))
def test_each_result_exists_once_wherever_the_driver_crashes(address: str, seed: int) -> None:
    storm(address, f"storm{seed}", seed, subscription="query")


def test_query_that_crashes_in_its_first_micro_batch_restarts_at_the_same_offset(
    address: str, client: blocking.Client
) -> None:
    """Spark does not record the start, so it asks the source again after more messages arrive."""
    for topic in ("first.in", "first.out"):
        client.create_topic(topic, KEEP)
    client.put("first.in", b"before")
    source = {"address": address, "topics": "first.in", "startingOffsets": "latest"}
    source["subscription"] = "query"
    first = OncecastSource(lower(source)).streamReader(StructType())
    start = first.initialOffset()
    client.put("first.in", b"one")
    checkpoint = Checkpoint("first", [first.latestOffset(start, first.getDefaultReadLimit())])
    first.stop()
    client.put("first.in", b"two")
    Driver(checkpoint, source, {"address": address, "topic": "first.out"}, Random(1)).run()
    assert values(client, "first.out") == [b"one", b"two"]
