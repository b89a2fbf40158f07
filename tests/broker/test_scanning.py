"""Scans read a topic without a subscription, and are independent of each other."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.broker import scanning
from oncecast.broker.chunks import chunk_of, chunks_of
from oncecast.broker.extent import Extent
from oncecast.broker.moves import Found
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import StoredBatch
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import Later, NodeId, Send
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.security.access import READ
from oncecast.wire import commands as do
from oncecast.wire.commands import FromEarliest, FromOffset
from oncecast.wire.errors import InvalidTopic, NoSuchTopic, NotHere
from oncecast.wire.frames import Answer, Chunk, Elsewhere, Scan, Scanned
from tests.broker.desk import ANN, BOB, ME, Desk, packed, producing, put

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


def test_scan_returns_messages_and_topic_bounds() -> None:
    """PIPE-1"""
    node = scanner(filled())
    found = answer(node, Scan(1, "topic", FromOffset(1), 3, ALL))
    assert isinstance(found, Scanned)
    assert (found.id, found.first, found.next, found.offset) == (1, 0, 3, 1)
    assert [(chunk.offset, chunk.count) for chunk in found.chunks] == [(1, 1), (2, 1)]


def test_scan_limit_of_one_byte_returns_a_batch_and_zero_returns_none() -> None:
    node = scanner(filled())
    found = answer(node, Scan(1, "topic", FromOffset(2)))
    assert isinstance(found, Scanned)
    assert (found.offset, found.chunks) == (2, ())
    found = answer(node, Scan(2, "topic", FromOffset(0), 3, 1))
    assert isinstance(found, Scanned)
    assert [chunk.offset for chunk in found.chunks] == [0]


def test_scan_of_missing_messages_or_another_topic_id_is_empty() -> None:
    desk = filled()
    topic_id = desk.service.machine.registry.topics["topic"].id
    desk.call(BOB, do.Seek("topic", "sub", FromOffset(2), 0, "token"))
    for scan, offset in (
        (Scan(1, "topic", FromOffset(0), 3, ALL), 2),
        (Scan(1, "topic", FromOffset(9), 12, ALL), 3),
        (Scan(1, "topic", FromOffset(2), 3, ALL, topic_id + 1), 2),
        (Scan(1, "topic", FromOffset(2), 2, ALL), 2),
    ):
        assert answer(scanner(desk), scan) == Scanned(1, topic_id, 2, 3, offset, ())


def test_scanning_a_missing_topic_is_refused() -> None:
    found = answer(scanner(Desk()), Scan(7, "topic", FromEarliest()))
    assert found == Answer(7, NoSuchTopic("topic"))


def test_follower_redirects_a_scan_and_leader_without_a_lease_delays_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REP-5: a scan sees all acknowledged messages."""
    desk = filled()
    monkeypatch.setattr(desk.service.group, "leads", lambda now: False)
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest(), bytes=ALL)) is None
    desk.service.observe(LeaderChanged(NodeId("other")))
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest())) == Elsewhere("other", (ME,))


def following(monkeypatch: pytest.MonkeyPatch, *, principal: str = "") -> tuple[Scanner, int]:
    """Return a follower's scanner that holds offsets 1 and 2, and the topic id."""
    desk = filled()
    desk.call(BOB, do.Seek("topic", "sub", FromOffset(1), 0, "token"))
    monkeypatch.setattr(desk.service.group, "follows", lambda now: True)
    desk.service.observe(LeaderChanged(NodeId("other")))
    node = Scanner(ME, Random(0), service=desk.service, principal_of=lambda client: principal)
    return node, desk.service.machine.registry.topics["topic"].id


def test_follower_answers_a_scan_only_if_it_has_the_fixed_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PIPE-1"""
    node, topic_id = following(monkeypatch)
    scan = Scan(1, "topic", FromOffset(1), 3, ALL, topic_id, any_replica=True)
    found = answer(node, scan)
    assert isinstance(found, Scanned)
    assert [(chunk.offset, chunk.count) for chunk in found.chunks] == [(1, 1), (2, 1)]
    elsewhere = Elsewhere("other", (ME,))
    for other in (
        Scan(1, "topic", FromOffset(1), 3, ALL, topic_id),  # the client did not allow it
        # The follower has not applied all of it yet.
        Scan(1, "topic", FromOffset(1), 4, ALL, topic_id, any_replica=True),
        # Not all of it is kept.
        Scan(1, "topic", FromOffset(0), 3, ALL, topic_id, any_replica=True),
        # The range has no fixed end.
        Scan(1, "topic", FromOffset(1), -1, ALL, topic_id, any_replica=True),
        # The range has no fixed start.
        Scan(1, "topic", FromEarliest(), 3, ALL, topic_id, any_replica=True),
        # The scan accepts any topic with that name.
        Scan(1, "topic", FromOffset(1), 3, ALL, 0, any_replica=True),
        Scan(1, "topic", FromOffset(1), 3, ALL, topic_id + 1, any_replica=True),
        Scan(1, "nothing", FromOffset(1), 3, ALL, topic_id, any_replica=True),
    ):
        assert answer(node, other) == elsewhere, other
    monkeypatch.setattr(node._service.group, "follows", lambda now: False)
    assert answer(node, scan) == elsewhere


@pytest.mark.parametrize("why", [Missing(1), Corrupt("0001.log", 17, 2, 2, "checksum")])
def test_follower_redirects_a_scan_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, why: Exception
) -> None:
    node, topic_id = following(monkeypatch)

    def lost(slot: int, topic: str) -> None:
        raise why

    monkeypatch.setattr(node._service, "stored_batch", lost)
    scan = Scan(1, "topic", FromOffset(1), 3, ALL, topic_id, any_replica=True)
    assert answer(node, scan) == Elsewhere("other", (ME,))


def test_follower_checks_the_permission_before_it_answers_a_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-2"""
    allowed = ("ann", READ, "topic", "")
    for principal, permitted in (("ann", True), ("eve", False), ("", False)):
        node, topic_id = following(monkeypatch, principal=principal)
        access = node._service.machine.registry.access
        monkeypatch.setattr(access, "open", False)
        monkeypatch.setattr(access, "permits", lambda *asked: asked == allowed)
        scan = Scan(1, "topic", FromOffset(1), 3, ALL, topic_id, any_replica=True)
        assert isinstance(answer(node, scan), Scanned) is permitted


