"""Many workers share a subscription, and each message is leased to one worker at a time (WRK)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from oncecast.broker import moves
from oncecast.broker.machine import Machine
from oncecast.broker.queue import Death, Queue, backoff, shares
from oncecast.dht.identifiers import key_of, key_of_topic
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.results import Buried, GrantMade, Leased, Settled, SettlesDone, Subscribed
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import (
    EXHAUSTED,
    EXPIRED,
    REJECTED,
    WORKER_IDLE_US,
    WORKER_LOST,
    Settle,
    Shared,
    dead_letter_topic,
)
from tests.broker.machine_steps import Steps
from tests.broker.shared_pair import SharedPair, shared_run
from tests.broker.test_machine_moves import Move
from tests.seeds import seeds

S = 1_000_000
SETTINGS = Shared(lease_us=10 * S, deliveries_max=3, backoff_min_us=S, backoff_max_us=3 * S)
DEAD = "{t}.dead.s"


class Work(Steps):
    """A machine with a shared subscription `s` to the topic `t`."""

    def __init__(
        self,
        settings: Shared = SETTINGS,
        messages: int = 5,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        now: int = 1000,
    ) -> None:
        super().__init__(limits)
        self.now = now
        self.share(settings)
        self.epoch = self.open()
        self.number = 0
        if messages:
            self.put(self.epoch, 0, messages)

    def share(self, settings: Shared | None, subscription: str = "s") -> done.Result:
        start = do.FromEarliest()
        return self.apply(do.SubscribeShared("t", subscription, start, self.now, settings))

    def lease(self, *gone: str, **wants: int) -> tuple[GrantMade, ...]:
        leased = self.apply(do.Lease("t", "s", self.now, tuple(wants.items()), gone))
        assert isinstance(leased, Leased)
        return leased.grants

    def lease_keys(self, *keys: int, **wants: int) -> tuple[GrantMade, ...]:
        pairs = tuple(wants.items())
        leased = self.apply(do.Lease("t", "s", self.now, pairs, (), self.queue.next, keys))
        assert isinstance(leased, Leased)
        return leased.grants

    def settle(self, worker: str = "ann", *, number: int = 0, **verbs: Any) -> done.Result:
        self.number += 1
        settle = Settle("t", "s", worker, number or self.number, **verbs)
        answer = self.apply(do.Settles((settle,), self.now))
        assert isinstance(answer, SettlesDone)
        return answer.results[0]

    def bury(self, *offsets: int, topic: str = DEAD, count: int = 0) -> done.Result:
        put = do.Put(topic, "p", 0, 0, count or len(offsets), 10, 0, b"letters")
        return self.apply(do.Bury("t", "s", offsets, self.now, put))

    @property
    def queue(self) -> Queue:
        found = self.machine.registry.topics["t"].subscriptions["s"].queue
        assert found is not None
        return found

    @property
    def cursor(self) -> int:
        return self.machine.registry.topics["t"].subscriptions["s"].cursor


# Leases.


def test_each_message_is_leased_to_one_worker() -> None:
    """WRK-1"""
    work = Work()
    first, second = work.lease(ann=2, bob=2)
    assert first == GrantMade("ann", first.token, ((0, 2),))
    assert second == GrantMade("bob", second.token, ((2, 2),))
    assert second.token > first.token
    assert work.lease(ann=2, bob=2) == ()
    (third,) = work.lease(cat=10)
    assert third == GrantMade("cat", third.token, ((4, 1),))
    assert third.token > second.token


def test_messages_are_shared_equally_among_workers_with_free_windows() -> None:
    assert shares([10, 10, 10], 5) == [2, 2, 1]
    assert shares([1, 10, 10], 5) == [1, 2, 2]
    assert shares([10, 1], 3) == [2, 1]
    assert shares([], 0) == []
    work = Work(messages=6)
    assert [each.runs for each in work.lease(ann=100, bob=100)] == [((0, 3),), ((3, 3),)]


def test_window_limits_the_total_messages_that_a_worker_holds() -> None:
    work = Work()
    (grant,) = work.lease(ann=2)
    assert work.lease(ann=2) == ()
    work.settle(accept=((grant.token, 0, 1),))
    assert [each.runs for each in work.lease(ann=2)] == [((2, 1),)]


def test_in_flight_maximum_limits_all_workers_together() -> None:
    work = Work(replace(SETTINGS, in_flight_max=3))
    assert [each.runs for each in work.lease(ann=2, bob=2)] == [((0, 2),), ((2, 1),)]
    assert work.lease(cat=2) == ()


def test_expired_lease_is_delivered_again_after_the_backoff() -> None:
    """WRK-2"""
    work = Work(messages=1)
    (first,) = work.lease(ann=1)
    work.now += 10 * S - 1
    assert work.lease(bob=1) == ()
    work.now += 1
    assert work.lease(bob=1) == ()  # the lease has ended, and the backoff begins
    work.now += S - 1
    assert work.lease(bob=1) == ()
    work.now += 1
    (second,) = work.lease(bob=1)
    assert second.worker == "bob"
    assert second.token > first.token
    assert work.queue.deliveries(0) == 2


def test_retries_are_leased_before_fresh_messages() -> None:
    """WRK-2"""
    work = Work(messages=4)
    (grant,) = work.lease(ann=2)
    work.settle(release=((grant.token, 1, 1, 0, ""),))
    assert [each.runs for each in work.lease(bob=2)] == [((1, 2),)]


def test_backoff_doubles_up_to_its_maximum() -> None:
    work = Work(replace(SETTINGS, deliveries_max=0), messages=1)
    delays = []
    for _ in range(4):
        (grant,) = work.lease(ann=1)
        work.settle(release=((grant.token, 0, 1, -1, ""),))
        due = work.queue.next_due()
        assert due is not None
        delays.append(due - work.now)
        work.now = due
    assert delays == [S, 2 * S, 3 * S, 3 * S]


def test_backoff_after_many_deliveries_is_bounded() -> None:
    assert backoff(SETTINGS, 10**6) == 3 * S
    assert backoff(replace(SETTINGS, backoff_min_us=0), 10**6) == 0


def test_messages_of_a_lost_worker_are_released() -> None:
    """WRK-1"""
    work = Work(messages=3)
    (grant,) = work.lease(ann=3)
    work.settle(accept=((grant.token, 1, 1),))
    assert work.lease("ann", bob=3) == ()
    work.now += S
    (again,) = work.lease(bob=3)
    assert again.runs == ((0, 1), (2, 1))


# Settlements.


def test_cursor_is_the_lowest_unsettled_offset() -> None:
    """WRK-2: retention follows the cursor, as with an exclusive subscription."""
    work = Work()
    (grant,) = work.lease(ann=3)
    assert work.settle(accept=((grant.token, 1, 2),)) == Settled(0)
    assert (work.cursor, work.kept()) == (0, [0, 1, 2, 3, 4])
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(3)
    assert (work.cursor, work.kept()) == (3, [3, 4])
    assert work.queue.open == {}


def test_stale_token_is_refused_for_its_offsets_only() -> None:
    """WRK-3"""
    work = Work(messages=3)
    (old,) = work.lease(ann=3)
    work.settle(release=((old.token, 1, 1, 0, ""),))
    (new,) = work.lease(bob=1)
    assert work.settle(accept=((old.token, 0, 3),)) == Settled(1, ((old.token, 1, 1),))
    assert work.settle("bob", accept=((new.token, 1, 1),)) == Settled(3)


def test_token_from_another_worker_is_refused() -> None:
    """WRK-3"""
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    stale = ((grant.token, 0, 1),)
    assert work.settle("bob", accept=stale) == Settled(0, stale)
    assert work.settle("ann", accept=stale) == Settled(1)


def test_offset_that_was_never_leased_is_refused() -> None:
    work = Work(messages=1)
    assert work.settle(accept=((7, 0, 1), (7, 99, 1))) == Settled(0, ((7, 0, 1), (7, 99, 1)))
    assert work.queue.workers == {}


def test_late_settlement_counts_until_a_command_ends_the_lease() -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    work.now += 60 * S
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(1)


def test_repeated_settlement_gets_the_same_result() -> None:
    """WRK-3: a client repeats a call until it gets an answer."""
    work = Work(messages=3)
    (grant,) = work.lease(ann=2)
    verbs: dict[str, Any] = {"accept": ((grant.token, 0, 1), (99, 1, 1))}
    first = work.settle(number=1, **verbs)
    assert first == Settled(1, ((99, 1, 1),))
    assert work.settle(number=1, **verbs) == first
    work.machine = Machine.restore(list(work.machine.state()))
    assert work.settle(number=1, **verbs) == first
    assert work.settle(number=2, accept=((grant.token, 1, 1),)) == Settled(2)
    assert work.settle(number=1, **verbs) == Settled(2)  # an older copy has no effect


def test_renewed_lease_starts_again() -> None:
    """WRK-2"""
    work = Work(messages=2)
    (grant,) = work.lease(ann=2)
    work.now += 9 * S
    assert work.settle(renew=((grant.token, 0, 1),)) == Settled(0)
    work.now += 2 * S
    work.lease(bob=2)
    work.now += S
    (retried,) = work.lease(bob=2)
    assert retried.runs == ((1, 1),)
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(1)


def test_returned_message_is_redelivered_at_once_without_counting_a_delivery() -> None:
    """WRK-6: a draining worker returns the messages that it has not started."""
    work = Work(replace(SETTINGS, deliveries_max=1), messages=1)
    for _ in range(5):
        (grant,) = work.lease(ann=1)
        assert work.queue.deliveries(0) == 1
        work.settle(unused=((grant.token, 0, 1),))
    assert work.queue.dead == {}


def test_leaving_worker_returns_all_messages() -> None:
    work = Work(messages=2)
    (grant,) = work.lease(ann=2)
    assert work.settle(accept=((grant.token, 0, 1),), leave=True) == Settled(1)
    assert (work.queue.leased, work.queue.waiting) == (0, 1)
    assert work.settle(number=work.number, leave=True) == Settled(1)  # a copy of the same command


def test_message_is_settled_once_if_a_call_names_it_twice() -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    run = (grant.token, 0, 1)
    assert work.settle(accept=(run, run)) == Settled(1, (run,))


# Dead letters.


def dead(work: Work) -> dict[int, Death]:
    return dict(work.queue.dead)


def test_message_becomes_a_dead_letter_after_its_last_delivery() -> None:
    """WRK-2"""
    work = Work(messages=1)
    for _ in range(3):
        (grant,) = work.lease(ann=1)
        work.settle(release=((grant.token, 0, 1, 0, "it failed"),))
    assert work.lease(ann=1) == ()
    assert dead(work) == {0: Death(EXHAUSTED, "it failed")}
    assert work.cursor == 0
    assert work.bury(0) == Buried(True, 0)
    assert (work.cursor, work.kept(DEAD), dead(work)) == (1, [0], {})


@pytest.mark.parametrize("how", [EXPIRED, WORKER_LOST, REJECTED])
def test_dead_letter_contains_the_reason(how: str) -> None:
    work = Work(replace(SETTINGS, deliveries_max=1), messages=1)
    (grant,) = work.lease(ann=1)
    detail = ""
    if how == EXPIRED:
        work.now += 10 * S
        work.lease()
    elif how == WORKER_LOST:
        work.lease("ann")
    else:
        detail = "malformed"
        work.settle(reject=((grant.token, 0, 1, detail),))
    assert dead(work) == {0: Death(how, detail)}


def test_dead_letters_are_written_once() -> None:
    """WRK-2: append and settle are one command, so a copy has no effect."""
    work = Work(messages=3)
    (grant,) = work.lease(ann=3)
    work.settle(reject=((grant.token, 0, 2, ""),))
    assert work.bury(0, 2) == Buried(False)  # message 2 is leased
    assert work.bury(0, 0) == Buried(False)
    assert work.bury(0, 1, count=1) == Buried(False)
    assert work.bury(0, 1, topic="other") == Buried(False)
    assert work.bury() == Buried(False)
    assert work.bury(0, 1) == Buried(True, 0)
    assert work.bury(0, 1) == Buried(False)
    assert work.kept(DEAD) == [0, 1]


def test_dead_letter_topic_is_created_with_its_subscription_and_again_after_a_delete() -> None:
    work = Work(messages=1)
    topics = work.machine.registry.topics
    assert topics[DEAD].policy == Policy(keep_all=True)
    assert topics[DEAD].declared
    work.apply(do.DeleteTopic(DEAD, work.now))
    (grant,) = work.lease(ann=1)
    work.settle(reject=((grant.token, 0, 1, ""),))
    assert work.bury(0) == Buried(True, 0)
    assert work.kept(DEAD) == [0]


def test_subscription_without_a_maximum_of_deliveries_gets_its_dead_letter_topic_late() -> None:
    steps = Steps()
    endless = replace(SETTINGS, deliveries_max=0)
    shared = do.SubscribeShared("t", "s", do.FromNew(), steps.now, endless)
    steps.apply(shared)
    assert list(steps.machine.registry.topics) == ["t"]
    steps.apply(replace(shared, settings=replace(endless, lease_us=7_000_000)))
    assert list(steps.machine.registry.topics) == ["t"]
    steps.apply(replace(shared, settings=SETTINGS))
    assert list(steps.machine.registry.topics) == ["t", DEAD]


def test_dead_letter_waits_while_its_topic_cannot_be_created() -> None:
    work = Work(messages=1, limits=Limits(topics_max=2))
    work.apply(do.DeleteTopic(DEAD, work.now))
    work.create("u")
    (grant,) = work.lease(ann=1)
    work.settle(reject=((grant.token, 0, 1, ""),))
    assert work.bury(0) == errors.TooMany("topics", 2)
    assert dead(work) == {0: Death(REJECTED, "")}


def test_dead_letter_slot_is_needed_until_its_topic_drops_the_letter() -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    work.settle(reject=((grant.token, 0, 1, ""),))
    work.bury(0)
    assert work.machine.needed() == work.slot
    work.apply(do.DeleteTopic(DEAD, work.now))
    assert work.machine.needed() == work.slot + 1


# Order by key.


def test_messages_with_the_same_key_are_leased_one_at_a_time() -> None:
    """WRK-4"""
    work = Work(replace(SETTINGS, by_key=True), messages=5)
    (grant,) = work.lease_keys(1, 1, 2, 0, 1, ann=10)
    assert grant.runs == ((0, 1), (2, 2))  # 1 and 4 wait for 0; 3 has no key
    assert work.lease_keys(bob=10) == ()
    work.settle(accept=((grant.token, 0, 1),))
    (after,) = work.lease_keys(bob=10)
    assert after.runs == ((1, 1),)
    assert work.cursor == 1


def test_released_message_blocks_later_messages_with_its_key() -> None:
    """WRK-4: retries do not change the order of messages with the same key."""
    work = Work(replace(SETTINGS, by_key=True), messages=2)
    (grant,) = work.lease_keys(1, 1, ann=10)
    work.settle(release=((grant.token, 0, 1, 5 * S, ""),))
    assert work.lease_keys(ann=10) == ()
    work.now += 5 * S
    assert [each.runs for each in work.lease_keys(ann=10)] == [((0, 1),)]


def test_dead_letter_blocks_its_key_until_it_is_written() -> None:
    work = Work(replace(SETTINGS, by_key=True), messages=2)
    (grant,) = work.lease_keys(1, 1, ann=10)
    work.settle(reject=((grant.token, 0, 1, ""),))
    assert work.lease_keys(ann=10) == ()
    work.bury(0)
    assert [each.runs for each in work.lease_keys(ann=10)] == [((1, 1),)]


def test_fresh_messages_with_unknown_keys_are_not_leased() -> None:
    work = Work(replace(SETTINGS, by_key=True), messages=3)
    assert work.lease(ann=10) == ()
    (grant,) = work.lease_keys(7, ann=10)
    assert grant.runs == ((0, 1),)
    leased = work.apply(do.Lease("t", "s", work.now, (("ann", 10),), (), 0, (8, 9)))
    assert leased == Leased(())  # these keys belong to other offsets


# Subscribe.


def test_commands_for_the_other_kind_of_subscription_are_refused() -> None:
    work = Work(messages=1)
    work.subscribe("x")
    shared, exclusive = (
        errors.WrongKind("t", "s", "shared"),
        errors.WrongKind("t", "x", "exclusive"),
    )
    (grant,) = work.lease(ann=1)
    assert work.subscribe("s") == shared
    assert work.apply(do.Attach("t", "s", "inc")) == shared
    assert work.apply(do.Ack("t", "s", 1, 1)) == shared
    assert work.apply(do.Detach("t", "s", 1, 0)) == shared
    assert work.share(None, "x") == exclusive
    assert work.apply(do.Lease("t", "x", work.now, (("ann", 1),))) == exclusive
    settle = Settle("t", "x", "ann", 1, ((grant.token, 0, 1),))
    assert work.apply(do.Settles((settle,), work.now)) == SettlesDone((exclusive,))
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(1)


def test_repeated_subscribe_changes_the_settings_only_if_it_names_any() -> None:
    work = Work()
    assert work.share(None) == Subscribed(0, 1, already=True)
    assert work.queue.settings == SETTINGS
    assert work.share(replace(SETTINGS, lease_us=S)) == Subscribed(0, 1, already=True)
    assert work.queue.settings.lease_us == S


def test_order_by_key_cannot_change_while_messages_are_in_flight() -> None:
    work = Work()
    (grant,) = work.lease(ann=1)
    changed = work.share(replace(SETTINGS, by_key=True))
    assert isinstance(changed, errors.InvalidArgument)
    work.settle(accept=((grant.token, 0, 1),))
    assert work.share(replace(SETTINGS, by_key=True)) == Subscribed(1, 1, already=True)


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, lease_us=-1),
        replace(SETTINGS, lease_us=1 << 60),
        replace(SETTINGS, deliveries_max=-1),
        replace(SETTINGS, backoff_min_us=-1),
        replace(SETTINGS, backoff_min_us=4 * S),
        replace(SETTINGS, backoff_max_us=1 << 60),
        replace(SETTINGS, in_flight_max=0),
        replace(SETTINGS, in_flight_max=1 << 40),
        replace(SETTINGS, dead_letters="t"),
    ],
)
def test_invalid_settings_are_refused_and_create_nothing(settings: Shared) -> None:
    steps = Steps()
    refused = steps.apply(do.SubscribeShared("t", "s", do.FromNew(), 0, settings))
    assert isinstance(refused, errors.InvalidArgument)
    assert list(steps.machine.registry.topics) == []


def test_refused_shared_subscription_creates_no_topic() -> None:
    steps = Steps(Limits(topics_max=1))
    subscribe = do.SubscribeShared("t", "s", do.FromNew(), 0)
    assert steps.apply(subscribe) == errors.TooMany("topics", 1)
    assert list(steps.machine.registry.topics) == []
    long = do.SubscribeShared("t" * 200, "s" * 200, do.FromNew(), 0)
    assert steps.apply(long) == errors.InvalidName("dead-letter topic")


def test_dead_letter_topic_must_keep_its_messages() -> None:
    steps = Steps()
    steps.create("failed")
    settings = replace(SETTINGS, dead_letters="failed")
    subscribe = do.SubscribeShared("t", "s", do.FromNew(), 0, settings)
    assert steps.apply(subscribe) == errors.NotKept("failed")
    steps.subscribe("reader", topic="failed")
    assert isinstance(steps.apply(subscribe), Subscribed)


@pytest.mark.parametrize(
    "verbs",
    [
        {"release": ((1, 0, 1, -2, ""),)},
        {"release": ((1, 0, 1, 1 << 60, ""),)},
        {"accept": ((1, -1, 1),)},
        {"accept": ((1, 0, 0),)},
        {"renew": ((1, 0, 1 << 50),)},
        {"reject": ((1, 0, 1, "x" * 1001),)},
    ],
)
def test_invalid_settlement_is_refused_as_a_whole(verbs: dict[str, Any]) -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    good: dict[str, Any] = {"accept": ((grant.token, 0, 1),)}
    assert isinstance(work.settle(**good | verbs), errors.InvalidArgument)
    assert isinstance(work.settle(number=-1, **good), errors.InvalidArgument)
    assert work.settle(**good) == Settled(1)


def test_unknown_topic_and_subscription_are_refused() -> None:
    work = Work()
    assert work.apply(do.Lease("u", "s", 0)) == errors.NoSuchTopic("u")
    assert work.apply(do.Lease("t", "u", 0)) == errors.NotSubscribed("t", "u")
    some = (Settle("u", "s", "w", 1), Settle("t", "u", "w", 1), Settle("", "u", "w", 1))
    assert work.apply(do.Settles(some, 0)) == SettlesDone(
        (errors.NoSuchTopic("u"), errors.NotSubscribed("t", "u"), errors.InvalidTopic())
    )


# Dropped messages and subscriptions.


def test_seek_ends_all_leases() -> None:
    work = Work()
    (grant,) = work.lease(ann=3)
    work.apply(do.Seek("t", "s", do.FromOffset(1), work.now, "seek"))
    stale = ((grant.token, 0, 3),)
    assert work.settle(accept=stale) == Settled(1, stale)
    assert [each.runs for each in work.lease(ann=2)] == [((1, 2),)]


def test_messages_that_the_topic_dropped_unread_are_not_leased_again() -> None:
    work = Work(messages=0)
    work.put(work.epoch, 0, 3)
    (grant,) = work.lease(ann=3)
    work.settle(release=((grant.token, 0, 2, 0, ""),))
    policy = Policy(bytes_max=100, drop_unread=True)
    work.apply(do.SetPolicy("t", work.now, policy))
    work.put(work.epoch, 3, 1)
    assert work.kept() == [3]
    assert [each.runs for each in work.lease(bob=9)] == [((3, 1),)]
    assert sorted(work.queue.open) == [2, 3]  # offset 2 is still leased
    assert work.settle(accept=((grant.token, 2, 1),)) == Settled(3)


def test_unsubscribe_drops_leases_and_messages() -> None:
    work = Work()
    work.lease(ann=3)
    work.apply(do.Unsubscribe("t", "s", work.now))
    assert work.kept() == []
    assert work.machine.registry.sharing == {}


def test_record_of_an_idle_worker_is_deleted() -> None:
    work = Work(messages=1)
    (grant,) = work.lease(ann=1)
    work.settle(renew=((grant.token, 0, 1),))
    work.now += WORKER_IDLE_US
    work.lease()
    assert list(work.queue.workers) == []
    work.now += S
    work.lease(ann=1)
    work.now += WORKER_IDLE_US - 1
    work.lease()
    assert list(work.queue.workers) == ["ann"]


# Time.


def test_leader_with_a_wrong_clock_ends_no_leases() -> None:
    """WRK-5: a disputed timestamp does not move any deadline."""
    work = Work(messages=1, limits=LIMITS)
    work.tick(work.now)
    (grant,) = work.lease(ann=1)
    work.now += 365 * 24 * 3600 * S
    assert work.lease(bob=1) == ()
    work.now -= 365 * 24 * 3600 * S
    assert work.lease(bob=1) == ()
    assert work.settle(accept=((grant.token, 0, 1),)) == Settled(1)


@pytest.mark.parametrize("jump", [10 * 24 * 3600 * S, -24 * 3600 * S])
def test_clock_correction_moves_the_lease_deadlines(jump: int) -> None:
    """WRK-5: once the clock is corrected, each lease has as much time left as before."""
    work = Work(Shared(lease_us=10 * 3600 * S), 2, LIMITS, 30 * 24 * 3600 * S)
    (grant,) = work.lease(ann=2)
    work.settle(release=((grant.token, 1, 1, 20 * 3600 * S, ""),))
    clock = work.machine.registry.clock
    before = clock.trusted
    work.now += jump
    for _ in range(100):
        work.tick(work.now + 60 * S)
        if not clock.dispute:
            break
    passed = clock.trusted - before - jump
    assert not clock.dispute
    assert 0 < passed < 3 * 3600 * S
    leased, waiting = work.queue.messages()
    step = 60 * S  # no time passes at the first disputed timestamp
    assert abs(leased.time - clock.trusted - (10 * 3600 * S - passed)) <= step
    assert abs(waiting.time - clock.trusted - (20 * 3600 * S - passed)) <= step


# Snapshots and moves.


def test_leases_survive_a_snapshot() -> None:
    """WRK-1"""
    work = Work(messages=6)
    (grant,) = work.lease(ann=5)
    verbs: dict[str, Any] = {
        "accept": ((grant.token, 1, 1),),
        "reject": ((grant.token, 2, 1, "bad"),),
    }
    work.settle(release=((grant.token, 3, 1, S, ""),), renew=((grant.token, 4, 1),), **verbs)
    copy = Machine.restore(list(work.machine.state()))
    assert b"".join(copy.state()) == b"".join(work.machine.state())
    work.machine = copy
    assert list(copy.registry.sharing) == ["t"]
    assert dead(work) == {2: Death(REJECTED, "bad")}
    assert list(work.queue.held("ann")) == [(grant.token, [0, 4])]
    assert work.settle(accept=((grant.token, 0, 1), (grant.token, 4, 1))) == Settled(2)
    work.now += S
    assert [each.runs for each in work.lease(bob=9)] == [((3, 1), (5, 1))]


def test_snapshot_of_an_open_lease_is_small() -> None:
    work = Work(Shared(in_flight_max=10_000), messages=10_000)
    empty = sum(map(len, work.machine.state()))
    work.lease(ann=10_000)
    assert sum(map(len, work.machine.state())) < empty + 200


def test_snapshot_without_shared_subscriptions_keeps_its_old_format() -> None:
    """Members at level 1 can read such a snapshot."""
    steps = Steps()
    steps.subscribe()
    assert b"Shared" not in b"".join(steps.machine.state())


def test_topic_moves_with_its_leases_and_dead_letters() -> None:
    """WRK-1: a token stays valid, and each lease has as much time left as before."""
    move = Move()
    for group in (move.exporter, move.importer):
        group.apply(do.SetLimits(Limits(), 2))
    exporter, importer = move.exporter, move.importer
    subscribe = do.SubscribeShared("t", "w", do.FromOffset(3), exporter.now, SETTINGS)
    exporter.apply(subscribe)
    leased = exporter.apply(do.Lease("t", "w", exporter.now, (("ann", 3),)))
    assert isinstance(leased, Leased)
    token = leased.grants[0].token
    settle = Settle("t", "w", "ann", 1, (), (), ((token, 4, 1, "bad"),))
    exporter.apply(do.Settles((settle,), exporter.now))
    importer.tick(exporter.now + 77)
    move.whole()
    queue = importer.machine.registry.topics["t"].subscriptions["w"].queue
    assert queue is not None
    assert list(queue.held("ann")) == [(token, [3, 5])]
    assert getattr(queue.open[3], "until") == importer.now + SETTINGS.lease_us  # noqa: B009
    late = exporter.apply(do.Settles((Settle("t", "w", "ann", 2),), exporter.now))
    assert late == SettlesDone((errors.NotHere("t"),))
    put = do.Put("{t}.dead.w", "p", 0, 0, 1, 10, 0, b"")
    assert importer.apply(do.Bury("t", "w", (4,), importer.now, put)) == Buried(True, 0)
    again = importer.apply(do.Lease("t", "w", importer.now, (("bob", 1),)))
    assert isinstance(again, Leased)
    assert again.grants[0].token > token
    assert list(exporter.machine.registry.sharing) == []
    assert list(importer.machine.registry.sharing) == ["t"]


def test_dead_letter_topic_on_a_ring_needs_the_tag_of_the_subscribed_topic() -> None:
    steps = Steps()
    steps.apply(do.SetLimits(Limits(), 2))
    steps.apply(moves.Found("g", True))
    settings = replace(SETTINGS, dead_letters="failed")
    refused = steps.apply(do.SubscribeShared("t", "s", do.FromNew(), 0, settings))
    assert isinstance(refused, errors.InvalidArgument)
    tagged = replace(SETTINGS, dead_letters="failed {t}")
    assert isinstance(
        steps.apply(do.SubscribeShared("t", "s", do.FromNew(), 0, tagged)), Subscribed
    )


def test_tag_determines_the_ring_position_of_a_topic() -> None:
    assert [tag_of(each) for each in ("a", "a{b}c", "{a}", "a{}b{c}", "a{b", "a}b{c}")] == [
        *("a", "b", "a", "a{}b{c}", "a{b", "c")
    ]
    assert key_of_topic("{t}.dead.s") == key_of_topic("t") == key_of("t")
    assert dead_letter_topic("t", "s") == "{t}.dead.s"
    assert dead_letter_topic("a{b}", "s") == "a{b}.dead.s"


@pytest.mark.parametrize("level", [1, 2])
def test_tags_are_ignored_below_their_feature_level(level: int) -> None:
    """A group at level 1 has members that do not know tags."""
    steps = Steps()
    steps.apply(do.SetLimits(Limits(), level))
    steps.apply(moves.Found("g", True))
    holdings = steps.machine.registry.holdings
    assert holdings is not None
    assert holdings.key_of("a{b}") == (key_of("a{b}") if level == 1 else key_of("b"))


# Comparison with the model.


@pytest.mark.parametrize("seed", seeds(20, 1000))
def test_machine_agrees_with_the_model(seed: int) -> None:
    """WRK-1 WRK-2 WRK-3 WRK-4"""
    shared_run(seed)


def test_model_blocks_a_key() -> None:
    pair = SharedPair(Shared(by_key=True))
    pair.put([1, 1, 2])
    pair.lease({"ann": 5})
    assert pair.model.held("ann") == [0, 2]
