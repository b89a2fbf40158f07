"""The order in which leases end, and the memory for settled messages (WRK-1)."""

from __future__ import annotations

from typing import cast

from oncecast.broker.endings import KEPT_MIN, Endings, Grant
from oncecast.broker.index import Index
from oncecast.broker.queue import DEAD_MAX, Death, Expiry, Queue, Worker
from oncecast.broker.retries import TIDY_MIN, Retries
from oncecast.wire.sharing import Settle, Shared


def grant(until: int, *offsets: int) -> Grant:
    return Grant("ann", until, until, list(offsets or (0,)))


def ends(endings: Endings, now: int) -> list[int]:
    return [each.until for each in endings.ended(now)]


def test_grant_lists_its_offsets() -> None:
    """WRK-1"""
    assert grant(1, 7).offsets == [7]
    assert grant(1, 7, 9).offsets == [7, 9]
    assert (grant(1, 7).left, grant(1, 7, 9).left) == (1, 2)


def test_grants_end_in_the_order_of_their_ends() -> None:
    """WRK-1: a shortened lease ends before the longer leases that were granted earlier."""
    endings = Endings()
    for until in (50, 60, 60, 20, 70, 10, 20):
        endings.add(grant(until))
    assert len(endings) == 7
    assert endings.next == 10
    assert sorted(ends(endings, 20)) == [10, 20, 20]
    assert endings.next == 50
    assert ends(endings, 49) == []
    assert ends(endings, 60) == [50, 60, 60]
    assert ends(endings, 70) == [70]
    assert len(endings) == 0
    assert endings.next is None


def test_only_early_grants_are_left() -> None:
    endings = Endings([grant(50)])
    endings.add(grant(20))
    endings.add(grant(60))
    endings._queue[0].left = endings._queue[1].left = 0
    assert endings.next == 20
    assert ends(endings, 20) == [20]


def test_settled_grants_do_not_delay_the_next_end() -> None:
    endings = Endings([grant(30), grant(10), grant(20)])
    early = grant(5)
    endings.add(early)
    assert endings.next == 5
    early.left = 0
    assert endings.next == 10
    endings._queue[0].left = 0
    assert (endings.next, len(endings)) == (20, 2)


def test_settled_grants_are_dropped_behind_one_that_is_not_settled() -> None:
    """WRK-1: a slow job does not keep the grants of all later jobs in memory."""
    slow, slower = grant(100), grant(90)
    endings = Endings([slow])
    endings.add(slower)
    for until in range(101, 10_101):
        settled = grant(until if until % 2 else until - 50)
        settled.left = 0
        endings.add(settled)
        assert len(endings) <= KEPT_MIN
    assert endings.next == 90
    assert 100 in ends(endings, 100)


def settle(queue: Queue, number: int, token: int, offset: int) -> None:
    queue.settle(Settle("t", "s", "ann", number, accept=((token, offset, 1),)), 0)


def test_messages_settled_behind_a_slow_job_are_forgotten() -> None:
    """WRK-1: the memory does not grow with the number of messages since the oldest open one."""
    queue = Queue(Shared(), 0)
    for offset in range(5 * TIDY_MIN):
        (taken,) = queue.take(1, 0, offset + 1)
        queue.grant("ann", offset + 1, 0, [taken])
        if offset:
            settle(queue, offset, offset + 1, offset)
    assert len(queue._order) <= TIDY_MIN + 3
    assert (queue.cursor, queue.next, queue.open_offsets(9)) == (0, 5 * TIDY_MIN, [0])


def test_messages_that_no_longer_wait_are_forgotten() -> None:
    """WRK-2: messages that the topic drops while they wait for a retry need no memory."""
    retries = Retries()
    retries.add(0, 10)
    for offset in range(1, 5 * TIDY_MIN):
        retries.add(offset, 20)
        retries.remove(offset)
    assert len(retries._heap) <= TIDY_MIN + 5
    assert (len(retries), retries.due(0), retries.next) == (1, 10, (10, 0))
    assert [retries.ready(9), retries.ready(10)] == [False, True]
    assert (retries.pop(), len(retries), retries.next) == (0, 0, None)


class Old:
    """An index in which no message expires."""

    next = 10

    def expired(self, offset: int, now: int) -> int:
        return 0

    def batch_end(self, offset: int) -> int:
        return offset + 1


def test_replicas_agree_although_one_of_them_remembers_a_dropped_message() -> None:
    """WRK-2: a replica that was restored from a snapshot leases the same messages."""
    queue = Queue(Shared(backoff_min_us=0, backoff_max_us=0), 0)
    queue.grant("ann", 1, 0, queue.take(2, 0, 2))
    queue.settle(Settle("t", "s", "ann", 1, release=((1, 0, 1, -1, ""),)), 0)
    queue.expire(0, 1, "")  # the topic has dropped the message that waits for a retry
    queue.dead = dict.fromkeys(range(100, 100 + DEAD_MAX), Death("expired"))
    restored = Queue(queue.settings, 0)
    restored.workers["ann"] = Worker("ann", 0)
    restored.restore(queue.messages())
    restored.next, restored.dead = queue.next, dict(queue.dead)
    expiry = Expiry(cast("Index", Old()), drop=False)
    assert queue.take(5, 0, 5, (), expiry) == restored.take(5, 0, 5, (), expiry) == [2, 3, 4]