def test_scan_error_names_the_offset_of_a_lost_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = filled()

    def lost(slot: int, topic: str) -> None:
        raise Corrupt("0001.log", 17, 2, 2, "checksum")

    monkeypatch.setattr(desk.service, "stored_batch", lost)
    found = answer(scanner(desk), Scan(1, "topic", FromOffset(1), bytes=ALL))
    assert isinstance(found, Answer)
    assert "offset 1 of topic 'topic' is lost" in str(found.result)


def test_scan_waits_until_a_missing_batch_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = filled()

    def lost(slot: int, topic: str) -> None:
        raise Missing(slot)

    monkeypatch.setattr(desk.service, "stored_batch", lost)
    assert answer(scanner(desk), Scan(1, "topic", FromEarliest(), bytes=ALL)) is None


@pytest.mark.parametrize(
    ("offset", "until", "size", "offsets"),
    [
        (0, -1, ALL, [0, 1, 2]),
        (0, 0, ALL, []),
        (0, 1, ALL, [0]),
        (1, 2, ALL, [1]),
        (1, 9, ALL, [1, 2]),
        (2, 1, ALL, []),
        (3, -1, ALL, []),
        (0, -1, 0, []),
        (0, -1, -1, []),
        (0, -1, 1, [0]),
    ],
)
def test_scan_returns_exactly_the_requested_range(
    offset: int, until: int, size: int, offsets: list[int]
) -> None:
    """PIPE-3"""
    found = answer(scanner(filled()), Scan(1, "topic", FromOffset(offset), until, size))
    assert isinstance(found, Scanned)
    assert [chunk.offset for chunk in found.chunks] == offsets


def test_scan_answer_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPE-3"""
    node = scanner(filled())
    scan = Scan(1, "topic", FromEarliest(), -1, 1 << 40)
    assert scanning.SCAN_BYTES_MAX == 8 << 20
    for most, shown in ((2 * len(packed(b"0")), 2), (2 * len(packed(b"0")) - 1, 1)):
        monkeypatch.setattr(scanning, "SCAN_BYTES_MAX", most)
        found = answer(node, scan)
        assert isinstance(found, Scanned)
        assert len(found.chunks) == shown


def test_scanning_a_topic_owned_by_another_group_returns_not_here() -> None:
    """REP-6"""
    desk = Desk()
    desk.service.machine.apply(100, Found("g", first=False))
    assert answer(scanner(desk), Scan(7, "topic", FromEarliest())) == Answer(7, NotHere("topic"))


# -- chunks --


def test_chunk_has_the_sequence_of_its_first_message() -> None:
    """SVC-3: staged messages take their sequence from the index, others from the command."""
    service = filled().service
    slot = service.machine.fetch("topic", 0, 1, ALL)[0].slot
    service._recent.add(slot, "topic", StoredBatch("p", 10, b"batch"))
    assert chunk_of(service, "topic", Extent(slot, 2, 3, 7)) == Chunk(7, 2, 3, "p", 12, b"batch")
    assert chunk_of(service, "topic", Extent(slot, 2, 3, 7, 50)) == Chunk(
        7, 2, 3, "p", 50, b"batch"
    )
    assert chunk_of(service, "topic", Extent(slot, 2, 3, 7, 0)) == Chunk(7, 2, 3, "p", 0, b"batch")


def test_chunks_end_at_the_byte_limit_or_an_unreadable_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-3"""
    batches = [packed(bytes(size)) for size in (10, 20, 30)]
    sizes = [len(each) for each in batches]
    extents = tuple(Extent(slot, 0, 1, slot) for slot in range(3))
    service = filled().service
    missing: list[int] = []

    def source(slot: int, topic: str) -> StoredBatch:
        if slot in missing:
            raise Missing(slot)
        return StoredBatch("p", slot, batches[slot])

    monkeypatch.setattr(service, "stored_batch", source)
    spaces = (0, 1, sizes[0], sizes[0] + 1, sum(sizes[:2]), sum(sizes[:2]) + 1)
    for space, count in zip(spaces, (0, 1, 1, 2, 2, 3), strict=True):
        chunks, found = chunks_of(service, "topic", extents, space)
        assert ([each.batch for each in chunks], found) == (batches[:count], sizes[:count])
    missing.append(1)
    assert chunks_of(service, "topic", extents, ALL)[1] == sizes[:1]  # the chunks have no gap
    missing.append(0)
    with pytest.raises(Missing):
        chunks_of(service, "topic", extents, ALL)


def test_scan_with_a_long_name_is_refused() -> None:
    """SEC-3"""
    found = answer(scanner(filled()), Scan(1, "x" * 256, FromEarliest()))
    assert found == Answer(1, InvalidTopic())
