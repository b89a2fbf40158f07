"""Test the stream and queue benchmarks."""

from __future__ import annotations

import asyncio
import json

import pytest

from bench.queues.beside import MEASURES as QUEUE_MEASURES
from bench.streams.__main__ import MEASURES, PEERS
from bench.streams.ours import Oncecast
from bench.streams.side import STAMP, WARM_UP, Counter, stamped
from tools.check_docs import ROOT


def test_streams_are_compared_with_cyclone_dds_and_zenoh_under_their_targets() -> None:
    assert [kind.name for kind in PEERS] == ["oncecast", "Cyclone DDS", "Zenoh"]
    targets = {each.key: (each.less_is_better, each.targets) for each in MEASURES}
    both = {"Cyclone DDS": 1.5, "Zenoh": 1.5}
    assert targets == {"flow": (False, both), "way": (True, both)}


def test_benchmark_page_names_every_stream_and_queue_measure() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for each in (*MEASURES, *QUEUE_MEASURES):
        assert f"`{each.key}`" in page


def test_reader_reports_the_last_sample_and_every_latency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    value = stamped(100)
    assert (len(value), STAMP.unpack_from(value)[0] > 0) == (100, True)
    counter = Counter(WARM_UP + 2, 100, paced=True)
    assert [counter.came(value) for _ in range(WARM_UP + 2)] == [*[False] * (WARM_UP + 1), True]
    assert len(json.loads(capsys.readouterr().out)) == 2


@pytest.mark.long
def test_stream_between_two_processes_is_measured() -> None:
    assert asyncio.run(Oncecast().flow([bytes(100)] * 50)) > 0
