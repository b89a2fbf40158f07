"""OPS-1: query lag in the Prometheus text format."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen
from uuid import UUID

from oncecast.spark.lag import Lag, LagListener, lag

RUN = UUID(int=7)


class Progress(dict[str, Any]):
    """A mapping that can have attributes."""


def progress(behind: int, seconds: float, name: str | None = 'a "query"') -> Any:
    """Return a progress report as Spark passes it."""
    at = {"behind": behind, "seconds": seconds}
    latest = json.dumps({"t": {"life": 1, "begin": 0, "next": 9, **at}, "": at})

    found = Progress(sources=[{"latestOffset": latest}, {"latestOffset": "17"}])
    named = {"id": UUID(int=1), "runId": RUN, "numInputRows": 5, "batchDuration": 250}
    found.__dict__.update(named, name=name)
    return found


def test_lag_is_read_from_query_progress() -> None:
    assert lag(progress(3, 1.5)) == {"t": Lag(3, 1.5), "": Lag(3, 1.5)}


def test_progress_from_other_sources_has_no_lag() -> None:
    for latest in (None, "17", '{"t": {"0": 4}}', "words", '{"": 1}'):
        assert lag({"sources": [{"latestOffset": latest}]}) == {}


def test_listener_shows_the_last_micro_batch_until_the_query_ends(tmp_path: Path) -> None:
    listener = LagListener(tmp_path / "lag.prom")
    for behind in (9, 3):
        event = SimpleNamespace(progress=progress(behind, 1.5))
        listener.onQueryProgress(event)  # type: ignore[arg-type]
    with listener.serve() as address, urlopen(address) as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = set(text.splitlines())
    assert r'oncecast_spark_messages_behind{query="a \"query\"",topic="t"} 3' in lines
    assert r'oncecast_spark_seconds_behind{query="a \"query\"",topic=""} 1.5' in lines
    assert r'oncecast_spark_messages_read_total{query="a \"query\""} 10' in lines
    assert r'oncecast_spark_micro_batch_seconds{query="a \"query\""} 0.25' in lines
    assert "# TYPE oncecast_spark_messages_read_total counter" in lines
    assert (tmp_path / "lag.prom").read_text() == text
    listener.onQueryTerminated(SimpleNamespace(runId=RUN))  # type: ignore[arg-type]
    assert "{" not in listener.text() == (tmp_path / "lag.prom").read_text()


def test_query_without_a_name_is_shown_by_its_id() -> None:
    listener = LagListener()
    event = SimpleNamespace(progress=progress(1, 0.0, name=None))
    listener.onQueryProgress(event)  # type: ignore[arg-type]
    assert f'query="{UUID(int=1)}"' in listener.text()
