"""The checker accepts hand-made histories that look odd but are correct."""

from __future__ import annotations

import pytest

from oncecast.history import History, check
from oncecast.wire.commands import FromNew, FromOffset
from oncecast.wire.retention import Policy
from tests.history.making import (
    ABC,
    READ,
    READ_ABC,
    SUB,
    ack,
    again,
    attached,
    created,
    deleted,
    dropped,
    got,
    left,
    look,
    lost_put,
    no_topic,
    of_reader,
    op,
    publish,
    put,
    scanned,
    sought,
    subscribed,
    unsubscribed,
)

DROPPING = Policy(bytes_max=100, drop_unread=True)

FINE: dict[str, History] = {
    "no operations": [],
    "a put in flight may be seen": [SUB, put(2, 5, 0, "a"), look(3, 4, 1)],
    "a put in flight may be unseen": [SUB, put(2, 5, 0, "a"), look(3, 4, 0)],
    "puts in flight from two clients may have any order": [
        SUB,
        *(put(2, 9, 1, "a"), put(3, 9, 0, "b", client="bob")),
    ],
    "looks in flight may see different ends": [
        *(SUB, put(2, 9, 0, "a"), look(3, 8, 1, client="bob"), look(4, 7, 0, client="eve")),
    ],
    "a put without an answer never happened": [
        *(SUB, READ, lost_put(2, "x", client="bob"), put(3, 4, 0, "a"), got(5, 0, "a")),
    ],
    "a put without an answer happened before others": [
        *(SUB, READ, lost_put(2, "x", client="bob"), put(3, 4, 1, "a"), got(5, 0, "x", "a")),
    ],
    "a put without an answer happened long after": [
        *(SUB, READ, lost_put(2, "x", client="bob"), put(3, 4, 0, "a"), got(5, 0, "a")),
        *(look(6, 7, 1), got(90, 1, "x")),
    ],
    "a put without an answer fills an offset that was never read": [
        *(SUB, lost_put(2, "x", client="bob"), put(3, 4, 1, "a")),
    ],
    "two equal messages are two messages": [
        *(SUB, READ, put(2, 3, 0, "a"), put(4, 5, 1, "a"), got(6, 0, "a", "a")),
    ],
    "a put has an offset that the node forgot": [
        *(SUB, READ, put(2, 9, -1, "a"), put(3, 4, 0, "b", client="bob"), got(5, 0, "b", "a")),
    ],
    "a fenced put may have been stored": [
        *(SUB, READ, put(2, 3, -1, "a", topic_id=0, error="fenced"), got(4, 0, "a")),
    ],
    "a fenced put may not have been stored": [
        *(SUB, put(2, 3, -1, "a", topic_id=0, error="fenced"), look(4, 5, 0)),
    ],
    "a put is not kept without subscriptions": [put(2, 3, 0, "a", kept=False)],
    "a topic without subscriptions ends with its producer": [
        *(put(2, 3, 0, "a", kept=False), no_topic(4, 5), put(6, 7, 0, "b", topic_id=2)),
    ],
    "opening a producer creates the topic": [look(2, 3, 0), put(1, 9, 0, "a")],
    "a number is published once for several requests": [
        *(SUB, READ, *publish(3, None, -1), *publish(5, 6, 0, already=True), got(7, 0, "staged")),
    ],
    "a number is used again after a drop": [
        *(SUB, READ, *publish(3, None, -1, value="old"), dropped(4, 5)),
        *(*publish(7, 8, 0, value="new"), got(9, 0, "new")),
    ],
    "a number is published before it is dropped": [
        *(SUB, READ, *publish(3, None, -1, value="old"), dropped(4, 5)),
        *(*publish(7, 8, -1, value="new", error="other-content"), got(9, 0, "old")),
    ],
    "a reader is moved by another client": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b", "c"), sought(5, 6, 1, 7, start=FromOffset(1))),
        *(of_reader("moved", 7, offset=1, epoch=7), got(8, 1, "b", "c", epoch=7)),
    ],
    "a reader learns of another client's seek before that client does": [
        *(SUB, ABC, READ_ABC, sought(5, 9, 1, 7, start=FromOffset(1))),
        *(of_reader("moved", 7, offset=1, epoch=7), got(8, 1, "b", epoch=7)),
    ],
    "a seek without an answer moves a reader": [
        *(SUB, ABC, READ_ABC, sought(5, None, -1, 0, start=FromOffset(1))),
        *(of_reader("moved", 7, offset=1, epoch=7), got(8, 1, "b", epoch=7)),
        look(9, 10, 3, ("sub", 1, 7)),
    ],
    "a copy of a seek in flight moves a reader after an overload": [
        *(SUB, ABC, READ_ABC, sought(5, 6, -1, 0, start=FromOffset(1), error="overloaded")),
        *(look(7, 8, 3, ("sub", 0, 2)), look(9, 10, 3, ("sub", 1, 7))),
    ],
    "an ack without an answer may or may not be seen yet": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 1), ack(6, None, 2)),
        *(look(7, 8, 3, ("sub", 1, 2)), look(9, 10, 3, ("sub", 2, 2))),
    ],
    "an ack in flight when a reader is fenced may count": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 2)),
        attached(6, 7, 2, 3, epoch=3, reader="r2"),
    ],
    "an ack in flight when a reader is fenced has no effect": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 2)),
        *(attached(6, 7, 0, 3, epoch=3, reader="r2"), look(8, 9, 3, ("sub", 0, 3))),
    ],
    "an ack is confirmed by an earlier ack": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 2), ack(8, 9, 2)),
        *(attached(6, 8.5, 2, 3, epoch=3, reader="r2"),),
    ],
    "messages are rejected": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), again(5, 0, 2)),
        got(6, 0, "a", "b", "c", marked=2),
    ],
    "after a crash all older messages may be marked": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a"), attached(5, 6, 0, 3, epoch=3, reader="r2")),
        got(7, 0, "a", "b", "c", marked=3, reader="r2", epoch=3),
    ],
    "a reader that leaves reports what it has read": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b", "c"), left(5, 6, 1, 1)),
        *(attached(7, 8, 1, 3, epoch=3, reader="r2"), got(9, 1, "b", reader="r2", epoch=3)),
    ],
    "a message from a deleted topic arrives late": [
        *(SUB, ABC, READ_ABC, deleted(4, 5), no_topic(6, 7), got(8, 0, "a", "b")),
    ],
    "a topic is deleted and created again": [
        *(SUB, ABC, deleted(4, 5), subscribed(6, 7, topic_id=2), put(8, 9, 0, "x", topic_id=2)),
        *(attached(10, 11, 0, 1, topic_id=2, epoch=9), got(12, 0, "x", topic_id=2, epoch=9)),
    ],
    "a put is in flight while its topic is deleted and created again": [
        *(SUB, READ, put(2, 9, 0, "a", topic_id=2), got(3, 0, "a"), deleted(4, 5)),
        *(subscribed(6, 7, topic_id=2), look(10, 11, 1, topic_id=2)),
    ],
    "a create that an overloaded node refused was done by an earlier copy": [
        *(op("create", 0, 1, error="overloaded"), look(2, 3, 0)),
    ],
    "a delete without effect was done by an earlier copy": [
        *(created(0, 1), deleted(2, 5, already=True), no_topic(6, 7)),
    ],
    "a subscription is removed and created again": [
        *(SUB, ABC, unsubscribed(4, 5), subscribed(6, 7, 0, topic_id=2, start=FromNew())),
    ],
    "a policy drops unread messages": [
        *(created(0, 1, policy=DROPPING), subscribed(1.1, 1.2), ABC, READ_ABC),
        *(of_reader("skip", 4, offset=0, next=2), got(5, 2, "c")),
        look(6, 7, 3, ("sub", 0, 2), first=2, policy=DROPPING),
    ],
    "acknowledged messages may be removed": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 2)),
        scanned(6, 7, 3, 2, "c", first=2, start=FromOffset(0)),
    ],
    "a consumer goes back to its stored offset": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, 6, 2)),
        attached(7, 8, 1, 3, epoch=4, reader="r2", start=FromOffset(1)),
        got(9, 1, "b", marked=1, reader="r2", epoch=4),
    ],
    "a consumer goes back to messages that are gone": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 2)),
        attached(7, 8, 2, 3, epoch=4, reader="r2", start=FromOffset(1)),
    ],
    "a consumer is ahead of its cursor": [
        *(SUB, ABC, attached(4, 5, 2, 3, start=FromOffset(2)), got(6, 2, "c")),
        attached(7, 8, 2, 3, epoch=4, reader="r2"),
    ],
    "an ack precedes an attach that was never answered": [
        *(SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 1)),
        *(attached(6, None, -1, -1, reader="r2", epoch=0), look(8, 9, 3, ("sub", 1, 3))),
    ],
    "a subscribe finds the subscription of its first attempt": [
        *(subscribed(0, 9, 1, already=True), attached(1, 2, 0, 0), put(3, 4, 0, "a")),
        *(got(5, 0, "a"), ack(6, None, 1)),
    ],
    "a policy is set": [
        *(created(0, 1), op("policy", 2, 3, policy=DROPPING), look(4, 5, 0, policy=DROPPING)),
    ],
}


@pytest.mark.parametrize("name", FINE)
def test_correct_history_passes(name: str) -> None:
    """E1, E2, E4"""
    verdict = check(FINE[name])
    assert verdict.ok, f"{name}\n{verdict}"


def test_topics_are_checked_separately() -> None:
    history = [SUB, put(2, 3, 0, "a"), put(2, 3, 0, "b", topic="other"), look(4, 5, 1)]
    assert check(history).ok
    (found,) = check([*history, look(4, 5, 0, topic="other")]).broken
    assert found.what == "topic 'other'"


def test_verdict_counts_operations_and_objects() -> None:
    verdict = check([SUB, ABC, READ_ABC])
    assert (verdict.operations, verdict.objects) == (3, 2)
    assert str(verdict) == "3 operations on 2 topics and subscriptions are linearizable"


def test_undecided_search_does_not_pass() -> None:
    verdict = check([SUB, ABC, READ_ABC], steps_max=1)
    assert not verdict.ok
    assert not verdict.broken
    assert "UNDECIDED" in str(verdict)
