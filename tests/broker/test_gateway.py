"""The gateway executes calls, enforces limits and shows topics."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.broker import moves
from oncecast.broker.accounts import Budget
from oncecast.broker.events import Execute, Executed, Pump
from oncecast.broker.gateway import ANSWERED_MAX, Gateway
from oncecast.broker.holdings import PeerGroup
from oncecast.broker.service import Service
from oncecast.dht.identifiers import key_of
from oncecast.kernel.protocol import Ask, NodeId, Send, Watch
from oncecast.replication.events import LeaderChanged
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.batch_layout import seal
from oncecast.wire.frames import (
    Answer,
    Call,
    Elsewhere,
    Look,
    SubscriptionView,
    TopicView,
    View,
)
from oncecast.wire.limits import Limits
from oncecast.wire.results import Acked, Already, Appended, Opened, PolicySet, Subscribed
from oncecast.wire.retention import DEFAULT
from tests.broker.desk import ANN, BOB, ME, Alone, Desk, fetch, packed, producing, put, reading


def bare() -> Gateway:
    rng = Random(0)
    service = Service(ME, rng, group=Alone())
    service.observe(LeaderChanged(ME))
    return Gateway(ME, rng, service=service)


def test_call_is_executed_and_answered_with_its_id() -> None:
    gateway = bare()
    command = do.DeleteTopic("topic", 0)
    gateway.receive(ANN, Call(5, command))
    assert gateway.drain() == [Watch(ANN), Ask(Execute(1, command))]
    gateway.observe(Executed(1, errors.NoSuchTopic("topic")))
    assert gateway.drain() == [Send(ANN, Answer(5, errors.NoSuchTopic("topic")))]


def test_repeated_call_in_flight_is_not_executed_again() -> None:
    gateway = bare()
    for _ in range(3):
        gateway.receive(ANN, Call(5, do.DeleteTopic("topic", 0)))
    gateway.receive(BOB, Call(5, do.DeleteTopic("topic", 0)))
    asked = [each for each in gateway.drain() if isinstance(each, Ask)]
    assert asked == [
        Ask(Execute(1, do.DeleteTopic("topic", 0))),
        Ask(Execute(2, do.DeleteTopic("topic", 0))),
    ]


def test_late_duplicate_of_a_call_gets_the_same_answer() -> None:
    """SVC-2: by then another client may have set another policy."""
    gateway = bare()
    command = do.SetPolicy("topic", 0, DEFAULT)
    gateway.receive(ANN, Call(5, command))
    gateway.observe(Executed(1, PolicySet(already=False)))
    gateway.drain()
    gateway.receive(ANN, Call(5, command))
    assert gateway.drain() == [Send(ANN, Answer(5, PolicySet(already=False)))]


def test_gateway_keeps_only_the_latest_answers_to_a_client() -> None:
    gateway = bare()
    for id in range(1, ANSWERED_MAX + 2):
        gateway.receive(ANN, Call(id, do.DeleteTopic("topic", 0)))
        gateway.observe(Executed(id, errors.NoSuchTopic("topic")))
    gateway.drain()
    gateway.receive(ANN, Call(2, do.DeleteTopic("topic", 0)))
    assert gateway.drain() == [Send(ANN, Answer(2, errors.NoSuchTopic("topic")))]
    gateway.receive(ANN, Call(1, do.DeleteTopic("topic", 0)))
    assert gateway.drain() == [Ask(Execute(ANSWERED_MAX + 2, do.DeleteTopic("topic", 0)))]


def test_repeated_call_after_not_here_is_executed() -> None:
    """REP-6: the topic may have moved back."""
    gateway = bare()
    for token in (1, 2):
        gateway.receive(ANN, Call(5, do.DeleteTopic("topic", 0)))
        assert gateway.drain()[-1] == Ask(Execute(token, do.DeleteTopic("topic", 0)))
        gateway.observe(Executed(token, errors.NotHere("group")))
        gateway.drain()


def test_answers_are_sent_in_decision_order() -> None:
    gateway = bare()
    for id in (1, 2):
        gateway.receive(ANN, Call(id, do.DeleteTopic(f"topic{id}", 0)))
    gateway.drain()
    for token in (2, 1):
        gateway.observe(Executed(token, errors.InvalidTopic()))
    assert gateway.drain() == [
        Send(ANN, Answer(2, errors.InvalidTopic())),
        Send(ANN, Answer(1, errors.InvalidTopic())),
    ]


def test_reconnected_client_gets_no_stale_answers() -> None:
    gateway = bare()
    gateway.receive(ANN, Call(1, do.DeleteTopic("old", 0)))
    gateway.down(ANN)
    gateway.receive(ANN, Call(1, do.DeleteTopic("new", 0)))
    gateway.drain()
    gateway.observe(Executed(1, errors.NoSuchTopic("old")))
    assert gateway.drain() == []
    gateway.observe(Executed(2, errors.NoSuchTopic("new")))
    assert gateway.drain() == [Send(ANN, Answer(1, errors.NoSuchTopic("new")))]


def test_gateway_ignores_pump_messages_from_other_nodes() -> None:
    gateway = bare()
    gateway.receive(ANN, Pump())
    assert gateway.drain() == []


def test_call_is_not_answered_before_its_command_is_on_disk() -> None:
    """SVC-10"""
    desk = Desk()
    epoch = producing(desk)
    desk.waiting = True
    assert desk.send(BOB, Call(7, put(epoch, 0, b"a"))) == []
    desk.restart()
    assert desk.took(BOB) == []
    assert desk.call(BOB, do.OpenProducer("topic", "p", "inc-1", 0)) == Opened(
        epoch, 0, 1, (0, 0), epoch
    )
    desk.waiting = True
    assert desk.send(BOB, Call(7, put(epoch, 0, b"a"))) == []
    desk.sync()
    assert desk.took(BOB) == [Answer(7, Appended(0, 1, kept=False))]


def test_duplicate_put_is_not_appended_and_a_gap_is_reported() -> None:
    """SVC-2: the producer then resends from the gap."""
    desk = Desk()
    reading(desk)
    epoch = producing(desk)
    assert desk.call(BOB, put(epoch, 0, b"a", b"b")) == Appended(0, 2, kept=True)
    assert desk.call(BOB, put(epoch, 0, b"a", b"b")) == Already(0, 2)
    assert desk.call(BOB, put(epoch, 5, b"f")) == errors.Gap(2)
    desk.restart()
    assert desk.call(BOB, put(epoch, 1, b"b", b"c")) == Appended(2, 1, kept=True)


def test_node_overwrites_the_timestamp_in_a_command() -> None:
    desk = Desk(service={"epoch_us": 1_000_000})
    desk.now = 2.5
    desk.call(ANN, do.CreateTopic("topic", at=99))
    assert desk.service.machine.registry.clock.now == 3_500_000


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        (do.Put("t", "p", 1, 0, 1, 3, 0, b"abc"), "minimum"),
        (do.Put("t", "p", 1, 0, 2, len(packed(b"a")), 0, packed(b"a")), "declares 2 messages"),
        (do.Put("t", "p", 1, 0, 1, 1, 0, packed(b"a")), "in 1 bytes"),
        (do.Stage("s", 0, "x", "t", 1, 9, 0, packed(b"a")), "in 9 bytes"),
        (do.Put("t", "p", 1, 0, 1, 9, 0, packed(b"a")[:-1] + b"?"), "checksum"),
    ],
)
def test_batch_that_does_not_match_its_declaration_is_refused(
    command: do.Command, fact: str
) -> None:
    desk = Desk()
    before = desk.journal.log.last
    refusal = desk.call(ANN, command)
    assert isinstance(refusal, errors.BadBatch)
    assert fact in refusal.fact
    assert desk.journal.log.last == before
    assert desk.gateway.refused == 1


def test_calls_above_a_limit_are_refused_without_effect() -> None:
    """SVC-7"""
    desk = Desk(
        service={"limits": Limits(batch_bytes_max=500)},
        gateway={"budget": Budget(calls=2, bytes=200)},
    )
    epoch = producing(desk)
    assert desk.call(BOB, put(epoch, 0, bytes(600))) == errors.TooLarge("bytes", 500)
    desk.waiting = True
    assert desk.send(BOB, Call(1, put(epoch, 0, bytes(120)))) == []
    assert desk.send(BOB, Call(2, put(epoch, 1, bytes(120)))) == [
        Answer(2, errors.Overloaded("bytes in flight from one client"))
    ]
    assert desk.send(BOB, Call(3, do.DeleteTopic("x", 0))) == []
    assert desk.send(BOB, Call(4, do.DeleteTopic("x", 0))) == [
        Answer(4, errors.Overloaded("calls in flight from one client"))
    ]
    assert desk.send(ANN, Call(1, do.DeleteTopic("x", 0))) == [], "other clients are not affected"
    desk.sync()
    assert [type(each) for each in desk.took(BOB)] == [Answer, Answer]
    assert desk.call(BOB, put(epoch, 1, bytes(120)), id=2) == Appended(1, 1, kept=False)


def test_large_batch_is_accepted_if_no_other_call_is_in_flight() -> None:
    desk = Desk(gateway={"budget": Budget(bytes=10)})
    epoch = producing(desk)
    assert desk.call(BOB, put(epoch, 0, bytes(100))) == Appended(0, 1, kept=False)


def test_nearly_full_disk_refuses_puts_but_accepts_acks() -> None:
    """SVC-7: a full disk is a clear error, and no message is lost."""
    desk = Desk(gateway={"free_disk_bytes_min": 8 * 1024})
    desk.gateway.free_disk_bytes = lambda: desk.journal.log.free_bytes
    epoch = reading(desk)
    producer = producing(desk)
    desk.disk.fill()
    sequence = 0
    while desk.call(BOB, put(producer, sequence, bytes(500))) == Appended(sequence, 1, kept=True):
        sequence += 1
    refusal = errors.Overloaded("data on the node's disk")
    assert desk.call(BOB, put(producer, sequence, bytes(500))) == refusal
    assert str(refusal) == "the node's disk is full; try again later"
    repeated = put(producer, sequence - 1, bytes(500))
    assert desk.call(BOB, repeated, id=99) == Already(sequence - 1, 1)
    assert desk.call(ANN, do.Ack("topic", "sub", epoch, sequence)) == Acked(sequence)
    desk.disk.mend()
    desk.restart()
    assert desk.call(BOB, put(producer, sequence, b"x")) == Appended(sequence, 1, kept=True)


def test_repeated_subscribe_gets_already() -> None:
    """SVC-6"""
    desk = Desk()
    command = do.Subscribe("topic", "sub", do.FromNew(), 0)
    assert desk.call(ANN, command) == Subscribed(0, 1, already=False)
    desk.restart()
    assert desk.call(ANN, command) == Subscribed(0, 1, already=True)


def test_topics_are_listed_in_pages() -> None:
    desk = Desk()
    for name in ("b2", "a", "b1", "b3"):
        desk.call(ANN, do.CreateTopic(name, 0))
    (view,) = desk.send(ANN, Look(1, prefix="b", limit=2))
    assert isinstance(view, View)
    assert ([each.name for each in view.topics], view.more) == (["b1", "b2"], True)
    (view,) = desk.send(ANN, Look(2, prefix="b", after="b2", limit=2))
    assert isinstance(view, View)
    assert ([each.name for each in view.topics], view.more, view.id) == (["b3"], False, 2)
    (view,) = desk.send(ANN, Look(3, topic="nowhere"))
    assert isinstance(view, View)
    assert (view.topics, view.node) == ((), ME)


def test_moving_topics_are_listed_until_they_have_moved() -> None:
    """REP-6: a list of all topics in a ring must include moving topics."""
    desk = Desk()
    for name in ("b", "a"):
        desk.call(ANN, do.CreateTopic(name, 0))
    desk.service.machine.apply(1000, moves.Found("g", True))
    desk.service.machine.apply(1001, moves.Freeze("move", key_of("g"), PeerGroup("h", ())))
    (view,) = desk.send(ANN, Look(1))
    assert isinstance(view, View)
    assert [each.name for each in view.topics] == ["a", "b"]
    assert desk.send(ANN, Look(2, topic="a")) == [Answer(2, errors.NotHere("a"))]
    desk.service.machine.apply(1002, moves.Release("move"))
    (view,) = desk.send(ANN, Look(3))
    assert isinstance(view, View)
    assert view.topics == ()


def test_view_shows_subscription_lag() -> None:
    desk = Desk()
    epoch = reading(desk)
    producer = producing(desk)
    data = put(producer, 0, b"a", b"b", b"c")
    desk.call(BOB, data)
    desk.send(ANN, fetch(epoch, 0, ack=0))
    desk.send(ANN, fetch(epoch, 1, ack=1))
    desk.pass_time(1.0)
    (view,) = desk.send(BOB, Look(1, topic="topic"))
    assert isinstance(view, View)
    assert view.topics == (
        TopicView(
            "topic",
            1,
            first=1,
            next=3,
            bytes=data.size,
            policy=DEFAULT,
            subscriptions=(SubscriptionView("sub", 1, lag=2, epoch=epoch, attached=True),),
            producers=1,
        ),
    )
    (view,) = desk.send(BOB, Look(2, topic="topic", subscriptions=False))
    assert isinstance(view, View)
    assert [(each.next, each.subscriptions) for each in view.topics] == [(3, ())]


def test_reader_whose_connection_was_lost_is_not_shown_as_attached() -> None:
    """OPS-3"""
    desk = Desk()
    epoch = reading(desk)

    def attached() -> bool:
        (view,) = desk.send(BOB, Look(1, topic="topic"))
        assert isinstance(view, View)
        return view.topics[0].subscriptions[0].attached

    desk.send(ANN, fetch(epoch, 0))
    assert attached()
    desk.gateway.down(ANN)
    assert not attached()
    desk.send(ANN, fetch(epoch, 0))  # the client has connected again
    assert attached()


def test_gateway_watches_each_client_once() -> None:
    gateway = bare()
    stranger = NodeId("client/x")
    gateway.receive(stranger, Look(1))
    gateway.receive(stranger, Look(2))
    assert [each for each in gateway.drain() if isinstance(each, Watch)] == [Watch(stranger)]


def test_node_that_stops_leading_redirects_its_clients() -> None:
    """REP-5: the node drops calls in flight, and clients repeat them."""
    gateway = bare()
    gateway.receive(ANN, Call(1, do.CreateTopic("topic", 0)))
    gateway.drain()
    service = gateway._service
    service.observe(LeaderChanged(NodeId("other")))
    gateway.observe(LeaderChanged(NodeId("other")))
    elsewhere = Send(ANN, Elsewhere("other", (ME,)))
    assert gateway.drain() == [elsewhere]
    gateway.receive(ANN, Call(1, do.CreateTopic("topic", 0)))
    assert gateway.drain() == [elsewhere]


@pytest.mark.parametrize("kind", ["foreign", "garbage"])
def test_unreadable_batch_is_refused(kind: str) -> None:
    """SEC-3: such a batch was once stored, and stopped all readers of the topic."""
    desk = Desk()
    epoch = producing(desk)
    if kind == "foreign":
        data = batch.wrap(b"anything", format=999, count=1, timestamp=0)
    else:
        good = batch.check(batch.encode([bytes(5000)], timestamps=0, zstd=3))
        totals = (good.value_bytes, 0, 0, 0, 0)
        data = seal(good.format, good.flags, 1, 0, totals, [b"garbage" * 20])
    bad = do.Put("topic", "p", epoch, 0, 1, len(data), 0, data)
    assert isinstance(desk.call(BOB, bad), errors.BadBatch)
    stage = do.Stage("s", 1, "part", "topic", 1, len(data), 0, data)
    assert isinstance(desk.call(BOB, stage), errors.BadBatch)
    assert desk.call(BOB, put(epoch, 0, b"good")).offset == 0
