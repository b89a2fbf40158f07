"""A node towards who reads without a subscription: each question stands by itself."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.pubsub import commands as do
from oncecast.pubsub.commands import FromEarliest, FromOffset
from oncecast.pubsub.errors import NoSuchTopic
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.session.frames import Answer, Elsewhere, Scan, Scanned
from oncecast.session.scanning import Scanner
from oncecast.storage.errors import Corrupt
from tests.session.desk import ANN, BOB, ME, Desk, producing, put

ALL = 1 << 20


def scanner(desk: Desk) -> Scanner:
    return Scanner(ME, Random(0), service=desk.service)


def answer(to: Scanner, scan: Scan) -> object:
    to.receive(ANN, scan)
    effects = [each for each in to.drain() if not isinstance(each, Later)]
    assert len(effects) <= 1
    if not effects:
        return None
    (effect,) = effects
    assert isinstance(effect, Send)
    assert (effect.to, effect.after) == (ANN, 0)
    return effect.message


def filled() -> Desk:
    desk = Desk()
    desk.call(BOB, do.CreateTopic("topic", 0))
    desk.call(BOB, do.Subscribe("topic", "sub", FromEarliest(), 0))
    epoch = producing(desk)
    for sequence in range(3):
        desk.call(BOB, put(epoch, sequence, b"%d" % sequence))
    return desk


def test_what_is_asked_for_is_shown_with_where_the_topic_begins_and_ends() -> None:
    """PIPE-1"""
    node = scanner(filled())
    found = answer(node, Scan(1, "topic", FromOffset(1), 3, ALL))
    assert isinstance(found, Scanned)
    assert (found.id, found.first, found.next, found.offset) == (1, 0, 3, 1)
    assert [(chunk.offset, chunk.count) for chunk in found.chunks] == [(1, 1), (2, 1)]


def test_without_bytes_only_the_place_is_shown_and_with_few_one_batch() -> None:
    node = scanner(filled())
    found = answer(node, Scan(1, "topic", FromOffset(2)))
    assert isinstance(found, Scanned)
    assert (found.offset, found.chunks) == (2, ())
    found = answer(node, Scan(2, "topic", FromOffset(0), 3, 1))
    assert isinstance(found, Scanned)
    assert [chunk.offset for chunk in found.chunks] == [0]


def test_of_what_is_gone_or_of_another_life_or_to_come_nothing_is_shown() -> None:
    desk = filled()
    life = desk.service.machine.registry.topics["topic"].id
    desk.call(BOB, do.Seek("topic", "sub", FromOffset(2), 0, "token"))
    for scan, offset in (
        (Scan(1, "topic", FromOffset(0), 3, ALL), 2),
        (Scan(1, "topic", FromOffset(9), 12, ALL), 3),
        (Scan(1, "topic", FromOffset(2), 3, ALL, life + 1), 2),
        (Scan(1, "topic", FromOffset(2), 2, ALL), 2),
    ):
        assert answer(scanner(desk), scan) == Scanned(1, life, 2, 3, offset, ())


def test_no_topic_no_answer_but_that() -> None:
    found = answer(scanner(Desk()), Scan(7, "topic", FromEarliest()))
    assert found == Answer(7, NoSuchTopic("topic"))


def test_who_does_not_lead_says_who_does_and_who_is_not_sure_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-5: what was acknowledged to anybody is seen."""
    desk = filled()
    monkeypatch.setattr(desk.service.group, "leads", lambda now: False)
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest(), bytes=ALL)) is None
    desk.service.observe(LeaderChanged(NodeId("other")))
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest())) == Elsewhere("other", (ME,))


def test_what_no_replica_can_read_is_named_to_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = filled()

    def lost(place: int) -> None:
        raise Corrupt("0001.log", 17, 2, 2, "checksum")

    monkeypatch.setattr(desk.service, "source", lost)
    found = answer(scanner(desk), Scan(1, "topic", FromOffset(1), bytes=ALL))
    assert isinstance(found, Answer)
    assert "offset 1 of topic 'topic' is lost" in str(found.result)


def test_what_cannot_be_read_here_is_not_answered_until_it_is_refilled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = filled()

    def lost(place: int) -> None:
        raise Missing(place)

    monkeypatch.setattr(desk.service, "source", lost)
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest(), bytes=ALL)) is None
