"""WEB-3: values have short texts."""

from __future__ import annotations

import msgspec
import pytest

from oncecast.dht.identifiers import Position, key_of
from oncecast.kernel.protocol import Append, Later, NodeId, Send
from oncecast.playback.wording import brief, effect_text, fields_of, name_of
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.messages import COMMAND, NOOP, Accept, BeatDue, Item, Skipped

BALLOT = Ballot(3, NodeId("n1"))


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (BALLOT, "3.n1"),
        (BOTTOM, "none"),
        (Item(NOOP, b""), "no-op"),
        (Item(COMMAND, msgspec.msgpack.encode([1, "a", b"xy"])), "command [1, a, 'xy']"),
        (Item(COMMAND, b"\xc1\xff"), "command 0xc1ff"),
        (b"hello", "'hello'"),
        (b"\x00" * 30, "0x00000000… 30 B"),
        (key_of("a"), "@ca97"),
        (Position(key_of("a"), NodeId("n1")), "n1@ca97"),
        (1 << 60 | 0xBEEF, "#beef"),
        (True, "true"),
        (None, "null"),
        (0.30000000001, "0.3"),
        ((1, 2, 3, 4, 5), "[1, 2, 3, 4, … 5 in all]"),
        ({"a": 1}, "{a: 1}"),
    ],
)
def test_value_has_a_short_text(thing: object, text: str) -> None:
    """WEB-3"""
    assert brief(thing) == text.replace("null", "none")


def test_message_has_a_name_and_fields() -> None:
    """WEB-3"""
    accept = Accept(BALLOT, 14, (Item(NOOP, b""),), 13)
    assert name_of(accept) == "Accept"
    assert fields_of(accept) == "ballot=3.n1 slot=14 items=[no-op] known=13 group=0"


def test_effects_are_sentences_and_sends_are_messages() -> None:
    """WEB-3"""
    assert effect_text(Later(0.25, BeatDue())) == "sets timer BeatDue() in 0.25 s"
    assert effect_text(Append(Skipped(4), 7)) == "appends record 7: Skipped(slot=4)"
    assert effect_text(Send(NodeId("n1"), Skipped(4))) == ""
