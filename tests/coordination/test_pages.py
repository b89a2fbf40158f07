"""docs/protocols/coordination.md lists all messages, timers, records and options in the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.fifo_queue import FifoQueue
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.lamport import LamportMutex
from oncecast.coordination.protocols.mutex import LeaseMutex
from oncecast.coordination.protocols.paxos_queue import PaxosQueue
from oncecast.coordination.protocols.synod import Synod
from oncecast.kernel.protocol import Protocol
from oncecast.kernel.stack import members

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "coordination.md"
PROTOCOLS = [FifoQueue, Group, LamportMutex, LeaderElection, LeaseMutex, PaxosQueue, Synod]
TABLE = re.compile(r"^\| (\w+) \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)(?:\([\w, ]*\))?` \| ([^|]*) \|", re.MULTILINE)


def tables(protocol: type[Protocol]) -> dict[str, dict[str, str]]:
    section = PAGE.read_text().split(f"\n## {protocol.__name__}\n")[1].split("\n## ")[0]
    return {title: dict(ROW.findall(rows)) for title, rows in TABLE.findall(section)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocol_page_lists_every_message_timer_and_record(protocol: type[Protocol]) -> None:
    found = tables(protocol)
    for title, union in (("message", protocol.Message), ("timer", protocol.Timer)):
        assert list(found.get(title, {})) == [kind.__name__ for kind in members(union)]
    records = [*members(protocol.Record), *members(protocol.State)]
    assert list(found.get("record", {})) == [kind.__name__ for kind in records]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocol_page_lists_every_option_with_its_default(protocol: type[Protocol]) -> None:
    options = {
        name: "required" if each.default is each.empty else str(each.default)
        for name, each in inspect.signature(protocol).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    assert tables(protocol)["option"] == options
