"""Topics are listed in alphabetical order, page by page."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import pytest

from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.topic import Topic
from oncecast.broker.topics import FEW, STALE_MAX, Topics
from oncecast.wire import commands as do
from oncecast.wire.frames import Look, View
from oncecast.wire.retention import DEFAULT
from tests.broker.desk import ANN, Desk

TOPIC = Topic(1, "any", DEFAULT, True, LiveSlots())


class Counted(str):
    """A name that counts comparisons."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Counted.compared += 1
        return str.__lt__(self, other)


def test_names_are_listed_in_order_after_any_changes() -> None:
    """SEC-3"""
    rng = Random(1)
    topics = Topics()
    for step in range(300):
        for _ in range(rng.choice((1, 3, 3 * FEW))):
            name = f"{rng.choice('ab')}{rng.randrange(2000)}"
            if rng.random() < 0.5:
                topics[name] = TOPIC
            else:
                topics.pop(name, None)
        if step % 3 == 0:
            prefix, after = rng.choice(("", "a", "b1")), f"a{rng.randrange(2000)}"
            expected = sorted(each for each in topics if each.startswith(prefix) and each > after)
            assert list(topics.names(prefix, after)) == expected
    assert len(topics._sorted) <= 2 * len(topics) + STALE_MAX + 3 * FEW


def test_listing_a_page_does_not_sort_all_names() -> None:
    """SEC-3: 13,797 Look frames in one write once blocked the event loop for 81 seconds."""
    topics = Topics()
    for number in range(4096):
        topics[Counted(f"{number:04}")] = TOPIC
    assert next(topics.names("", "")) == "0000"
    Counted.compared = 0
    topics[Counted("0100x")] = TOPIC
    assert list(islice(topics.names("", "0100"), 2)) == ["0100x", "0101"]
    assert Counted.compared < 100


def test_update_and_setdefault_are_not_supported() -> None:
    topics: Any = Topics()
    with pytest.raises(NotImplementedError):
        topics.update({"a": TOPIC})
    with pytest.raises(NotImplementedError):
        topics.setdefault("a", TOPIC)


def test_page_ends_after_many_subscriptions() -> None:
    """SEC-3: topics with many subscriptions are shown one by one."""
    desk = Desk()
    for topic in ("a", "b", "c"):
        desk.call(ANN, do.CreateTopic(topic, 0))
    topics = desk.service.machine.registry.topics
    for name in ("a", "b"):
        for number in range(60):
            topics[name].subscribe(f"s{number}", number, do.FromNew())
    (view,) = desk.send(ANN, Look(1))
    assert isinstance(view, View)
    assert ([each.name for each in view.topics], view.more) == (["a", "b"], True)
    (view,) = desk.send(ANN, Look(2, after="b"))
    assert isinstance(view, View)
    assert ([each.name for each in view.topics], view.more) == (["c"], False)
