"""SVC-13: test the failure scenarios in the sources, each with several seeds.

The broker is our node. GET is a Fetch, MSG a Delivery, and the resend request a Gap. Publishers,
readers and the checks of E1 to E4 come from `crash_world`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from oncecast.broker.machine import Machine
from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire import commands as do
from oncecast.wire.errors import Gap
from oncecast.wire.frames import Answer, Call, Delivery
from oncecast.wire.results import Subscribed, Unsubscribed
from tests.client.session.client_world import TOPIC, App, Publisher, Subscriber
from tests.client.session.promises import service_of
from tests.crashpoints import (
    BY_NAME,
    DECIDED,
    RELEASES,
    Location,
    Point,
    after,
    decides,
    hears,
    is_ack,
    is_get,
    is_put,
    releases,
)
from tests.lab.scenarios.crash_world import CrashWorld, run_crash_points

pytestmark = pytest.mark.long

SEEDS = 8
FICKLE = "fickle"  # a subscription that another client ends
seeds = pytest.mark.parametrize("seed", range(SEEDS))


def at(process: str, location: Location) -> Point:
    return Point(process, "as this scenario says", "", location)


def calls(command: type[Value]) -> Callable[[Value], bool]:
    return lambda message: isinstance(message, Call) and isinstance(message.command, command)


def machine(world: CrashWorld) -> Machine:
    return service_of(world.sim).machine


# -- the subscriber crashes --


@seeds
def test_subscriber_that_crashes_after_get_resumes_at_its_offset(seed: int) -> None:
    """SVC-13 SVC-3 SVC-11"""
    run_crash_points([BY_NAME["subscriber: get sent"]], seed)


@seeds
def test_subscriber_that_crashes_before_ack_processes_each_message_once(seed: int) -> None:
    """SVC-13 SVC-3"""
    for name in ("data received", "handler runs", "committed, not acked"):
        run_crash_points([BY_NAME[f"subscriber: {name}"]], seed)


@seeds
def test_subscriber_that_crashes_after_subscribe_is_subscribed_once(seed: int) -> None:
    """SVC-13 SVC-6"""
    world = CrashWorld(seed, [at("subscriber", after(RELEASES, releases(calls(do.Subscribe))))])
    world.passes = 1 + seed % 2
    world.run()
    assert list(machine(world).registry.topics[TOPIC].subscriptions) in (
        ["auto", "books"],
        ["books", "auto"],
    )


class Leaver(App):
    """Ends the subscription of another reader, and repeats that after each restart."""

    answers: list[bool]

    def begin(self) -> None:
        self.answers = []
        self.ask(local.Do(1, do.Unsubscribe(TOPIC, FICKLE, 0)))

    def hear(self, event: Value) -> None:
        if isinstance(event, local.Finished):
            assert isinstance(event.outcome, Unsubscribed)
            self.answers.append(event.outcome.already)


def unsubscribing(seed: int, point: Point) -> Leaver:
    """End one of three subscriptions during puts and a crash."""
    world = CrashWorld(seed, [point])
    world.away = (0.4, 1.0)  # messages from a crashed client arrive before it restarts
    world.passes = 1
    reader = Subscriber(world, "reader", name=FICKLE)
    world.run_until(lambda: reader.positioned)
    leaver = Leaver(world, "leaver")
    world.run()
    assert reader.ended is not None
    topic = machine(world).registry.topics[TOPIC]
    assert FICKLE not in topic.subscriptions
    assert topic.index.first == min(each.cursor for each in topic.subscriptions.values())
    return leaver


@seeds
def test_subscriber_that_crashes_after_unsubscribe_is_unsubscribed_once(seed: int) -> None:
    """SVC-13 SVC-6"""
    point = at("subscriber", after(RELEASES, releases(calls(do.Unsubscribe))))
    leaver = unsubscribing(seed, point)
    assert (leaver.starts, leaver.answers) == (2, [True])  # the second answer is "already"


# -- the broker crashes before its reply --


@seeds
def test_get_is_repeated_after_a_broker_crash(seed: int) -> None:
    """SVC-13 SVC-3"""
    run_crash_points(
        [at("node", after("oncecast.broker.gateway:Gateway.receive", hears(is_get)))], seed
    )


@seeds
def test_broker_that_crashes_after_put_stores_the_message_once(seed: int) -> None:
    """SVC-13 SVC-2 SVC-10"""
    for name in ("proposed", "accepted by the only replica", "applied, not answered"):
        run_crash_points([BY_NAME[f"node: {name}"]], seed)


@seeds
def test_subscribe_repeated_after_a_broker_crash_is_answered_with_already(seed: int) -> None:
    """SVC-13 SVC-6"""
    answers: list[Subscribed] = []

    def note(sender: NodeId, to: NodeId, message: Value) -> None:
        if isinstance(message, Answer) and isinstance(message.result, Subscribed):
            answers.append(message.result)

    world = CrashWorld(seed, [at("node", after(DECIDED, decides(do.Subscribe)))])
    world.passes = 1
    world.crashing.fate = note
    world.run()
    assert any(each.already for each in answers)


@seeds
def test_unsubscribe_repeated_after_a_broker_crash_is_answered_with_already(seed: int) -> None:
    """SVC-13 SVC-6"""
    leaver = unsubscribing(seed, at("node", after(DECIDED, decides(do.Unsubscribe))))
    assert (leaver.starts, leaver.answers) == (1, [True])


# -- the publisher crashes --


@seeds
def test_publisher_that_crashes_before_sending_a_put_sends_it_after_a_restart(seed: int) -> None:
    """SVC-13 SVC-2"""
    run_crash_points([BY_NAME["publisher: stored"]], seed)


@seeds
def test_put_is_stored_once_if_its_publisher_crashes_after_sending_it(seed: int) -> None:
    """SVC-13 SVC-2"""
    run_crash_points([BY_NAME["publisher: sent"]], seed)


# -- a message is lost --


def losing(seed: int, wanted: Sequence[Callable[[Value], bool]]) -> None:
    """Lose some messages of each wanted kind."""
    world = CrashWorld(seed)
    left = [(kind, passes) for kind in wanted for passes in (world.sim.rng.randint(1, 2), 1)]

    def lose(sender: NodeId, to: NodeId, message: Value) -> Sequence[float] | None:
        if not left or not left[0][0](message):
            return None
        kind, passes = left.pop(0)
        if passes > 1:
            left.insert(0, (kind, passes - 1))
            return None
        return ()

    world.crashing.fate = lose
    world.run()
    assert not left, "a message of this kind was never sent"


@seeds
def test_lost_put_is_sent_again(seed: int) -> None:
    """SVC-13 SVC-2"""
    losing(seed, [is_put])


@seeds
def test_lost_resend_request_is_repeated(seed: int) -> None:
    """SVC-13 SVC-2: a put is lost, and so is the broker's request to resend it."""
    world = CrashWorld(seed)
    lost = {"put": 0, "resend request": 0}

    def lose(sender: NodeId, to: NodeId, message: Value) -> Sequence[float] | None:
        if is_put(message) and not lost["put"]:
            lost["put"] += 1
            return ()
        if isinstance(message, Answer) and isinstance(message.result, Gap):
            lost["resend request"] += 1
            return () if lost["resend request"] < 3 else None
        return None

    world.crashing.fate = lose
    world.run()
    assert lost["resend request"] > 0, "the broker did not request a resend"


