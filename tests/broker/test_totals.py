"""The machine limits the total subscriptions and producers in a group."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.broker import moves
from oncecast.broker.holdings import PeerGroup
from oncecast.broker.machine import Machine
from oncecast.broker.registry import Registry
from oncecast.dht.identifiers import key_of
from oncecast.wire import commands as do
from oncecast.wire.errors import TooMany
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Opened, Published, Staged, Subscribed

START = do.FromEarliest()


class Group:
    def __init__(self, **limits: int) -> None:
        self.machine = Machine(Limits(**limits))
        self._slot = 0

    def do(self, command: Any) -> Any:
        self._slot += 1
        return self.machine.apply(self._slot, command)


def counted(registry: Registry) -> tuple[int, int]:
    topics = registry.topics.values()
    return (
        sum(len(topic.subscriptions) for topic in topics),
        sum(len(topic.producers) for topic in topics),
    )


def test_group_wide_limits_have_the_expected_defaults() -> None:
    """SEC-3"""
    assert (LIMITS.subscriptions_total_max, LIMITS.producers_total_max) == (100_000, 200_000)
    assert (Limits().subscriptions_total_max, Limits().producers_total_max) == (0, 0)


def test_total_number_of_subscriptions_is_limited() -> None:
    """SEC-3: a refused subscription leaves no topic behind."""
    group = Group(subscriptions_total_max=2)
    for topic in ("a", "b"):
        assert isinstance(group.do(do.Subscribe(topic, "s", START, 0)), Subscribed)
    full = TooMany("subscriptions of all topics", 2)
    assert group.do(do.Subscribe("c", "s", START, 0)) == full
    assert group.do(do.Subscribe("a", "other", START, 0)) == full
    assert list(group.machine.registry.topics) == ["a", "b"]
    assert group.do(do.Subscribe("a", "s", START, 0)).already  # a known subscription is not refused
    group.do(do.Unsubscribe("a", "s", 0))
    assert isinstance(group.do(do.Subscribe("c", "s", START, 0)), Subscribed)


def test_total_number_of_producers_is_limited() -> None:
    """SEC-3"""
    group = Group(producers_total_max=2)
    for topic in ("a", "b"):
        assert isinstance(group.do(do.OpenProducer(topic, "p", "i", 0)), Opened)
    full = TooMany("producers of all topics", 2)
    assert group.do(do.OpenProducer("c", "p", "i", 0)) == full
    assert list(group.machine.registry.topics) == ["a", "b"]
    assert isinstance(group.do(do.OpenProducer("a", "p", "next", 0)), Opened)
    group.do(do.DeleteTopic("a", 0))
    assert isinstance(group.do(do.OpenProducer("c", "p", "i", 0)), Opened)


@pytest.mark.parametrize(("limit", "published"), [(2, True), (1, False)])
def test_publish_counts_the_producers_it_creates(limit: int, published: bool) -> None:
    """SEC-3: the publish creates all of them or none."""
    group = Group(producers_total_max=limit)
    for topic in ("a", "b"):
        assert isinstance(group.do(do.Stage("s", 1, topic, topic, 1, 1, 0, b"x")), Staged)
    result = group.do(do.PublishStaged("s", 1, ("a", "b"), 0))
    if published:
        assert isinstance(result, Published)
        group.do(do.Stage("s", 2, "a", "a", 1, 1, 0, b"x"))
        assert isinstance(group.do(do.PublishStaged("s", 2, ("a",), 0)), Published)
    else:
        assert result == TooMany("producers of all topics", limit)
        assert not group.machine.registry.topics


def test_totals_are_exact_after_any_commands_and_a_restart() -> None:
    """SEC-3"""
    rng = Random(3)
    group = Group()
    for step in range(2000):
        topic, name = f"t{rng.randrange(20)}", f"n{rng.randrange(10)}"
        group.do(
            rng.choice(
                (
                    do.CreateTopic(topic, step),
                    do.DeleteTopic(topic, step),
                    do.Subscribe(topic, name, START, step),
                    do.Unsubscribe(topic, name, step),
                    do.OpenProducer(topic, name, "i", step),
                    do.CloseProducer(topic, name, 1 + rng.randrange(group._slot + 1)),
                    do.Stage(f"s{name}", step, "part", topic, 1, 1, step, b"x"),
                    do.PublishStaged(f"s{name}", step - 1, ("part",), step),
                    do.CloseSource(f"s{name}", step),
                )
            )
        )
        registry = group.machine.registry
        assert (registry.topics.subscriptions.count, registry.topics.producers.count) == counted(
            registry
        )
        if step % 100 == 0:
            group.machine = Machine.restore(tuple(group.machine.state()))


def test_totals_exclude_topics_that_are_moving_or_have_moved() -> None:
    """SEC-3: frozen and released topics do not count."""
    group = Group()
    group.do(moves.Found("g", first=True))
    for topic in ("a", "b", "c"):
        group.do(do.Subscribe(topic, "s", START, 0))
    registry = group.machine.registry
    group.do(moves.Freeze("m", key_of("g"), PeerGroup("h", ())))
    assert registry.topics.subscriptions.count == 0
    group.do(moves.Thaw("m"))
    assert registry.topics.subscriptions.count == 3
    group.do(moves.Freeze("n", key_of("g"), PeerGroup("h", ())))
    group.do(moves.Release("n"))
    assert registry.topics.subscriptions.count == 0
