"""The checker finds each contradiction in hand-made histories.

Each begins with a subscription, so that messages are kept. Topics have their first epoch.
"""

from __future__ import annotations

import pytest

from oncecast.history import History, check
from oncecast.history.operation import SubscriptionSeen
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

KEEP_ALL = Policy(keep_all=True)

BROKEN: dict[str, tuple[str, History]] = {
    # -- puts --
    "a put that had returned is not in a later look": (
        "ends at 1, not at 0",
        [SUB, put(2, 3, 0, "a"), look(4, 5, 0)],
    ),
    "a look shows more than was put": (
        "look of ann",
        [SUB, put(2, 3, 0, "a"), look(4, 5, 2)],
    ),
    "a put that had returned is not in a later scan": (
        "ends at 2, not at 1",
        [SUB, put(2, 3, 0, "a"), put(4, 5, 1, "b"), scanned(6, 7, 1, 0, "a")],
    ),
    "a scan shows messages that were not put": (
        "the topic has other messages",
        [SUB, ABC, scanned(6, 7, 3, 0, "a", "x", "c")],
    ),
    "a deposed leader answers after its successor": (
        "look of bob",
        [SUB, put(2, 3, 0, "a"), look(4, 5, 1), look(6, 7, 0, client="bob")],
    ),
    "two puts get the same offset": (
        "put",
        [SUB, put(2, 3, 0, "a"), put(4, 5, 0, "b", client="bob")],
    ),
    "a put is stored twice": (
        "get of ann",
        [SUB, READ, put(2, 3, 0, "a"), got(4, 0, "a", "a")],
    ),
    "a put without an answer is stored twice": (
        "get of ann",
        [SUB, READ, lost_put(2, "a", client="bob"), got(4, 0, "a"), got(5, 1, "a")],
    ),
    "a put skips an offset": (
        "put of ann",
        [SUB, put(2, 3, 0, "a"), put(4, 5, 2, "b")],
    ),
    "a producer's puts in flight are reordered": (
        "put",
        [SUB, put(2, 10, 1, "a"), put(3, 9, 0, "b")],
    ),
    "a put is stored before a put that had returned": (
        "put",
        [SUB, put(2, 3, 1, "a"), put(4, 5, 0, "b", client="bob")],
    ),
    "an unanswered put is stored after the next put of its producer": (
        "get",
        [SUB, READ, lost_put(2, "a"), put(4, 5, 0, "b"), got(6, 0, "b"), got(7, 1, "a")],
    ),
    "a refused put is stored": (
        "get",
        [SUB, READ, put(2, 3, -1, "a", error="too-large"), got(4, 0, "a")],
    ),
    "a put is not kept although there is a subscription": (
        "put of ann",
        [SUB, put(2, 3, 0, "a", kept=False)],
    ),
    "a put is kept without a subscription": (
        "put of ann",
        [put(2, 3, 0, "a", kept=True)],
    ),
    # -- staged puts --
    "a staged message is delivered before it is published": (
        "get",
        [SUB, READ, publish(10, 11, 0)[0], got(9.7, 0, "staged"), *publish(10, 11, 0)[1:]],
    ),
    "one number is published twice": (
        "get",
        [
            SUB,
            READ,
            *publish(3, 4, 0),
            *publish(5, 6, 0, already=True),
            got(7, 0, "staged", "staged"),
        ],
    ),
    "a refused publish takes effect later": (
        "get",
        [SUB, READ, *publish(3, 4, -1, error="not-staged"), got(7, 0, "staged")],
    ),
    # -- deliveries --
    "a message is delivered before it is put": (
        "get",
        [SUB, READ, got(2, 0, "a"), put(3, 4, 0, "a")],
    ),
    "a delivered message was never put": (
        "get",
        [SUB, READ, put(2, 3, 0, "a"), got(4, 0, "a", "b")],
    ),
    "two readers get different messages at one offset": (
        "another message was put",
        [
            SUB,
            READ,
            lost_put(2, "a"),
            lost_put(2, "b", client="bob"),
            got(3, 0, "a"),
            got(4, 0, "b", reader="r2", subscription="other"),
        ],
    ),
    "a reader misses an offset": (
        "offset 1 is due, but 2 was delivered",
        [SUB, ABC, READ_ABC, got(4, 0, "a"), got(5, 2, "c")],
    ),
    "a reader gets an offset twice": (
        "offset 1 is due, but 0 was delivered",
        [SUB, ABC, READ_ABC, got(4, 0, "a"), got(5, 0, "a")],
    ),
    "a message is redelivered without a mark after a crash": (
        "offset 1 was delivered before, but is redelivered without a mark",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            ack(4.1, 4.2, 1),
            attached(5, 6, 1, 3, epoch=3, reader="r2"),
            got(7, 1, "b", reader="r2", epoch=3),
        ],
    ),
    "a rejected message is redelivered without a mark": (
        "offset 0 was rejected",
        [SUB, ABC, READ_ABC, got(4, 0, "a"), again(5, 0, 1), got(6, 0, "a")],
    ),
    "a message is marked but was never delivered": (
        "offset 3 is marked as redelivered, but was never delivered before",
        [SUB, ABC, READ_ABC, got(4, 0, "a", "b", "c"), put(5, 6, 3, "d"), got(7, 3, "d", marked=1)],
    ),
    "unread messages are skipped": (
        "unread messages were skipped",
        [SUB, ABC, READ_ABC, of_reader("skip", 4, offset=0, next=2), got(5, 2, "c")],
    ),
    "messages are skipped that were read in an earlier topic with the same name": (
        "messages were skipped",
        [
            *(SUB, ABC, READ_ABC, got(4, 0, "a", "b", "c"), ack(4.1, 4.2, 3), deleted(5, 6)),
            *(subscribed(7, 8, topic_id=2), put(9, 10, 0, "d", "e", "f", topic_id=2)),
            attached(11, 12, 0, 3, epoch=4, reader="r2", topic_id=2),
            of_reader("skip", 13, offset=0, next=2, epoch=4, reader="r2", topic_id=2),
            got(14, 2, "f", epoch=4, reader="r2", topic_id=2),
        ],
    ),
    "messages are skipped that only an earlier topic's policy allows to skip": (
        "messages were skipped",
        [
            *(created(0, 1, policy=Policy(bytes_max=1, drop_unread=True)), deleted(2, 3)),
            *(subscribed(7, 8, topic_id=2), put(9, 10, 0, "d", "e", "f", topic_id=2)),
            attached(11, 12, 0, 3, epoch=4, reader="r2", topic_id=2),
            of_reader("skip", 13, offset=0, next=2, epoch=4, reader="r2", topic_id=2),
            got(14, 2, "f", epoch=4, reader="r2", topic_id=2),
        ],
    ),
    # -- epochs of topics --
    "a deleted topic comes back with its messages": (
        "look of bob",
        [created(0, 1), put(2, 3, 0, "a"), deleted(4, 5), look(6, 7, 1, client="bob")],
    ),
    "a topic that was created does not exist": (
        "the topic exists",
        [created(0, 1), no_topic(2, 3)],
    ),
    "a topic exists that was never created": (
        "the topic does not exist",
        [look(2, 3, 0)],
    ),
    "a delete in flight is done twice": (
        "the topic exists",
        [created(0, 1), deleted(2, 20), no_topic(3, 4), created(5, 6, topic_id=2), no_topic(7, 8)],
    ),
    "a delete without an answer is done twice": (
        "the topic exists",
        [created(0, 1), op("delete", 2), no_topic(3, 4), created(5, 6, topic_id=2), no_topic(7, 8)],
    ),
    "a refused create takes effect": (
        "the topic does not exist",
        [op("create", 0, 1, error="too-many"), look(2, 3, 0)],
    ),
    "a new topic has an older epoch": (
        "create",
        [created(0, 1, topic_id=2), deleted(2, 3), created(4, 5, topic_id=1)],
    ),
    "a reader gets a message from the previous epoch": (
        "get",
        [
            SUB,
            put(2, 3, 0, "a"),
            deleted(4, 5),
            subscribed(6, 7, topic_id=2),
            put(8, 9, 0, "b", topic_id=2),
            attached(10, 11, 0, 1, topic_id=2, epoch=9),
            got(12, 0, "a", topic_id=2, epoch=9),
        ],
    ),
    "a policy that was set has no effect": (
        "another policy",
        [created(0, 1), op("policy", 2, 3, policy=KEEP_ALL), look(4, 5, 0, policy=Policy())],
    ),
    # -- retention --
    "unread messages are gone": (
        "messages from 0 on are unread",
        [SUB, ABC, scanned(4, 5, 3, 2, "c", first=2)],
    ),
    "a topic that keeps all messages loses a message": (
        "look of ann",
        [created(0, 1, policy=KEEP_ALL), ABC, look(4, 5, 3, first=1, policy=KEEP_ALL)],
    ),
    "a deleted message reappears": (
        "messages before 2 are gone",
        [created(0, 1), ABC, look(4, 5, 3, first=2), look(6, 7, 3, first=0)],
    ),
    # -- subscriptions --
    "a subscription is missing after it was created": (
        "subscription",
        [SUB, look(2, 3, 0, ("other", 0, 1))],
    ),
    "a subscription exists after an unsubscribe": (
        "unsubscribe",
        [SUB, created(1.1, 1.2, already=True), unsubscribed(2, 3), look(4, 5, 0, ("sub", 0, 1))],
    ),
    "a reader attaches after an unsubscribe": (
        "attach",
        [SUB, created(1.1, 1.2, already=True), unsubscribed(2, 3), attached(4, 5, 0, 0)],
    ),
    "a reader gets an error although it is subscribed": (
        "the subscription",
        [SUB, attached(2, 3, -1, -1, epoch=0, error="not-subscribed")],
    ),
    "a subscription to new messages begins before the end": (
        "subscribe of ann",
        [created(0, 1, policy=KEEP_ALL), ABC, subscribed(4, 5, 1, start=FromNew())],
    ),
    "a reader that attaches is shown an older end": (
        "attach of ann",
        [SUB, put(2, 3, 0, "a"), attached(4, 5, 0, 0)],
    ),
    "the lag is wrong": (
        "the lag of 'sub'",
        [SUB, ABC, look(4, 5, 3, views=(SubscriptionSeen("sub", 0, 2, 1),))],
    ),
    # -- acks and seeks --
    "a confirmed ack is lost": (
        "the cursor",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            ack(5, 6, 2),
            attached(7, 8, 0, 3, epoch=3, reader="r2"),
        ],
    ),
    "a cursor is beyond all acknowledged offsets": (
        "the cursor is at 0",
        [SUB, ABC, READ_ABC, got(4, 0, "a", "b"), ack(5, None, 1), look(6, 7, 3, ("sub", 2, 2))],
    ),
    "an unanswered attach moves the cursor": (
        "the cursor",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            ack(5, None, 1),
            attached(6, None, -1, -1, reader="r2", epoch=0),
            look(8, 9, 3, ("sub", 2, 3)),
        ],
    ),
    "an ack from a fenced reader takes effect": (
        "the cursor is at 0 in epoch 3",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            attached(5, 6, 0, 3, epoch=3, reader="r2"),
            ack(7, None, 2),
            look(8, 9, 3, ("sub", 2, 3)),
        ],
    ),
    "an ack from a fenced reader is confirmed": (
        "epoch 3 has fenced epoch 2",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            attached(5, 6, 0, 3, epoch=3, reader="r2"),
            ack(7, 8, 2),
        ],
    ),
    "a departed reader's final ack is lost": (
        "the cursor",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            left(5, 6, 2, 2),
            attached(7, 8, 1, 3, epoch=3, reader="r2"),
        ],
    ),
    "a late publish publishes a part that was staged after a drop": (
        "get of ann",
        [
            *(SUB, READ, *publish(3, None, -1, value="old"), dropped(4, 5)),
            *(*publish(7, 8, -1, value="new", error="other-content"), got(9, 0, "new")),
        ],
    ),
    "an old part is published after a drop": (
        "offset 0",
        [
            *(SUB, READ, *publish(3, 3.5, -1, value="old", error="not-staged"), dropped(4, 5)),
            *(*publish(7, 8, 0, value="new"), got(9, 0, "old")),
        ],
    ),
    "a seek is ignored": (
        "the cursor",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            ack(5, 6, 2),
            sought(7, 8, 0, 5),
            look(9, 10, 3, ("sub", 2, 5)),
        ],
    ),
    "a late ack undoes a seek": (
        "the cursor",
        [
            SUB,
            ABC,
            READ_ABC,
            got(4, 0, "a", "b"),
            sought(5, 6, 0, 5),
            ack(7, None, 2),
            attached(8, 9, 2, 3, epoch=6, reader="r2"),
        ],
    ),
    "a seek moves to another offset": (
        "seek of ann",
        [SUB, ABC, sought(4, 5, 2, 5, start=FromOffset(1))],
    ),
    "an answered seek takes effect again after another seek": (
        "the cursor",
        [
            *(SUB, ABC, sought(4, 9, 1, 5, start=FromOffset(1), already=True)),
            *(
                sought(5, 6, 2, 6, client="bob", start=FromOffset(2)),
                look(10, 11, 3, ("sub", 1, 7)),
            ),
        ],
    ),
    "an unanswered seek takes effect again after another seek": (
        "the cursor",
        [
            *(SUB, ABC, sought(4, None, -1, 0, start=FromOffset(1)), look(5, 6, 3, ("sub", 1, 5))),
            *(sought(7, 8, 2, 6, client="bob", start=FromOffset(2)), look(9, 10, 3, ("sub", 1, 7))),
        ],
    ),
    "a refused seek takes effect again after another seek": (
        "the cursor",
        [
            *(SUB, ABC, sought(4, 9, -1, 0, start=FromOffset(1), error="denied")),
            *(
                look(5, 6, 3, ("sub", 1, 5)),
                sought(6.1, 7, 2, 6, client="bob", start=FromOffset(2)),
            ),
            look(10, 11, 3, ("sub", 1, 7)),
        ],
    ),
    "an answered seek takes effect again in a new subscription": (
        "the cursor",
        [
            *(SUB, ABC, sought(4, 9, 2, 5, start=FromOffset(2)), unsubscribed(5, 6)),
            *(subscribed(7, 8, topic_id=1, start=FromOffset(0)), look(10, 11, 3, ("sub", 2, 7))),
        ],
    ),
    "the copy of an answered seek shows an offset that was never acknowledged": (
        "the cursor",
        [
            *(SUB, ABC, sought(4, 5, 1, 5, start=FromOffset(1), already=True)),
            look(6, 7, 3, ("sub", 2, 5)),
        ],
    ),
    "a seek of a missing subscription has an effect": (
        "the cursor",
        [
            *(SUB, ABC, unsubscribed(3.1, 3.2), sought(4, 9, -1, 0, error="not-subscribed")),
            *(subscribed(5, 6, 2, start=FromOffset(2)), look(10, 11, 3, ("sub", 0, 7))),
        ],
    ),
    "a consumer starts after its stored offset and skips unread messages": (
        "attach of ann",
        [SUB, ABC, attached(4, 5, 2, 3, start=FromOffset(1))],
    ),
    "two readers have the same epoch": (
        "two readers have epoch 2",
        [SUB, ABC, READ_ABC, attached(5, 6, 0, 3, epoch=2, reader="r2")],
    ),
    "a newer reader has an older epoch": (
        "is already current",
        [SUB, attached(2, 3, 0, 0, epoch=5), attached(4, 5, 0, 0, epoch=3, reader="r2")],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_contradictory_history_is_found(name: str) -> None:
    """E1, E2, E4"""
    expected, history = BROKEN[name]
    verdict = check(history)
    assert not verdict.ok, name
    assert not verdict.undecided
    assert expected in str(verdict)
