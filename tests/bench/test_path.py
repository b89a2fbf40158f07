"""Test the profile of a message's path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import path
from bench.peers import apart

BLANK = (0.0, 1.0)  # the times of messages that do not count


def times(*starts: float) -> dict[str, path.Times]:
    """Return marks that are 1 us apart, with other marks before and after each message."""
    found: dict[str, path.Times] = {path.PUBLISHER: {}, path.NODE: {}, path.SUBSCRIBER: {}}
    for number, mark in enumerate(path.MARKS):
        noted = found[mark.process].setdefault(mark.label, [])
        if number in (0, len(path.MARKS) - 1):
            noted += [BLANK[number > 0]] * apart.WARM_UP
        noted += [start + number * 1e-6 for start in starts]
    return found


def test_hop_is_the_time_from_one_mark_to_the_next() -> None:
    found = path.paths(times(10.0, 20.0))
    assert len(found) == 2
    assert [pytest.approx(1e-6, rel=1e-3)] * (len(path.MARKS) - 1) == found[0]


def test_message_without_all_marks_is_not_counted() -> None:
    noted = times(10.0, 20.0)
    noted[path.NODE]["the sync ends"].pop()
    assert len(path.paths(noted)) == 1


def test_summary_names_the_process_for_each_hop_and_the_conditions() -> None:
    found = path.summary(path.paths(times(10.0)), {"pause us": 1000.0})
    assert json.loads(json.dumps(found))["conditions"] == {"pause us": 1000.0}
    assert found["total"]["p99.9"] == pytest.approx(len(path.MARKS) - 1, rel=1e-3)
    first, *_, last = found["hops"]
    assert (first["process"], first["from"], first["to"]) == (
        path.PUBLISHER,
        "put is called",
        "the batch is cut",
    )
    assert last["process"] == path.SUBSCRIBER
    assert {hop["process"] for hop in found["hops"]} == {
        path.PUBLISHER,
        path.NODE,
        path.SUBSCRIBER,
        "system",
    }


@pytest.mark.long
def test_message_passes_every_marked_function(tmp_path: Path) -> None:
    """The marked functions exist in the program."""
    found = path.paths(path.measured(3, tmp_path / "data"))
    assert len(found) == 3
    assert all(hop >= 0 for hops in found for hop in hops)
    picture = path.draw(path.summary(found, {}))
    assert picture.startswith(b"\x89PNG")
