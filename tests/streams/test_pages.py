"""docs/streams.md agrees with the code: matching, messages, events and limits."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import get_args

from oncecast.kernel.stack import members
from oncecast.streams.endpoint import StreamEvent
from oncecast.streams.protocols.events import STREAMS_MAX
from oncecast.streams.protocols.policies import Durability, QoS, Reliability, mismatches
from oncecast.streams.protocols.reading import ACK_EVERY, ACK_EVERY_BYTES
from oncecast.streams.protocols.streams import Streams
from oncecast.streams.protocols.writing import SUSPECTED_MAX, WINDOW, WINDOW_BYTES
from oncecast.streams.writer import VALUE_BYTES_MAX
from tests.streams.test_policies import ALL

PAGE = (Path(__file__).parents[2] / "docs" / "streams.md").read_text()
RULE = re.compile(r"^\| ([a-z_, ]+) \| (?:offered ([≥≤]) requested|always) \|", re.MULTILINE)
COMPARE: dict[str, Callable[[float, float], bool]] = {"≥": operator.ge, "≤": operator.le}


def rows(head: str) -> list[str]:
    """Return the names in the first column of the table with this heading."""
    table = PAGE.split(f"\n| {head}")[1].strip().split("\n\n")[0].splitlines()[2:]
    return re.findall(r"`(\w+)[`(]", "\n".join(row.split("|")[1] for row in table))


def test_streams_page_states_the_matching_rules() -> None:
    """DDS-1: the table and the code must agree on each pair of offer and request."""
    rules = dict(RULE.findall(PAGE))
    named = [name for row in rules for name in row.split(", ")]
    assert sorted(named) == sorted(QoS.__struct_fields__)
    for offered, requested in product(ALL, ALL):
        refused = tuple(
            name
            for name, sign in rules.items()
            if sign and not COMPARE[sign](getattr(offered, name), getattr(requested, name))
        )
        assert mismatches(offered, requested) == refused


def test_streams_page_lists_every_level_event_and_message() -> None:
    """DDS-1"""
    assert rows("reliability | values") == [each.name for each in Reliability]
    assert rows("durability | earlier") == [each.name for each in Durability]
    assert sorted(rows("event |")) == sorted(each.__name__ for each in get_args(StreamEvent))
    assert rows("message |") == [each.__name__ for each in members(Streams.Message)]


def test_streams_page_states_the_limits() -> None:
    """DDS-1"""
    assert f"at most {WINDOW} values and {WINDOW_BYTES >> 20} MiB in flight" in PAGE
    assert f"every {ACK_EVERY} values or {ACK_EVERY_BYTES >> 10} KiB" in PAGE
    assert f"For {SUSPECTED_MAX:g} s, the writer keeps the values that the reader lacks" in PAGE
    assert f"{STREAMS_MAX} writers and {STREAMS_MAX} readers" in PAGE
    assert f"A value can have up to {VALUE_BYTES_MAX >> 20} MiB" in PAGE
