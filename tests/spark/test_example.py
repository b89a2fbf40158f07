"""PIPE-5: run the example pipeline."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from oncecast import Policy, blocking
from tools.check_docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

EXAMPLE = ROOT / "pipelines" / "alarms.py"


def test_repeated_runs_raise_one_alarm_for_each_hot_reading(
    spark: SparkSession, client: blocking.Client, address: str, checkpoint: str
) -> None:
    spec = importlib.util.spec_from_file_location("alarms", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for topic in ("readings", "alarms"):
        client.create_topic(topic, Policy(keep_all=True))
    client.put_many("readings", [b'{"sensor": "boiler", "celsius": 93.54}', b"no JSON at all"])
    example.run(spark, address, checkpoint)
    example.run(spark, address, checkpoint)
    client.put("readings", b'{"sensor": "tank", "celsius": 12}')
    client.put("readings", b'{"sensor": "oven", "celsius": 200}')
    example.run(spark, address, checkpoint)
    raised = [message for each in client.scan("alarms") for message in each.messages()]
    assert [(each.key, each.value.decode()) for each in raised] == [
        (b"boiler", "93.5 °C"),
        (b"oven", "200.0 °C"),
    ]
    assert len(EXAMPLE.read_text().splitlines()) < 50
