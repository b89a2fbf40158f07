"""Limits, clocks and changed settings of shared subscriptions in the state machine (WRK)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker import queue as queues
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import (
    Buried,
    Leased,
    Settled,
    SourceOpened,
    Subscribed,
    TransactionEnded,
)
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import (
    EXHAUSTED,
    WINDOW_MAX,
    WORKER_IDLE_US,
    Settle,
    Shared,
)
from oncecast.wire.transactions import Accepted, EndTransaction
from tests.broker.machine_steps import Steps
from tests.broker.test_machine_moves import Move
from tests.broker.test_machine_shared import DEAD, SETTINGS, S, Work, dead

HOUR = 3600 * S
DAY = 24 * HOUR


def runs(work: Work, **wants: int) -> list[tuple[tuple[int, int], ...]]:
    return [each.runs for each in work.lease(**wants)]


# Limits.


def test_worker_holds_no_more_messages_than_the_limit() -> None:
    """WRK-1: each leader and each replay computes the same leases, whatever a worker asks for."""
    work = Work(replace(SETTINGS, in_flight_max=100_000), messages=WINDOW_MAX + 5)
    assert runs(work, ann=WINDOW_MAX + 5) == [((0, WINDOW_MAX),)]


def test_number_of_open_messages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-1: released messages use memory too, so they block fresh ones."""
    monkeypatch.setattr(queues, "OPEN_MAX", 3)
    work = Work()
    (grant,) = work.lease(ann=10)
    assert grant.runs == ((0, 3),)
    assert not work.queue.leasable(work.now, 5)
    work.settle(release=((grant.token, 0, 2, HOUR, ""),))
    assert work.lease(bob=10) == ()
    work.settle(accept=((grant.token, 2, 1),))
    assert work.queue.leasable(work.now, 5)
    assert runs(work, bob=10) == [((3, 1),)]


def test_number_of_blocked_messages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRK-4"""
    monkeypatch.setattr(queues, "OPEN_MAX", 3)
    work = Work(replace(SETTINGS, by_key=True))
    assert [each.runs for each in work.lease_keys(1, 1, 1, 2, ann=10)] == [((0, 1),)]
    assert sorted(work.queue.open) == [0, 1, 2]


# Workers.


def test_record_of_a_worker_with_a_long_lease_is_kept() -> None:
    """WRK-3"""
    work = Work(replace(SETTINGS, lease_us=DAY), messages=1)
    (grant,) = work.lease(ann=1)
    work.now += WORKER_IDLE_US + S
    assert work.lease() == ()
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(1)


@pytest.mark.parametrize("jump", [10 * DAY, -DAY])
def test_clock_correction_does_not_age_the_records_of_workers(jump: int) -> None:
    """WRK-5"""
    work = Work(replace(SETTINGS, lease_us=DAY), 1, LIMITS, 30 * DAY)
    (grant,) = work.lease(ann=1)
    work.settle(accept=((grant.token, 0, 1),))
    queue, clock = work.queue, work.machine.registry.clock
    before = clock.trusted - queue.workers["ann"].used
    queue.shift(jump)
    assert clock.trusted + jump - queue.workers["ann"].used == before


def test_worker_of_a_removed_subscription_holds_nothing_in_a_new_one() -> None:
    """WRK-3"""
    work = Work()
    (old,) = work.lease(ann=3)
    work.apply(do.Unsubscribe("t", "s", work.now))
    assert work.share(SETTINGS) == Subscribed(5, 1, already=False)
    work.put(work.epoch, 5, 4)
    (new,) = work.lease(ann=3)
    assert (new.runs, new.token > old.token) == (((5, 3),), True)
    for stale in (((old.token, 0, 3),), ((old.token, 5, 3),)):
        assert work.settle(accept=stale) == Settled(5, stale)
    assert work.settle(accept=((new.token, 5, 3),)) == Settled(8)


# Times.


def test_delay_of_a_release_is_added_to_the_trusted_time() -> None:
    """WRK-5: the clock of the leader may be wrong."""
    work = Work(messages=1, limits=LIMITS, now=30 * DAY)
    work.tick(work.now)
    (grant,) = work.lease(ann=1)
    trusted = work.machine.registry.clock.trusted
    work.now += 365 * DAY  # a disputed stamp
    work.settle(release=((grant.token, 0, 1, 5 * S, ""),))
    assert work.machine.registry.clock.now > trusted
    assert work.queue.next_due() == trusted + 5 * S
    assert work.machine.registry.clock.trusted == trusted


def test_topic_that_moves_to_a_group_without_a_clock_keeps_its_deadlines() -> None:
    """WRK-5: the importer takes over the exporter's time, and corrects no deadline twice."""
    move = Move()
    exporter, importer = move.exporter, move.importer
    for group in (exporter, importer):
        group.apply(do.SetLimits(LIMITS, 2))
    exporter.tick(30 * DAY)
    exporter.apply(do.SubscribeShared("t", "w", do.FromOffset(3), exporter.now, SETTINGS))
    leased = exporter.apply(do.Lease("t", "w", exporter.now, (("ann", 3),)))
    assert isinstance(leased, Leased)
    (grant,) = leased.grants
    release = Settle("t", "w", "ann", 1, release=((grant.token, 4, 1, 7 * S, ""),))
    exporter.apply(do.Settles((release,), exporter.now))
    importer.tick(10 * DAY)
    move.whole()
    queue = importer.machine.registry.topics["t"].subscriptions["w"].queue
    assert queue is not None
    trusted = importer.machine.registry.clock.trusted
    left = {each.offset: each.time - trusted for each in queue.messages()}
    assert left == {3: 10 * S, 4: 7 * S, 5: 10 * S}


