"""The docs page on each protocol lists exactly its messages, timers, records and options."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from oncecast.kernel.protocol import Protocol
from oncecast.kernel.stack import members
from oncecast.overlay import HyParView, Mesh, Plumtree, Recovery

PAGES = Path(__file__).parents[2] / "docs" / "protocols"
TABLE = re.compile(r"^\| (\w+) \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)(?:\([\w, ]*\))?` \| ([^|]*) \|", re.MULTILINE)


def tables(protocol: type[Protocol]) -> dict[str, dict[str, str]]:
    page = (PAGES / f"{protocol.name}.md").read_text()
    return {title: dict(ROW.findall(rows)) for title, rows in TABLE.findall(page)}


def names(*unions: object) -> list[str]:
    return [kind.__name__ for union in unions for kind in members(union)]


@pytest.mark.parametrize("protocol", [HyParView, Mesh, Plumtree, Recovery])
def test_protocol_page_lists_every_message_timer_and_record(protocol: type[Protocol]) -> None:
    reported = tables(protocol)
    assert list(reported["message"]) == names(protocol.Message)
    assert list(reported["timer"]) == names(protocol.Timer)
    assert list(reported.get("record", {})) == names(protocol.Record, protocol.State)


@pytest.mark.pure
@pytest.mark.parametrize("protocol", [HyParView, Mesh, Plumtree, Recovery])
def test_protocol_page_lists_every_option_with_its_default(protocol: type[Protocol]) -> None:
    options = {
        name: "required" if each.default is each.empty else str(each.default)
        for name, each in inspect.signature(protocol).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    assert tables(protocol)["option"] == options