@seeds
def test_lost_get_is_sent_again(seed: int) -> None:
    """SVC-13 SVC-3"""
    losing(seed, [is_get])


@seeds
def test_lost_msg_is_delivered_again(seed: int) -> None:
    """SVC-13 SVC-3"""
    losing(seed, [lambda message: isinstance(message, Delivery)])


@seeds
def test_lost_ack_is_covered_by_the_next_ack(seed: int) -> None:
    """SVC-13 SVC-3 SVC-9"""
    losing(seed, [is_ack])


# -- sync after a crash --


def synchronising(seed: int, *, waiting: bool) -> None:
    """Crash a reader that waits for more messages."""
    world = CrashWorld(seed)
    reader = Subscriber(world, "auto")
    world.run_until(lambda: reader.positioned)
    publisher = Publisher(world, "plain", 3)
    world.run_until(lambda: len(reader.seen) == 3)
    world.sim.run(until=world.sim.now + 1.0)  # it acknowledges, asks for more, and waits
    reader.positioned = False
    world.bounce(reader.me)
    if not waiting:  # the answer arrives while the reader is down
        world.more(4)
    world.run_until(lambda: reader.positioned)
    if waiting:
        assert len(reader.seen) == 3
        world.more(4)
    world.run_until(lambda: len(reader.seen) == publisher.puts == 7)
    world.sim.run(until=world.sim.now + 10.0)
    assert len(world.finish()) == 7


@seeds
def test_reader_that_crashes_while_waiting_resumes_waiting(seed: int) -> None:
    """SVC-13 SVC-11"""
    synchronising(seed, waiting=True)


@seeds
def test_reader_that_crashes_while_waiting_gets_messages_that_arrived_since(seed: int) -> None:
    """SVC-13 SVC-11"""
    synchronising(seed, waiting=False)
