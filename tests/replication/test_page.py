"""The pages on Multi-Paxos list all messages, timers, records, options and mutants."""

from __future__ import annotations

import re
from dataclasses import fields

from oncecast.kernel.protocol import Value
from oncecast.kernel.stack import members
from oncecast.replication.messages import Checkpoint, Message, Record, Timer
from oncecast.replication.options import GroupOptions
from tests.lab.scenarios.test_paxos_mutants import MUTANTS
from tests.overlay.test_pages import PAGES, ROW, TABLE

PAGE = (PAGES / "multipaxos.md").read_text()
TESTS_PAGE = (PAGES / "multipaxos-tests.md").read_text()
TABLES = {title: dict(ROW.findall(rows)) for title, rows in TABLE.findall(PAGE)}


def names(union: object) -> list[str]:
    return [kind.__name__ for kind in members(union)]


def test_protocol_page_lists_every_message_timer_and_record() -> None:
    assert list(TABLES["message"]) == names(Message)
    assert list(TABLES["timer"]) == names(Timer)
    assert list(TABLES["record"]) == [*names(Record), Checkpoint.__name__]


def test_protocol_page_lists_every_field_of_a_message() -> None:
    fields_of = dict(re.findall(r"^\| `(\w+)(?:\(([\w, ]*)\))?` \|", PAGE, re.MULTILINE))
    for kind in members(Message):
        assert issubclass(kind, Value)
        assert fields_of[kind.__name__] == ", ".join(kind.__struct_fields__)


def test_protocol_page_lists_every_option_with_its_default() -> None:
    assert TABLES["option"] == {each.name: str(each.default) for each in fields(GroupOptions)}


def test_tests_page_lists_every_mutant() -> None:
    row = re.compile(r"^\| ([a-z][^|`]*?) \| (?:\d+|its own test) \|$", re.MULTILINE)
    rows = row.findall(TESTS_PAGE)
    assert rows == [mutant.rule for mutant in MUTANTS]
