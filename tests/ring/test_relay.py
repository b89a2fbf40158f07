"""Test the exact effects of each input to the relay. NET-5, NET-6"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from oncecast.dht.events import RangeChanged, Route, Routed
from oncecast.dht.identifiers import BITS, BYTES, Key, key_of
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree_messages import (
    Copy,
    Enlist,
    JoinTree,
    LeaveTree,
    Multicast,
    Multicasted,
    encode,
)
from oncecast.kernel.protocol import Ask, Effect, Later, NodeId, Send, Watch
from oncecast.overlay.events import Broadcast, MessageId, Received
from oncecast.ring.events import GroupFacts
from oncecast.ring.push_messages import (
    AcksUp,
    CheckReaders,
    Fill,
    Filled,
    Push,
    PushWanted,
    ReaderId,
    ReadersChecked,
    ReadPermit,
)
from oncecast.ring.relay import FlushAcks, Relay, Turn
from oncecast.wire import batch
from oncecast.wire.commands import Ack, FromOffset
from oncecast.wire.errors import Fenced, NotHere, NotSubscribed
from oncecast.wire.frames import Chunk, Delivery, Fetch, FlowEnded, Scan, Scanned, Tune

ME, LEADER, PARENT = NodeId("me:1"), NodeId("a:1/g"), NodeId("parent:1")
ANN, BOB = NodeId("client/ann"), NodeId("client/bob")
T, TOPIC_ID = "t", 3
CREDIT = 100


class Tree(NamedTuple):
    topic: str
    parent: NodeId | None = PARENT
    root: bool = False
    needed: bool = True


class World:
    """A stand-in for both the roster and Scribe."""

    def __init__(self) -> None:
        self.leader = LEADER
        self.trees: dict[str, Tree] = {}

    def owner(self, key: Key) -> GroupFacts | None:
        nodes = (self.leader,) if self.leader else ()
        return GroupFacts("g", key_of("low"), self.leader, nodes, 1)


def make(**options: Any) -> tuple[Relay, World]:
    world = World()
    relay = Relay(
        ME,
        Random(1),
        roster=cast("Any", world),
        scribe=cast("Any", world),
        incarnation="x",
        **options,
    )
    relay.start()
    relay.drain()
    return relay, world


def chunk(offset: int, count: int = 1, size: int = 10) -> Chunk:
    packed = batch.encode([b"x" * size] * count, timestamps=1)
    return Chunk(offset, 0, count, "p", offset, packed)


def tune(offset: int = 0, *, name: str = "s", epoch: int = 7, ack: int = 0, **credit: int) -> Tune:
    messages, size = credit.get("messages", CREDIT), credit.get("size", 1 << 20)
    return Tune(Fetch(T, name, epoch, offset, ack, messages, size))


def checked(
    next_: int, *, name: str = "s", epoch: int = 7, topic_id: int = TOPIC_ID, **more: Any
) -> ReadersChecked:
    reader_id, first = ReaderId(T, name, epoch), more.pop("first", 0)
    return ReadersChecked(
        (ReadPermit(reader_id, more.pop("cursor", 0), 0, topic_id, first, next_, **more),)
    )


def vouch(name: str = "s", epoch: int = 7) -> Send:
    return Send(LEADER, CheckReaders((ReaderId(T, name, epoch),)))


def push_(*chunks: Chunk, next_: int = -1, topic_id: int = TOPIC_ID, **more: Any) -> Push:
    end = chunks[-1].offset + chunks[-1].count if chunks else 0
    return Push(T, topic_id, end if next_ < 0 else next_, chunks, **more)


def heard(*chunks: Chunk, **more: Any) -> Multicasted:
    return Multicasted(T, msgspec.msgpack.encode(push_(*chunks, **more)))


def fill(offset: int, until: int = -1, topic_id: int = TOPIC_ID) -> Send:
    return Send(LEADER, Fill(Scan(0, T, FromOffset(offset), until, 1 << 20, topic_id)))


def delivery(*chunks: Chunk, next_: int, name: str = "s", epoch: int = 7) -> Delivery:
    return Delivery(T, name, epoch, chunks, 0, next_)


def reader_id(
    relay: Relay, client: NodeId = ANN, name: str = "s", next_: int = 0, **more: Any
) -> None:
    relay.receive(client, tune(name=name, **more))
    relay.receive(LEADER, checked(next_, name=name))
    relay.drain()


def sent(effects: list[Effect], kind: type) -> list[Any]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def turn(relay: Relay, seconds: float = 0.25) -> list[Effect]:
    relay.now += seconds
    relay.timeout(Turn())
    return [each for each in relay.drain() if not isinstance(each, Later)]


# -- reading --


def test_reader_gets_no_messages_before_its_permit() -> None:
    """NET-6"""
    relay, _ = make()
    relay.receive(ANN, tune())
    vouch = Send(LEADER, CheckReaders((ReaderId(T, "s", 7),)))
    assert relay.drain() == [Watch(ANN), Ask(JoinTree(T)), vouch]
    relay.observe(heard(chunk(0)))
    assert relay.drain() == []
    relay.receive(LEADER, checked(1))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]


def test_each_reader_gets_new_messages_once_and_in_order() -> None:
    """NET-6"""
    relay, _ = make()
    reader_id(relay)
    reader_id(relay, BOB, "r")
    relay.observe(heard(chunk(0, 2)))
    assert relay.drain() == [
        Send(ANN, delivery(chunk(0, 2), next_=2)),
        Send(BOB, delivery(chunk(0, 2), next_=2, name="r")),
    ]
    relay.observe(heard(chunk(0, 2)))
    assert relay.drain() == []
    relay.observe(heard(chunk(3), next_=4))
    assert sent(relay.drain(), Delivery) == []


def test_gap_is_requested_once_for_all_readers() -> None:
    """NET-6"""
    relay, _ = make()
    reader_id(relay)
    reader_id(relay, BOB, "r")
    relay.observe(heard(chunk(5, 2)))
    assert relay.drain() == [fill(0, 5)]
    relay.observe(heard(chunk(7)))
    assert relay.drain() == []
    assert turn(relay) == []
    assert turn(relay) == [fill(0, 5)]
    assert relay.filled == 0
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 0, 8, 0, (chunk(0, 5),))))
    whole = (chunk(0, 5), chunk(5, 2), chunk(7))
    assert relay.drain() == [
        Send(ANN, delivery(*whole, next_=8)),
        Send(BOB, delivery(*whole, next_=8, name="r")),
    ]
    assert relay.filled == 1


def test_relay_requests_the_gap_seen_by_its_slowest_reader() -> None:
    """NET-6"""
    relay, _ = make()
    relay.receive(BOB, tune(3, name="r"))
    relay.receive(LEADER, checked(0, name="r"))
    reader_id(relay)
    relay.observe(heard(chunk(5)))
    assert relay.drain() == [fill(0, 5)]


def test_reader_without_a_permit_triggers_no_requests() -> None:
    """SVC-3"""
    relay, _ = make()
    relay.receive(ANN, tune())
    relay.drain()
    relay.observe(heard(chunk(5)))
    assert relay.drain() == []


def test_fill_for_an_unknown_topic_or_topic_id_is_dropped() -> None:
    relay, _ = make()
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 0, 1, 0, (chunk(0),))))
    reader_id(relay)
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID - 1, 0, 1, 0, (chunk(0),))))
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID + 1, 0, 1, 0, (chunk(0),))))
    assert (relay.drain(), relay.filled, relay.channels[T].topic_id) == ([], 0, TOPIC_ID)


def test_end_offset_reveals_a_gap_in_an_idle_topic() -> None:
    """NET-6: the last message may be lost."""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(next_=2))
    assert relay.drain() == [fill(0)]


def test_relay_timer_fires_four_times_a_second() -> None:
    relay, world = make()
    world.trees[T] = Tree(T, None, root=True)
    relay.start()
    assert relay.drain() == [Later(0.25, Turn())]
    relay.timeout(Turn())
    assert relay.drain() == [Later(0.25, Turn()), Send(LEADER, PushWanted((T,)))]


def test_relay_asks_an_owner_after_more_than_1_5_seconds_of_silence() -> None:
    """NET-6: the tree may be broken."""
    relay, _ = make()
    reader_id(relay)
    reader_id(relay, BOB, "r")
    assert turn(relay, 1.5) == []
    both = CheckReaders((ReaderId(T, "s", 7), ReaderId(T, "r", 7)))
    assert turn(relay) == [Send(LEADER, both)]
    assert turn(relay) == []


def test_relay_asks_a_responsive_owner_about_its_readers_every_two_seconds() -> None:
    """NET-6: a reader may have been fenced."""
    relay, _ = make()
    reader_id(relay)
    asked = []
    for _ in range(16):
        asked += [relay.now] * (turn(relay) == [vouch()])
        relay.observe(heard())
    assert asked == [1.75, 3.75]


def test_topic_without_readers_does_not_stop_other_topics() -> None:
    relay, _ = make()
    relay.receive(ANN, Tune(Fetch("u", "s", 7, 0, 0, 1, 1)))
    reader_id(relay, BOB)
    relay.down(ANN)
    assert turn(relay, 2.0) == [Ask(LeaveTree("u")), vouch()]


def test_gaps_are_requested_before_permits() -> None:
    """NET-6: one reader waits for a message, the other for its permit."""
    relay, _ = make()
    for client, name, last_epoch in ((ANN, "s", 8), (BOB, "r", 7)):
        relay.receive(client, tune(name=name))
        relay.receive(LEADER, checked(0, name=name, last_epoch=last_epoch))
    relay.drain()
    relay.observe(heard(chunk(1), fenced=8))
    both = [fill(0, 1), vouch("r")]
    assert relay.drain() == both
    assert turn(relay, 0.5) == both


def test_deliveries_stay_within_the_reader_credit() -> None:
    """NET-6: the credit limits messages and uncompressed bytes."""
    relay, _ = make()
    reader_id(relay, messages=3)
    relay.observe(heard(chunk(0, 2), chunk(2, 2)))
    (only,) = sent(relay.drain(), Delivery)
    assert [(each.offset, each.count) for each in only.chunks] == [(0, 2), (2, 1)]
    relay, _ = make()
    one = batch.opened_bytes(chunk(0).batch)
    reader_id(relay, size=one + 1)
    relay.observe(heard(*map(chunk, range(9))))
    (only,) = sent(relay.drain(), Delivery)
    assert [each.offset for each in only.chunks] == [0, 1]
    relay.receive(ANN, tune(1, size=one + 1))
    (only,) = sent(relay.drain(), Delivery)
    assert [each.offset for each in only.chunks] == [2]


@pytest.mark.parametrize(
    ("messages", "size", "count"), [(0, 9, 0), (1, 9, 1), (9, 0, 0), (9, 1, 1), (-1, 9, 0)]
)
def test_reader_without_credit_gets_no_messages(messages: int, size: int, count: int) -> None:
    """NET-6: the first message may exceed the remaining bytes."""
    relay, _ = make()
    reader_id(relay, messages=messages, size=size)
    relay.observe(heard(chunk(0), chunk(1)))
    assert [len(each.chunks) for each in sent(relay.drain(), Delivery)] == [1] * count


def test_delivery_ends_after_a_mebibyte() -> None:
    relay, _ = make()
    reader_id(relay, size=1 << 23)
    half = batch.opened_bytes(chunk(0, size=1 << 19).batch)
    assert half > 1 << 19
    relay.observe(heard(*(chunk(offset, size=1 << 19) for offset in range(4))))
    found = [[each.offset for each in one.chunks] for one in sent(relay.drain(), Delivery)]
    assert found == [[0, 1], [2, 3]]


def test_relay_limits_windows_channels_and_readers_by_default() -> None:
    relay, _ = make()
    assert (relay.window_bytes, relay.channel_bytes) == (8 << 20, 8 << 20)
    for number in range(10_001):
        relay.receive(ANN, tune(name=str(number)))
    assert len(relay.flows) == 10_000


def test_client_with_a_full_window_gets_the_rest_after_it_renews_credit() -> None:
    """NET-6: all readers of a client share its window."""
    one = batch.opened_bytes(chunk(0).batch)
    relay, _ = make(window_bytes=one)
    for name in ("s", "r"):
        reader_id(relay, name=name)
    relay.observe(heard(chunk(0), next_=2))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=2))]  # and does not request the gap
    relay.receive(ANN, tune(1))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=2, name="r"))]
    relay.receive(ANN, tune(1, name="r"))
    assert relay.drain() == []
    assert turn(relay) == [fill(1)]


def test_window_with_any_free_space_accepts_one_more_message() -> None:
    one = batch.opened_bytes(chunk(0).batch)
    for window, offsets in ((one - 1, [0]), (one, [0]), (one + 1, [0, 1])):
        relay, _ = make(window_bytes=window)
        reader_id(relay)
        for offset in range(3):
            relay.observe(heard(chunk(offset)))
        found = [each.offset for one in sent(relay.drain(), Delivery) for each in one.chunks]
        assert found == offsets


def test_reader_without_credit_triggers_no_requests() -> None:
    relay, _ = make()
    reader_id(relay, messages=0)
    relay.observe(heard(next_=5))
    assert relay.drain() == []
    relay.receive(ANN, tune(0, messages=5))
    turn(relay, 1.0)
    assert relay.channels[T].asking


def test_slow_reader_advances_even_if_newer_messages_fill_the_channel() -> None:
    """NET-6: the filled gap is older than all kept batches."""
    relay, _ = make(channel_bytes=1)
    reader_id(relay)
    relay.observe(heard(chunk(50)))
    relay.drain()
    for offset in range(50):
        relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 0, 51, offset, (chunk(offset),))))
        (only,) = sent(relay.drain(), Delivery)
        assert only.chunks[0] == chunk(offset)
    assert relay.flows.of_topic(T)[0].next == 51
    channel = relay.channels[T]
    assert [offset for offset in range(51) if not channel.lacks(offset)] == [50]


def test_reader_is_notified_of_messages_that_the_owner_dropped() -> None:
    """NET-6 SVC-9"""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(chunk(9)))
    assert relay.drain() == [fill(0, 9)]
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 10, 8, ())))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, checked(10, first=8))
    assert relay.drain() == [Send(ANN, delivery(next_=8)), fill(8, 9)]
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 10, 8, (chunk(8),))))
    assert relay.drain() == [Send(ANN, delivery(chunk(8), chunk(9), next_=10))]


def test_reader_without_a_subscription_is_not_notified_of_lost_messages() -> None:
    """NET-6 SVC-9: the owner keeps nothing for a removed subscription."""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 6, 6, 6, ())))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, checked(0, topic_id=0, why=NotSubscribed(T, "s")))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, NotSubscribed(T, "s")))]


def test_reported_loss_ends_at_the_first_offset_of_the_permit() -> None:
    """NET-6 SVC-9"""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 9, 8, (chunk(8),))))
    relay.drain()
    relay.receive(LEADER, checked(9, first=5))  # an older permit that arrives late
    assert relay.drain() == [Send(ANN, delivery(next_=5)), vouch()]
    relay.receive(LEADER, checked(9, first=8))
    assert relay.drain() == [Send(ANN, delivery(next_=8)), Send(ANN, delivery(chunk(8), next_=9))]


def test_cached_message_that_the_owner_dropped_is_not_sent() -> None:
    """SVC-9"""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(chunk(5), chunk(8)))
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 9, 8, ())))
    relay.drain()
    relay.receive(LEADER, checked(9, first=5))
    assert relay.drain() == [Send(ANN, delivery(next_=5)), vouch()]


def test_reporting_lost_messages_costs_no_credit() -> None:
    relay, _ = make()
    one = batch.opened_bytes(chunk(0).batch)
    reader_id(relay, size=one + 1)
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 10, 8, (chunk(8), chunk(9)))))
    relay.drain()
    relay.receive(LEADER, checked(10, first=8))
    both = delivery(chunk(8), chunk(9), next_=10)
    assert relay.drain() == [Send(ANN, delivery(next_=8)), Send(ANN, both)]
    assert relay.flows.of_topic(T)[0].bytes_left == 1 - one


def test_newer_permit_with_the_same_epoch_applies() -> None:
    """SVC-9"""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, last_epoch=7))
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 8, 9, 8, (chunk(8),))))
    relay.drain()
    relay.receive(LEADER, checked(9, first=8, last_epoch=7))
    assert relay.drain() == [Send(ANN, delivery(next_=8)), Send(ANN, delivery(chunk(8), next_=9))]


@pytest.mark.parametrize("why", [None, NotSubscribed(T, "s")])
@pytest.mark.parametrize("asked", [{"name": "r"}, {"epoch": 6}, {"epoch": 8}])
def test_permit_for_another_reader_is_ignored(why: Any, asked: dict[str, Any]) -> None:
    """SVC-8"""
    relay, _ = make()
    relay.receive(LEADER, checked(1, why=why))  # this process has no such reader
    relay.receive(ANN, tune())
    relay.drain()
    relay.receive(LEADER, checked(1, why=why, **asked))
    relay.observe(heard(chunk(0)))
    assert relay.drain() == []
    assert relay.channels[T].first == 0


def test_reader_of_a_recreated_topic_needs_a_new_permit() -> None:
    """NET-6: the old permit is for the deleted topic."""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(chunk(0, 3), topic_id=TOPIC_ID + 1))
    assert sent(relay.drain(), Delivery) == []
    relay.observe(heard(chunk(0), topic_id=TOPIC_ID))
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 0, 1, 0, (chunk(0),))))
    assert sent(relay.drain(), Delivery) == []
    relay.receive(LEADER, checked(0, topic_id=0, why=NotSubscribed(T, "s")))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, NotSubscribed(T, "s")))]


def test_messages_in_a_recreated_topic_are_not_mixed_with_old_ones() -> None:
    """NET-6"""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(chunk(0, 3)))
    relay.drain()
    relay.observe(heard(chunk(0), topic_id=TOPIC_ID + 1))
    relay.receive(LEADER, checked(1, topic_id=TOPIC_ID + 1))
    relay.receive(ANN, tune(0))
    (only,) = sent(relay.drain(), Delivery)
    assert only.chunks == (chunk(0),)


def test_flow_survives_when_its_topic_moves() -> None:
    """REP-6"""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, topic_id=0, why=NotHere(T)))
    assert relay.drain() == []
    relay.observe(heard(chunk(0)))
    assert sent(relay.drain(), Delivery) == [delivery(chunk(0), next_=1)]


def test_reader_with_a_later_epoch_fences_the_earlier_reader() -> None:
    """SVC-3"""
    relay, _ = make()
    reader_id(relay)
    relay.receive(BOB, tune(epoch=8))
    assert relay.drain() == [
        Send(ANN, FlowEnded(T, "s", 7, Fenced(8))),
        Watch(BOB),
        vouch(epoch=8),
    ]
    relay.receive(ANN, tune(epoch=7))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, Fenced(8)))]
    assert relay.flows.of_client(ANN) == []


def test_newer_connection_with_the_same_epoch_takes_over() -> None:
    """SVC-3: the client has reconnected."""
    relay, _ = make()
    reader_id(relay)
    relay.receive(BOB, tune())
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, Fenced(7))), Watch(BOB), vouch()]
    relay.receive(LEADER, checked(0))
    relay.observe(heard(chunk(0)))
    assert relay.drain() == [Send(BOB, delivery(chunk(0), next_=1))]


def test_disconnected_reader_state_is_deleted() -> None:
    relay, _ = make()
    for client, name in ((ANN, "s"), (BOB, "r")):
        reader_id(relay, client, name, ack=1)
    relay.down(ANN)
    relay.receive(LEADER, checked(0, name="r", why=Fenced(8)))
    assert (len(relay.flows), relay._permits, relay._acks) == (0, {}, {})
    relay.drain()
    del relay.watched[ANN]  # the stack does the same
    relay.receive(ANN, tune())
    assert relay.drain() == [Watch(ANN), vouch()]


def test_permit_from_an_older_version_is_accepted_after_a_newer_one() -> None:
    """NET-6: a replica that runs an older version leads now."""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, last_epoch=7))
    relay.observe(heard(chunk(0), fenced=8))
    relay.drain()
    relay.receive(LEADER, checked(1))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]


def test_fenced_reader_gets_no_later_messages() -> None:
    """SVC-8: the new reader is at another process, and messages may be delayed."""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, last_epoch=7))
    relay.observe(heard(chunk(0), fenced=7))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]
    relay.observe(heard(chunk(1), fenced=8))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, checked(1, last_epoch=7))  # the same permit again
    relay.receive(ANN, tune(1))
    relay.observe(heard(chunk(2), fenced=8))
    assert relay.drain() == []
    relay.receive(LEADER, checked(0, why=Fenced(8)))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, Fenced(8)))]


def test_unfenced_reader_continues_with_a_new_permit() -> None:
    """NET-6"""
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, last_epoch=7))
    relay.receive(LEADER, Filled(T, Scanned(0, TOPIC_ID, 0, 1, 0, (chunk(0),)), fenced=8))
    assert relay.drain() == [vouch()]
    assert vouch() in turn(relay, 0.5)  # the first request may be lost
    relay.observe(heard(chunk(1), fenced=10))
    relay.receive(LEADER, checked(1, last_epoch=9))
    assert relay.drain() == [vouch()]  # it is too early to ask again
    relay.receive(LEADER, checked(1, last_epoch=10))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), chunk(1), next_=2))]
    relay.receive(LEADER, checked(1, last_epoch=9))  # an older permit that arrives late
    relay.observe(heard(chunk(2), fenced=10))
    assert relay.drain() == [Send(ANN, delivery(chunk(2), next_=3))]


def test_permit_without_an_epoch_is_accepted() -> None:
    """NET-6: the owner runs an older version."""
    relay, _ = make()
    reader_id(relay)
    relay.observe(heard(chunk(0), fenced=8))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]


def test_owner_with_an_old_epoch_is_not_asked_in_a_loop() -> None:
    relay, _ = make()
    reader_id(relay)
    relay.receive(LEADER, checked(0, last_epoch=7))
    relay.observe(heard(chunk(0), fenced=8))
    relay.drain()
    for answer in (checked(1, last_epoch=7), checked(1, why=NotHere(T))):
        relay.receive(LEADER, answer)
        assert relay.drain() == []
    assert vouch() in turn(relay, 0.5)


def test_relay_leaves_the_tree_when_its_last_reader_disconnects() -> None:
    relay, _ = make()
    reader_id(relay)
    relay.down(ANN)
    assert len(relay.flows) == 0
    assert turn(relay) == [Ask(LeaveTree(T))]
    assert relay.channels == {}


def test_number_of_readers_is_limited() -> None:
    relay, _ = make(flows_max=1)
    reader_id(relay)
    relay.receive(BOB, tune(name="r"))
    assert relay.drain() == []


def test_malformed_push_is_dropped() -> None:
    relay, _ = make()
    reader_id(relay)
    relay.observe(Multicasted(T, b"nonsense"))
    assert relay.drain() == []


# -- acks --


def test_acks_from_all_readers_are_sent_up_the_tree_in_one_message() -> None:
    """NET-6: otherwise acks would flood the root."""
    relay, world = make()
    world.trees[T] = Tree(T)
    for number in range(20):
        reader_id(relay, NodeId(f"client/{number}"), f"s{number}", next_=9)
    relay.drain()
    for upto in (3, 5):
        for number in range(20):
            name = f"s{number}"
            relay.receive(NodeId(f"client/{number}"), tune(name=name, ack=upto))
    assert [each for each in relay.drain() if isinstance(each, Later)] == [Later(0.02, FlushAcks())]
    relay.timeout(FlushAcks())
    acks = tuple(Ack(T, f"s{number}", 7, 5) for number in range(20))
    assert relay.drain() == [Send(PARENT, AcksUp(T, acks))]


def test_highest_ack_per_subscription_is_sent_to_the_owner() -> None:
    """NET-6"""
    relay, world = make()
    world.trees[T] = Tree(T, parent=None, root=True)
    for child, upto in (("b:1", 5), ("c:1", 9), ("b:1", 6)):
        relay.receive(NodeId(child), AcksUp(T, (Ack(T, "s", 7, upto),)))
    relay.drain()
    relay.timeout(FlushAcks())
    assert relay.drain() == [Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 9),)))]


def test_repeated_ack_is_sent_up_the_tree_once() -> None:
    """NET-6"""
    relay, _ = make()
    reader_id(relay, next_=9)
    relay.receive(ANN, tune(1, ack=1))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == [AcksUp(T, (Ack(T, "s", 7, 1),))]
    relay.receive(ANN, tune(1, ack=1))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == []


def test_root_sends_acks_to_the_owner_even_with_a_former_parent() -> None:
    relay, world = make()
    world.trees[T] = Tree(T, root=True)
    relay.receive(NodeId("b:1"), AcksUp(T, (Ack(T, "s", 7, 5),)))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == [AcksUp(T, (Ack(T, "s", 7, 5),))]
    relay.receive(NodeId("b:1"), AcksUp(T, (Ack(T, "s", 7, 6),)))
    relay.drain()
    relay.timeout(FlushAcks())
    assert relay.drain() == [Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 6),)))]


def test_message_has_at_most_a_thousand_acks_or_topics() -> None:
    relay, world = make()
    acks = [Ack(T, str(number), 7, 5) for number in range(1001)]
    for ack in acks:
        relay.receive(NodeId("b:1"), AcksUp(T, (ack,)))
    relay.timeout(FlushAcks())
    assert [each.acks for each in sent(relay.drain(), AcksUp)] == [
        tuple(acks[:1000]),
        tuple(acks[1000:]),
    ]
    names = [f"t{number}" for number in range(1001)]
    world.trees.update({name: Tree(name, None, root=True) for name in names})
    assert [each.topics for each in sent(turn(relay), PushWanted)] == [
        tuple(names[:1000]),
        tuple(names[1000:]),
    ]


def test_process_without_a_tree_sends_acks_to_the_owner() -> None:
    relay, _ = make()
    relay.receive(NodeId("b:1"), AcksUp(T, (Ack(T, "s", 7, 5),)))
    relay.drain()
    relay.timeout(FlushAcks())
    assert relay.drain() == [Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 5),)))]


def test_lost_ack_is_sent_again() -> None:
    """NET-6: the permit contains the cursor."""
    relay, _ = make()
    reader_id(relay, next_=9)
    relay.receive(ANN, tune(5, ack=5))
    relay.timeout(FlushAcks())
    relay.drain()
    relay.receive(LEADER, checked(9, cursor=5))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == []
    relay.receive(LEADER, checked(9, cursor=2))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == [AcksUp(T, (Ack(T, "s", 7, 5),))]


# -- the root --


def test_root_asks_the_leader_for_its_tree_topics() -> None:
    """NET-6"""
    relay, world = make()
    for name in ("a", "b"):
        world.trees[name] = Tree(name, None, root=True)
    world.trees["c"] = Tree("c")
    world.trees["d"] = Tree("d", None, root=True, needed=False)
    assert turn(relay) == [Send(LEADER, PushWanted(("a", "b")))]


def test_relay_without_a_known_leader_sends_no_requests() -> None:
    relay, world = make()
    world.leader = NodeId("")
    world.trees[T] = Tree(T, None, root=True)
    assert turn(relay) == []


def test_push_is_multicast_or_broadcast() -> None:
    """NET-5 NET-6: a topic can use gossip instead of a tree."""
    relay, _ = make()
    cast_one = push_(chunk(0))
    relay.receive(LEADER, cast_one)
    assert relay.drain() == [Ask(Multicast(T, msgspec.msgpack.encode(cast_one)))]
    spread = push_(chunk(0), gossip=True)
    for number in (1, 2):
        relay.receive(LEADER, spread)
        identity = MessageId(NodeId("me:1#x"), number)
        assert relay.drain() == [Ask(Broadcast(identity, msgspec.msgpack.encode(spread)))]


def test_broadcasting_process_serves_its_own_readers() -> None:
    relay, _ = make()
    reader_id(relay)
    spread = push_(chunk(0), gossip=True)
    relay.receive(LEADER, spread)
    assert relay.drain() == [
        Ask(Broadcast(MessageId(NodeId("me:1#x"), 1), msgspec.msgpack.encode(spread))),
        Send(ANN, delivery(chunk(0), next_=1)),
    ]
    payload = msgspec.msgpack.encode(push_(chunk(1), gossip=True))
    relay.observe(Received(MessageId(NodeId("b:1#y"), 1), payload))
    assert sent(relay.drain(), Delivery) == [delivery(chunk(1), next_=2)]


@pytest.mark.parametrize("children", [1, 3, 8])
def test_root_sends_one_copy_per_child(children: int) -> None:
    """NET-6: the test counts the copies."""
    key = key_of(T)
    here, farther = slot(key, 100), slot(key, 200)
    scribe = Scribe(ME, Random(1))
    scribe.observe(RangeChanged(here, farther))
    for number in range(children):
        child = NodeId(f"p{number}:1")
        scribe.observe(Routed(key, encode(Enlist(T, child, farther)), child, True))
    world = World()
    relay = Relay(ME, Random(1), roster=cast("Any", world), scribe=scribe)
    scribe.drain()
    for message in range(10):
        relay.receive(LEADER, push_(chunk(message)))
        (ask,) = relay.drain()
        assert isinstance(ask, Ask)
        scribe.request(cast("Any", ask.request))
        (route,) = scribe.drain()
        assert isinstance(route, Ask)
        assert isinstance(route.request, Route)  # the route ends at this process
        scribe.observe(Routed(key, route.request.payload, ME, True))
        assert len(sent(scribe.drain(), Copy)) == children


def slot(key: Key, steps: int) -> Key:
    return Key(((int.from_bytes(key) - steps) % 2**BITS).to_bytes(BYTES))


def test_readers_get_messages_only_from_the_topic_owner() -> None:
    """SEC-1: otherwise any node could insert messages into every flow."""
    relay, _ = make()
    relay.receive(ANN, tune())
    relay.drain()
    ghost = NodeId("ghost:1/g")
    for forged in (
        checked(1),
        push_(chunk(0), gossip=True),
        push_(chunk(0)),
        Filled(T, Scanned(0, TOPIC_ID, 0, 1, 0, (chunk(0),))),
    ):
        relay.receive(ghost, forged)
        assert relay.drain() == []
    relay.receive(LEADER, checked(1))
    assert sent(relay.drain(), Delivery) == []
