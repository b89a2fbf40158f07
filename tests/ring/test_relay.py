"""The relay, rule by rule: these inputs, exactly these effects. NET-5, NET-6"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from oncecast.dht.events import RangeChanged, Route, Routed
from oncecast.dht.ring import BITS, BYTES, Key, key_of
from oncecast.dht.scribe import Scribe
from oncecast.dht.tree import Copy, Enlist, JoinTree, LeaveTree, Multicast, Multicasted, encode
from oncecast.kernel.protocol import Ask, Effect, Later, NodeId, Send, Watch
from oncecast.overlay.events import Broadcast, MessageId, Received
from oncecast.pubsub import batch
from oncecast.pubsub.commands import Ack, FromOffset
from oncecast.pubsub.errors import Fenced, NotHere, NotSubscribed
from oncecast.ring.casts import (
    AcksUp,
    Cast,
    Casting,
    Fill,
    Filled,
    Reading,
    Vouch,
    Vouched,
    Voucher,
)
from oncecast.ring.events import GroupFacts
from oncecast.ring.relay import ACKS_AFTER, ANSWER_WITHIN, FILL_BYTES, FlushAcks, Relay, Turn
from oncecast.session.frames import Chunk, Delivery, Fetch, FlowEnded, Scan, Scanned, Tune

ME, LEADER, PARENT = NodeId("me:1"), NodeId("a:1/g"), NodeId("parent:1")
ANN, BOB = NodeId("client/ann"), NodeId("client/bob")
T, LIFE = "t", 3
CREDIT = 100


class Tree(NamedTuple):
    topic: str
    parent: NodeId | None = PARENT
    root: bool = False
    needed: bool = True


class World:
    """Stands for both the roster and Scribe."""

    def __init__(self) -> None:
        self.leader = LEADER
        self.trees: dict[str, Tree] = {}

    def owner(self, key: Key) -> GroupFacts | None:
        nodes = (self.leader,) if self.leader else ()
        return GroupFacts("g", key_of("low"), self.leader, nodes, 1)


def make(**options: Any) -> tuple[Relay, World]:
    world = World()
    relay = Relay(
        ME, Random(1), roster=cast("Any", world), scribe=cast("Any", world), life="x", **options
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


def vouched(
    next_: int, *, name: str = "s", epoch: int = 7, life: int = LIFE, **more: Any
) -> Vouched:
    reading, first = Reading(T, name, epoch), more.pop("first", 0)
    return Vouched((Voucher(reading, more.pop("cursor", 0), 0, life, first, next_, **more),))


def vouch(name: str = "s", epoch: int = 7) -> Send:
    return Send(LEADER, Vouch((Reading(T, name, epoch),)))


def cast_(*chunks: Chunk, next_: int = -1, life: int = LIFE, **more: Any) -> Cast:
    end = chunks[-1].offset + chunks[-1].count if chunks else 0
    return Cast(T, life, end if next_ < 0 else next_, chunks, **more)


def heard(*chunks: Chunk, **more: Any) -> Multicasted:
    return Multicasted(T, msgspec.msgpack.encode(cast_(*chunks, **more)))


def fill(offset: int, until: int = -1, life: int = LIFE) -> Send:
    return Send(LEADER, Fill(Scan(0, T, FromOffset(offset), until, FILL_BYTES, life)))


def delivery(*chunks: Chunk, next_: int, name: str = "s", epoch: int = 7) -> Delivery:
    return Delivery(T, name, epoch, chunks, 0, next_)


def reading(
    relay: Relay, client: NodeId = ANN, name: str = "s", next_: int = 0, **more: Any
) -> None:
    relay.receive(client, tune(name=name, **more))
    relay.receive(LEADER, vouched(next_, name=name))
    relay.drain()


def sent(effects: list[Effect], kind: type) -> list[Any]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def turn(relay: Relay, seconds: float = 0.25) -> list[Effect]:
    relay.now += seconds
    relay.timeout(Turn())
    return [each for each in relay.drain() if not isinstance(each, Later)]


# -- reading --


def test_who_tunes_in_is_vouched_for_before_anything_is_sent() -> None:
    """NET-6"""
    relay, _ = make()
    relay.receive(ANN, tune())
    vouch = Send(LEADER, Vouch((Reading(T, "s", 7),)))
    assert relay.drain() == [Watch(ANN), Ask(JoinTree(T)), vouch]
    relay.observe(heard(chunk(0)))
    assert relay.drain() == []
    relay.receive(LEADER, vouched(1))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]


def test_what_comes_is_sent_to_each_reader_in_order_and_once() -> None:
    """NET-6"""
    relay, _ = make()
    reading(relay)
    reading(relay, BOB, "r")
    relay.observe(heard(chunk(0, 2)))
    assert relay.drain() == [
        Send(ANN, delivery(chunk(0, 2), next_=2)),
        Send(BOB, delivery(chunk(0, 2), next_=2, name="r")),
    ]
    relay.observe(heard(chunk(0, 2)))
    assert relay.drain() == []
    relay.observe(heard(chunk(3), next_=4))
    assert sent(relay.drain(), Delivery) == []


def test_a_gap_is_asked_for_once_for_all_readers() -> None:
    """NET-6"""
    relay, _ = make()
    reading(relay)
    reading(relay, BOB, "r")
    relay.observe(heard(chunk(5, 2)))
    assert relay.drain() == [fill(0, 5)]
    relay.observe(heard(chunk(7)))
    assert relay.drain() == []
    assert turn(relay) == []
    assert fill(0, 5) in turn(relay, ANSWER_WITHIN)
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 0, 8, 0, (chunk(0, 5),))))
    whole = (chunk(0, 5), chunk(5, 2), chunk(7))
    assert relay.drain() == [
        Send(ANN, delivery(*whole, next_=8)),
        Send(BOB, delivery(*whole, next_=8, name="r")),
    ]


def test_what_an_idle_owner_says_of_its_end_shows_what_was_lost() -> None:
    """NET-6: the last message of all may be lost, too."""
    relay, _ = make()
    reading(relay)
    relay.observe(heard(next_=2))
    assert relay.drain() == [fill(0)]


def test_who_is_silent_is_asked() -> None:
    """NET-6: the tree may be broken."""
    relay, _ = make()
    reading(relay)
    assert turn(relay, 1.0) == []
    assert turn(relay, 1.0) == [Send(LEADER, Vouch((Reading(T, "s", 7),)))]


def test_credit_is_kept() -> None:
    """NET-6: in messages and in bytes, as large as they are when opened."""
    relay, _ = make()
    reading(relay, messages=3)
    relay.observe(heard(chunk(0, 2), chunk(2, 2)))
    (only,) = sent(relay.drain(), Delivery)
    assert [(each.offset, each.count) for each in only.chunks] == [(0, 2), (2, 1)]
    relay, _ = make()
    one = batch.opened_bytes(chunk(0).batch)
    reading(relay, size=one + 1)
    relay.observe(heard(*map(chunk, range(9))))
    (only,) = sent(relay.drain(), Delivery)
    assert [each.offset for each in only.chunks] == [0, 1]
    relay.receive(ANN, tune(1, size=one + 1))
    (only,) = sent(relay.drain(), Delivery)
    assert [each.offset for each in only.chunks] == [2]


def test_who_has_no_credit_is_asked_nothing_for() -> None:
    relay, _ = make()
    reading(relay, messages=0)
    relay.observe(heard(next_=5))
    assert relay.drain() == []
    relay.receive(ANN, tune(0, messages=5))
    turn(relay, 1.0)
    assert relay.channels[T].asking


def test_a_reader_far_behind_gets_on_though_newer_messages_fill_the_channel() -> None:
    """NET-6: what fills its gap is older than all that is kept."""
    relay, _ = make(channel_bytes=1)
    reading(relay)
    relay.observe(heard(chunk(50)))
    relay.drain()
    for offset in range(50):
        relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 0, 51, offset, (chunk(offset),))))
        (only,) = sent(relay.drain(), Delivery)
        assert only.chunks[0] == chunk(offset)
    assert relay.flows.of_topic(T)[0].next == 51


def test_what_the_owner_has_let_go_is_told_and_not_skipped_in_silence() -> None:
    """NET-6 SVC-9"""
    relay, _ = make()
    reading(relay)
    relay.observe(heard(chunk(9)))
    assert relay.drain() == [fill(0, 9)]
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 8, 10, 8, ())))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, vouched(10, first=8))
    assert relay.drain() == [Send(ANN, delivery(next_=8)), fill(8, 9)]
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 8, 10, 8, (chunk(8),))))
    assert relay.drain() == [Send(ANN, delivery(chunk(8), chunk(9), next_=10))]


def test_reader_whose_subscription_is_gone_is_not_told_that_messages_were_lost() -> None:
    """NET-6 SVC-9: nothing was kept for it, because it is not subscribed any more."""
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 6, 6, 6, ())))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, vouched(0, life=0, why=NotSubscribed(T, "s")))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, NotSubscribed(T, "s")))]


def test_reader_is_told_of_a_loss_only_as_far_as_the_owner_has_vouched() -> None:
    """NET-6 SVC-9"""
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 8, 9, 8, (chunk(8),))))
    relay.drain()
    relay.receive(LEADER, vouched(9, first=5))  # it was overtaken
    assert relay.drain() == [Send(ANN, delivery(next_=5)), vouch()]
    relay.receive(LEADER, vouched(9, first=8))
    assert relay.drain() == [Send(ANN, delivery(next_=8)), Send(ANN, delivery(chunk(8), next_=9))]


def test_a_new_life_of_a_topic_is_not_taken_for_the_old_one() -> None:
    """NET-6: who read the old one is served only when the owner vouches for it."""
    relay, _ = make()
    reading(relay)
    relay.observe(heard(chunk(0, 3), life=LIFE + 1))
    assert sent(relay.drain(), Delivery) == []
    relay.observe(heard(chunk(0), life=LIFE))
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 0, 1, 0, (chunk(0),))))
    assert sent(relay.drain(), Delivery) == []
    relay.receive(LEADER, vouched(0, life=0, why=NotSubscribed(T, "s")))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, NotSubscribed(T, "s")))]


def test_a_new_life_is_not_mixed_with_the_old_one() -> None:
    """NET-6"""
    relay, _ = make()
    reading(relay)
    relay.observe(heard(chunk(0, 3)))
    relay.drain()
    relay.observe(heard(chunk(0), life=LIFE + 1))
    relay.receive(LEADER, vouched(1, life=LIFE + 1))
    relay.receive(ANN, tune(0))
    (only,) = sent(relay.drain(), Delivery)
    assert only.chunks == (chunk(0),)


def test_a_topic_on_its_way_to_a_new_owner_ends_nothing() -> None:
    """REP-6"""
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, vouched(0, life=0, why=NotHere(T)))
    assert relay.drain() == []
    relay.observe(heard(chunk(0)))
    assert sent(relay.drain(), Delivery) == [delivery(chunk(0), next_=1)]


def test_of_two_that_read_a_subscription_the_later_epoch_does() -> None:
    """SVC-3"""
    relay, _ = make()
    reading(relay)
    relay.receive(BOB, tune(epoch=8))
    assert relay.drain()[0] == Send(ANN, FlowEnded(T, "s", 7, Fenced(8)))
    relay.receive(ANN, tune(epoch=7))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, Fenced(8)))]


def test_fenced_reader_is_sent_nothing_that_was_put_since() -> None:
    """SVC-8: though its successor reads at another process, and whatever the delays are."""
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, vouched(0, epochs=7))
    relay.observe(heard(chunk(0), fenced=7))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]
    relay.observe(heard(chunk(1), fenced=8))
    assert relay.drain() == [vouch()]
    relay.receive(LEADER, vouched(1, epochs=7))  # the owner said so before
    relay.receive(ANN, tune(1))
    relay.observe(heard(chunk(2), fenced=8))
    assert relay.drain() == []
    relay.receive(LEADER, vouched(0, why=Fenced(8)))
    assert relay.drain() == [Send(ANN, FlowEnded(T, "s", 7, Fenced(8)))]


def test_reader_that_nobody_fenced_goes_on_when_the_owner_has_vouched_again() -> None:
    """NET-6"""
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, vouched(0, epochs=7))
    relay.receive(LEADER, Filled(T, Scanned(0, LIFE, 0, 1, 0, (chunk(0),)), fenced=8))
    assert relay.drain() == [vouch()]
    assert vouch() in turn(relay, ANSWER_WITHIN)  # the first may be lost
    relay.observe(heard(chunk(1), fenced=10))
    relay.receive(LEADER, vouched(1, epochs=9))
    assert relay.drain() == [vouch()]  # that was too early
    relay.receive(LEADER, vouched(1, epochs=10))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), chunk(1), next_=2))]
    relay.receive(LEADER, vouched(1, epochs=9))  # it was overtaken
    relay.observe(heard(chunk(2), fenced=10))
    assert relay.drain() == [Send(ANN, delivery(chunk(2), next_=3))]


def test_owner_that_vouches_without_any_epoch_is_believed() -> None:
    """NET-6: it has an earlier version."""
    relay, _ = make()
    reading(relay)
    relay.observe(heard(chunk(0), fenced=8))
    assert relay.drain() == [Send(ANN, delivery(chunk(0), next_=1))]


def test_owner_that_knows_less_than_was_cast_is_not_asked_in_a_loop() -> None:
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, vouched(0, epochs=7))
    relay.observe(heard(chunk(0), fenced=8))
    relay.drain()
    for answer in (vouched(1, epochs=7), vouched(1, why=NotHere(T))):
        relay.receive(LEADER, answer)
        assert relay.drain() == []
    assert vouch() in turn(relay, ANSWER_WITHIN)


def test_who_is_gone_is_forgotten_and_the_tree_is_left() -> None:
    relay, _ = make()
    reading(relay)
    relay.down(ANN)
    assert len(relay.flows) == 0
    assert turn(relay) == [Ask(LeaveTree(T))]
    assert relay.channels == {}


def test_there_are_no_more_readers_than_there_may_be() -> None:
    relay, _ = make(flows_max=1)
    reading(relay)
    relay.receive(BOB, tune(name="r"))
    assert relay.drain() == []


def test_what_nobody_of_us_would_say_is_dropped() -> None:
    relay, _ = make()
    reading(relay)
    relay.observe(Multicasted(T, b"nonsense"))
    assert relay.drain() == []


# -- acks --


def test_acks_of_all_readers_here_go_up_the_tree_as_one_message() -> None:
    """NET-6: the root is not flooded."""
    relay, world = make()
    world.trees[T] = Tree(T)
    for number in range(20):
        reading(relay, NodeId(f"client/{number}"), f"s{number}", next_=9)
    relay.drain()
    for upto in (3, 5):
        for number in range(20):
            name = f"s{number}"
            relay.receive(NodeId(f"client/{number}"), tune(name=name, ack=upto))
    assert Later(ACKS_AFTER, FlushAcks()) in relay.drain()
    relay.timeout(FlushAcks())
    acks = tuple(Ack(T, f"s{number}", 7, 5) for number in range(20))
    assert relay.drain() == [Send(PARENT, AcksUp(T, acks))]


def test_acks_are_joined_by_their_maximum_on_the_way() -> None:
    """NET-6"""
    relay, world = make()
    world.trees[T] = Tree(T, parent=None, root=True)
    for child, upto in (("b:1", 5), ("c:1", 9), ("b:1", 6)):
        relay.receive(NodeId(child), AcksUp(T, (Ack(T, "s", 7, upto),)))
    relay.drain()
    relay.timeout(FlushAcks())
    assert relay.drain() == [Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 9),)))]


def test_acks_of_who_has_no_tree_go_to_the_owner() -> None:
    relay, _ = make()
    relay.receive(NodeId("b:1"), AcksUp(T, (Ack(T, "s", 7, 5),)))
    relay.drain()
    relay.timeout(FlushAcks())
    assert relay.drain() == [Send(LEADER, AcksUp(T, (Ack(T, "s", 7, 5),)))]


def test_an_ack_that_did_not_arrive_is_sent_again() -> None:
    """NET-6: the owner says how far the cursor is."""
    relay, _ = make()
    reading(relay, next_=9)
    relay.receive(ANN, tune(5, ack=5))
    relay.timeout(FlushAcks())
    relay.drain()
    relay.receive(LEADER, vouched(9, cursor=5))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == []
    relay.receive(LEADER, vouched(9, cursor=2))
    relay.timeout(FlushAcks())
    assert sent(relay.drain(), AcksUp) == [AcksUp(T, (Ack(T, "s", 7, 5),))]


# -- the root --


def test_the_root_asks_the_leader_for_what_its_trees_carry() -> None:
    """NET-6"""
    relay, world = make()
    for name in ("a", "b"):
        world.trees[name] = Tree(name, None, root=True)
    world.trees["c"] = Tree("c")
    world.trees["d"] = Tree("d", None, root=True, needed=False)
    assert turn(relay) == [Send(LEADER, Casting(("a", "b")))]


def test_who_knows_no_leader_asks_nobody() -> None:
    relay, world = make()
    world.leader = NodeId("")
    world.trees[T] = Tree(T, None, root=True)
    assert turn(relay) == []


def test_a_cast_goes_into_the_tree_or_is_broadcast() -> None:
    """NET-5 NET-6: a topic can choose gossip instead of a tree."""
    relay, _ = make()
    cast_one = cast_(chunk(0))
    relay.receive(LEADER, cast_one)
    assert relay.drain() == [Ask(Multicast(T, msgspec.msgpack.encode(cast_one)))]
    spread = cast_(chunk(0), gossip=True)
    for number in (1, 2):
        relay.receive(LEADER, spread)
        identity = MessageId(NodeId("me:1#x"), number)
        assert relay.drain() == [Ask(Broadcast(identity, msgspec.msgpack.encode(spread)))]


def test_who_broadcasts_hears_it_itself() -> None:
    relay, _ = make()
    reading(relay)
    relay.receive(LEADER, cast_(chunk(0), gossip=True))
    assert sent(relay.drain(), Delivery) == [delivery(chunk(0), next_=1)]
    payload = msgspec.msgpack.encode(cast_(chunk(1), gossip=True))
    relay.observe(Received(MessageId(NodeId("b:1#y"), 1), payload))
    assert sent(relay.drain(), Delivery) == [delivery(chunk(1), next_=2)]


@pytest.mark.parametrize("children", [1, 3, 8])
def test_the_root_sends_one_copy_a_child_however_many_read_there(children: int) -> None:
    """NET-6: shown by counting."""
    key = key_of(T)
    here, farther = place(key, 100), place(key, 200)
    scribe = Scribe(ME, Random(1))
    scribe.observe(RangeChanged(here, farther))
    for number in range(children):
        child = NodeId(f"p{number}:1")
        scribe.observe(Routed(key, encode(Enlist(T, child, farther)), child, True))
    world = World()
    relay = Relay(ME, Random(1), roster=cast("Any", world), scribe=scribe)
    scribe.drain()
    for message in range(10):
        relay.receive(LEADER, cast_(chunk(message)))
        (ask,) = relay.drain()
        assert isinstance(ask, Ask)
        scribe.request(cast("Any", ask.request))
        (route,) = scribe.drain()
        assert isinstance(route, Ask)
        assert isinstance(route.request, Route)  # which ends here
        scribe.observe(Routed(key, route.request.payload, ME, True))
        assert len(sent(scribe.drain(), Copy)) == children


def place(key: Key, steps: int) -> Key:
    return Key(((int.from_bytes(key) - steps) % 2**BITS).to_bytes(BYTES))