def test_topic_that_moves_to_a_group_with_a_wrong_clock_keeps_its_deadlines() -> None:
    """WRK-5: the time of the exporter corrects the clock, and so all times of the importer."""
    move = Move()
    exporter, importer, end = move.exporter, move.importer, 90 * DAY
    exporter.tick(end)
    importer.tick(30 * DAY)
    for group in (exporter, importer):
        group.apply(do.SetLimits(LIMITS, 2))
    exporter.apply(do.SubscribeShared("t", "w", do.FromOffset(3), end, SETTINGS))
    exporter.apply(do.Lease("t", "w", end, (("ann", 1),)))
    clock, step = importer.machine.registry.clock, LIMITS.clock_step_us
    for number in range(12):
        importer.tick(end - (12 - number) * step // 2)
    assert clock.trusted < 31 * DAY
    move.whole()
    assert clock.trusted == end
    queue = importer.machine.registry.topics["t"].subscriptions["w"].queue
    assert queue is not None
    (held,) = queue.messages()
    assert held.time == end + 10 * S


# Settings that change while messages are in flight.


def test_lowered_maximum_of_deliveries_applies_to_messages_in_flight() -> None:
    """WRK-2"""
    work = Work(replace(SETTINGS, deliveries_max=10), messages=2)
    for _ in range(4):
        (grant,) = work.lease(ann=1)
        work.settle(release=((grant.token, 0, 1, 0, "it failed"),))
    (grant,) = work.lease(ann=1)
    work.share(replace(SETTINGS, deliveries_max=2))
    work.settle(release=((grant.token, 0, 1, 0, "it failed"),))
    assert dead(work)[0].reason == EXHAUSTED
    assert work.queue.deliveries(0) == 5


def test_raised_maximum_of_deliveries_does_not_revive_dead_letters() -> None:
    """WRK-2"""
    work = Work(replace(SETTINGS, deliveries_max=1), messages=1)
    (grant,) = work.lease(ann=1)
    work.settle(release=((grant.token, 0, 1, 0, ""),))
    work.share(replace(SETTINGS, deliveries_max=0))
    assert work.lease(ann=1) == ()
    assert work.bury(0) == Buried(True, 0)


def test_changed_lease_applies_from_the_next_renewal() -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    work.share(replace(SETTINGS, lease_us=HOUR))
    assert work.queue.until(0) == work.now + 10 * S
    work.settle(renew=((grant.token, 0, 1),))
    assert work.queue.until(0) == work.now + HOUR


def test_lowered_in_flight_maximum_waits_until_enough_messages_are_settled() -> None:
    work = Work(messages=5)
    (grant,) = work.lease(ann=4)
    work.share(replace(SETTINGS, in_flight_max=2))
    assert work.lease(bob=1) == ()
    work.settle(accept=((grant.token, 0, 2),))
    assert work.lease(bob=1) == ()
    work.settle(accept=((grant.token, 2, 1),))
    assert runs(work, bob=1) == [((4, 1),)]


def test_new_dead_letter_topic_must_keep_its_messages() -> None:
    """WRK-2: otherwise the next dead letter would be lost."""
    work = Work(messages=1)
    work.create("failed")
    changed = replace(SETTINGS, dead_letters="failed")
    assert work.share(changed) == errors.NotKept("failed")
    assert work.queue.settings == SETTINGS
    work.subscribe("reader", topic="failed")
    assert work.share(changed) == Subscribed(0, 1, already=True)
    (grant,) = work.lease(ann=1)
    work.settle(reject=((grant.token, 0, 1, ""),))
    assert work.bury(0) == Buried(False)  # the leader has proposed it before the change
    assert work.bury(0, topic="failed") == Buried(True, 0)
    assert (work.kept(DEAD), work.kept("failed")) == ([], [0])


def test_new_dead_letter_topic_counts_towards_the_limit_of_topics() -> None:
    work = Work(messages=1, limits=Limits(topics_max=2))
    changed = replace(SETTINGS, dead_letters="failed")
    assert work.share(changed) == errors.TooMany("topics", 2)
    assert work.queue.settings == SETTINGS


# Order by key.


def test_dead_letter_in_a_snapshot_blocks_its_key() -> None:
    """WRK-4"""
    work = Work(replace(SETTINGS, by_key=True), messages=3)
    (grant,) = work.lease_keys(1, 1, 2, ann=10)
    work.settle(reject=((grant.token, 0, 1, ""),))
    work.machine = type(work.machine).restore(list(work.machine.state()))
    assert work.lease_keys(bob=10) == ()
    work.bury(0)
    assert [each.runs for each in work.lease_keys(bob=10)] == [((1, 1),)]


def test_expired_message_blocks_its_key_until_it_is_accepted() -> None:
    """WRK-4: a crash of the worker does not change the order of a key."""
    work = Work(replace(SETTINGS, by_key=True), messages=3)
    work.lease_keys(1, 1, 1, ann=10)
    work.now += 10 * S
    assert work.lease("ann", bob=10) == ()
    work.now += S
    (again,) = work.lease_keys(bob=10)
    assert again.runs == ((0, 1),)
    work.settle("bob", release=((again.token, 0, 1, HOUR, ""),))
    assert work.lease_keys(bob=10) == ()
    verbs: dict[str, Any] = {"accept": ((again.token, 0, 1),)}
    assert work.settle("bob", **verbs) == Settled(0, verbs["accept"])


def test_release_of_a_move_keeps_the_order_of_a_key() -> None:
    """WRK-4"""
    move = Move()
    for group in (move.exporter, move.importer):
        group.apply(do.SetLimits(Limits(), 2))
    exporter, importer = move.exporter, move.importer
    settings = Shared(by_key=True)
    exporter.apply(do.SubscribeShared("t", "w", do.FromOffset(3), exporter.now, settings))
    lease = do.Lease("t", "w", exporter.now, (("ann", 9),), (), 3, (7, 7, 8))
    leased = exporter.apply(lease)
    assert isinstance(leased, Leased)
    (grant,) = leased.grants
    assert grant.runs == ((3, 1), (5, 1))
    move.whole()
    more = importer.apply(do.Lease("t", "w", importer.now, (("bob", 9),), (), 6, (7,)))
    assert more == Leased(())
    done = Settle("t", "w", "ann", 1, ((grant.token, 3, 1),))
    importer.apply(do.Settles((done,), importer.now))
    after = importer.apply(do.Lease("t", "w", importer.now, (("bob", 9),)))
    assert isinstance(after, Leased)
    assert [each.runs for each in after.grants] == [((4, 1),)]


# Limits and names of a new subscription.


def test_subscription_needs_a_valid_name() -> None:
    """SVC-7"""
    work = Work(replace(SETTINGS, dead_letters="dead"))
    assert work.share(replace(SETTINGS, dead_letters="dead"), "") == errors.InvalidName(
        "subscription"
    )


def test_subscription_without_a_delivery_limit_needs_no_place_for_dead_letters() -> None:
    """WRK-2: the first rejected message creates their topic."""
    for deliveries_max, expected in ((0, Subscribed), (1, errors.TooMany)):
        steps = Steps(Limits(topics_max=1))
        shared = replace(SETTINGS, deliveries_max=deliveries_max)
        command = do.SubscribeShared("t", "s", do.FromNew(), 0, shared)
        assert isinstance(steps.apply(command), expected)
        assert list(steps.machine.registry.sharing) == ["t"][: 1 - deliveries_max]


def test_number_of_shared_subscriptions_is_limited() -> None:
    """SEC-3"""
    work = Work(limits=Limits(subscriptions_max=1))
    assert work.share(SETTINGS, "second") == errors.TooMany("subscriptions of the topic", 1)


def test_invalid_worker_gets_no_messages() -> None:
    """SVC-7"""
    work = Work()
    leased = work.apply(do.Lease("t", "s", work.now, (("", 2), ("ann", 1))))
    assert isinstance(leased, Leased)
    assert [(each.worker, each.runs) for each in leased.grants] == [("ann", ((0, 1),))]


def test_only_a_lease_without_requests_deletes_idle_workers() -> None:
    """WRK-3: each version must compute the same state."""
    work = Work()
    (grant,) = work.lease(ann=1)
    work.settle(accept=((grant.token, 0, 1),))
    work.now += WORKER_IDLE_US + S
    work.lease(bob=1)
    assert list(work.queue.workers) == ["ann", "bob"]
    work.lease()
    assert list(work.queue.workers) == ["bob"]


def test_dead_letter_topic_drops_letters_over_its_size() -> None:
    """WRK-2 SVC-5: the policy applies to letters as to messages."""
    work = Work(replace(SETTINGS, deliveries_max=1), messages=3)
    work.apply(do.SetPolicy(DEAD, work.now, Policy(bytes_max=15)))
    (grant,) = work.lease(ann=3)
    work.settle(reject=((grant.token, 0, 3, ""),))
    for offset in range(3):
        assert work.bury(offset) == Buried(True, offset)
    index = work.machine.registry.topics[DEAD].index
    assert (index.first, index.next) == (2, 3)


def test_letters_and_workers_keep_their_times_during_a_dispute() -> None:
    """SVC-9: letters get the newest time, and workers the trusted one."""
    work = Work(replace(SETTINGS, deliveries_max=1), 3, LIMITS, 30 * DAY)
    first, second = work.lease(ann=1, bob=1)
    work.settle(reject=((first.token, 0, 1, ""),))
    trusted = work.machine.registry.clock.trusted
    work.now += DAY
    work.bury(0)
    clock = work.machine.registry.clock
    assert (clock.now, clock.trusted) == (work.now, trusted)
    assert work.machine.registry.topics[DEAD].index._times[0] == work.now
    end = EndTransaction("src", "t", 0, 0, 0, work.now)
    opened = work.apply(do.OpenSource("src", "inc", "t", work.now))
    assert isinstance(opened, SourceOpened)
    done = (Accepted("t", "s", "bob", ((second.token, 1, 1),)),)
    assert isinstance(work.apply(replace(end, epoch=opened.epoch, accepted=done)), TransactionEnded)
    assert work.queue.workers["bob"].used == work.machine.registry.clock.trusted < work.now
