"""A node leases messages from a shared subscription to the workers that request them (WRK)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import letters
from oncecast.broker.dispatching import GRACE
from oncecast.broker.letters import hashed, narrowed
from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.frames import OPEN_SHOWN, Call, Chunk, Jobs, Look, View, Work, WorkEnded
from oncecast.wire.results import Settled, Subscribed
from oncecast.wire.sharing import (
    DEAD_DELIVERIES,
    DEAD_DETAIL,
    DEAD_OFFSET,
    DEAD_REASON,
    DEAD_SUBSCRIPTION,
    DEAD_TOPIC,
    Settle,
    Shared,
)
from tests.broker.desk import ANN, BOB, Desk, producing, put

S = 1_000_000
CAT = NodeId("client/cat")
SETTINGS = Shared(lease_us=10 * S, deliveries_max=2, backoff_min_us=S, backoff_max_us=S)


class SharedNode(Desk):
    """A node with a shared subscription to the topic `topic`."""

    def __init__(self, settings: Shared = SETTINGS) -> None:
        super().__init__()
        shared = do.SubscribeShared("topic", "sub", do.FromNew(), 0, settings)
        assert isinstance(self.call(BOB, shared), Subscribed)
        self.epoch = producing(self)
        self.sequence = 0
        self.numbers: dict[str, int] = {}

    def fill(self, *values: bytes) -> None:
        self.call(BOB, put(self.epoch, self.sequence, *values))
        self.sequence += len(values)

    def fill_keys(self, *keys: bytes | None) -> None:
        data = batch.encode([b"v"] * len(keys), timestamps=0, keys=keys)
        facts = (self.epoch, self.sequence, len(keys), len(data), 0, data)
        self.call(BOB, do.Put("topic", "p", *facts))
        self.sequence += len(keys)

    def work(self, client: NodeId = ANN, window: int = 10, seen: int = 0) -> list[Value]:
        return self.send(client, Work("topic", "sub", f"of {client}", window, seen))

    def settle(self, client: NodeId = ANN, **verbs: Any) -> Any:
        worker = f"of {client}"
        number = self.numbers[worker] = self.numbers.get(worker, 0) + 1
        return self.call(client, Settle("topic", "sub", worker, number, **verbs))


def offsets(messages: list[Value]) -> list[int]:
    found: list[int] = []
    for each in messages:
        assert isinstance(each, Jobs), each
        for chunk in each.chunks:
            found += range(chunk.offset, chunk.offset + chunk.count)
    return found


def token(messages: list[Value]) -> int:
    assert isinstance(messages[-1], Jobs)
    return messages[-1].token


def test_worker_gets_stored_and_new_messages() -> None:
    """WRK-1"""
    node = SharedNode()
    node.fill(b"a", b"b")
    assert offsets(node.work()) == [0, 1]
    node.fill(b"c")
    assert offsets(node.took(ANN)) == [2]


def test_worker_gets_more_messages_only_after_it_settles() -> None:
    node = SharedNode()
    node.fill(b"a", b"b", b"c")
    jobs = node.work(window=2)
    assert offsets(jobs) == [0, 1]
    assert node.settle(accept=((token(jobs), 0, 1),)) == Settled(1)
    assert offsets(node.took(ANN)) == [2]


def test_jobs_contain_the_token_delivery_counts_and_lease() -> None:
    """WRK-3"""
    node = SharedNode()
    node.fill(b"a")
    (jobs,) = node.work()
    assert isinstance(jobs, Jobs)
    assert (jobs.previous, jobs.part, jobs.last, jobs.deliveries) == (0, 0, True, (1,))
    assert jobs.lease_us == SETTINGS.lease_us
    assert batch.values(jobs.chunks[0].batch) == [b"a"]


def test_two_workers_share_the_messages() -> None:
    node = SharedNode()
    node.work(ANN)
    node.work(CAT)
    node.fill(b"a", b"b", b"c", b"d")
    assert (offsets(node.took(ANN)), offsets(node.took(CAT))) == ([0, 1], [2, 3])


def test_expired_lease_goes_to_another_worker_without_a_new_request() -> None:
    """WRK-1: a timer on the leader ends leases."""
    node = SharedNode()
    node.fill(b"a")
    old = token(node.work(ANN))
    node.work(CAT)
    node.pass_time(10.0)
    assert node.took(CAT) == []
    node.pass_time(1.1)
    again = node.took(CAT) or node.took(ANN)
    assert offsets(again) == [0]
    assert isinstance(again[0], Jobs)
    assert again[0].token > old
    assert again[0].deliveries == (2,)
    assert node.settle(ANN, accept=((old, 0, 1),)) == Settled(0, ((old, 0, 1),))


def test_disconnected_worker_loses_its_messages_after_a_while() -> None:
    """WRK-1"""
    node = SharedNode()
    node.fill(b"a")
    node.work(ANN)
    node.work(CAT)
    node.leave(ANN)
    node.pass_time(GRACE)
    assert node.took(CAT) == []
    node.pass_time(1.1)  # wait for the backoff
    assert offsets(node.took(CAT)) == [0]


def test_worker_that_disconnects_while_its_lease_is_decided_loses_it_after_a_while() -> None:
    """WRK-1"""
    node = SharedNode(Shared(lease_us=3600 * S, backoff_min_us=S))
    node.fill(b"a")
    node.waiting = True
    node.work(ANN)
    node.leave(ANN)
    node.work(CAT)  # The leader looks at its workers before the lease of the first is decided.
    node.sync()
    assert node.took(CAT) == []
    node.pass_time(GRACE)
    node.pass_time(1.1)  # the backoff
    assert offsets(node.took(CAT)) == [0]


def test_worker_that_leaves_while_its_lease_is_decided_loses_it_after_a_while() -> None:
    """WRK-6"""
    node = SharedNode(Shared(lease_us=3600 * S, backoff_min_us=S))
    node.fill(b"a")
    node.settle(release=((token(node.work()), 0, 1, S // 2, ""),))
    node.waiting = True
    node.send(ANN, Call(9, Settle("topic", "sub", f"of {ANN}", 2, leave=True)))
    node.pass_time(0.6)  # The message is leased to the worker again.
    node.sync()
    node.work(CAT)
    node.pass_time(GRACE)
    node.pass_time(2.1)  # the second backoff
    assert offsets(node.took(CAT)) == [0]


def test_worker_that_reconnects_in_time_keeps_its_messages() -> None:
    node = SharedNode()
    node.fill(b"a")
    seen = token(node.work(ANN))
    node.work(CAT)
    node.leave(ANN)
    assert node.work(ANN, seen=seen) == []
    node.pass_time(GRACE)
    node.pass_time(2.0)
    assert node.took(CAT) == []
    assert node.settle(ANN, accept=((seen, 0, 1),)) == Settled(1)


def test_lost_jobs_are_sent_again() -> None:
    node = SharedNode()
    node.fill(b"a")
    first = node.work()
    node.fill(b"b")
    second = node.took(ANN)
    assert isinstance(second[0], Jobs)
    assert second[0].previous == token(first)
    assert offsets(node.work(seen=token(first))) == [1]
    assert offsets(node.work(seen=0)) == [0, 1]
    assert node.work(seen=token(second)) == []


def test_leases_and_workers_survive_a_node_restart() -> None:
    """WRK-1: leases are in the log."""
    node = SharedNode()
    node.fill(b"a", b"b")
    jobs = node.work(window=1)
    node.restart()
    node.work(CAT, window=1)
    assert offsets(node.took(CAT)) == []
    assert node.work(ANN, window=1, seen=token(jobs)) == []
    assert node.settle(accept=((token(jobs), 0, 1),)) == Settled(1)


def test_leaving_worker_returns_its_messages_immediately() -> None:
    """WRK-6"""
    node = SharedNode()
    node.fill(b"a")
    jobs = node.work(ANN)
    node.work(CAT)
    assert node.settle(unused=((token(jobs), 0, 1),), leave=True) == Settled(0)
    assert offsets(node.took(CAT)) == [0]
    node.fill(b"b", b"c")
    assert node.took(ANN) == []


# Dead letters.


def test_dead_letter_contains_the_message_and_the_reason() -> None:
    """WRK-2"""
    node = SharedNode()
    data = batch.encode([b"value"], timestamps=7, keys=[b"key"], headers=[{"own": b"x"}])
    node.call(BOB, do.Put("topic", "p", node.epoch, 0, 1, len(data), 0, data))
    jobs = node.work()
    node.settle(release=((token(jobs), 0, 1, 0, "first"),))
    node.settle(release=((token(node.took(ANN)), 0, 1, 0, "ValueError: bad"),))
    name = "{topic}.dead.sub"
    assert node.service.machine.bounds(name) == (0, 1)
    (extent,) = node.service.machine.fetch(name, 0, 9, 9)
    stored = node.service.stored_batch(extent.slot, name)
    (letter,) = batch.messages(stored.batch, topic=name, offset=0, producer="", sequence=0)
    assert (letter.value, letter.key, letter.timestamp) == (b"value", b"key", 7)
    assert letter.headers == {
        "own": b"x",
        DEAD_REASON: b"exhausted",
        DEAD_DETAIL: b"ValueError: bad",
        DEAD_TOPIC: b"topic",
        DEAD_SUBSCRIPTION: b"sub",
        DEAD_OFFSET: b"0",
        DEAD_DELIVERIES: b"2",
    }
    assert node.service.machine.bounds("topic") == (1, 1)


def test_dead_letters_from_many_batches_are_written() -> None:
    node = SharedNode()
    for _ in range(3):
        node.fill(b"a", b"b")
    jobs = node.work()
    runs = tuple((each.token, 0, 6, "no") for each in jobs if isinstance(each, Jobs))
    node.settle(reject=runs)
    assert node.service.machine.bounds("{topic}.dead.sub") == (0, 6)


def test_refused_dead_letter_write_is_retried() -> None:
    node = SharedNode()
    node.call(BOB, do.DeleteTopic("{topic}.dead.sub", 0))
    limits = node.service.machine.registry.limits
    node.service.machine.registry.limits = type(limits)(topics_max=1)
    node.fill(b"a")
    node.settle(reject=((token(node.work()), 0, 1, ""),))
    assert node.service.machine.bounds("{topic}.dead.sub") == (0, 0)
    node.service.machine.registry.limits = limits
    node.pass_time(1.0)
    node.pass_time(1.0)
    assert node.service.machine.bounds("{topic}.dead.sub") == (0, 1)


def test_refused_dead_letter_writes_are_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt stores a copy of the dead letters in the log."""
    node = SharedNode()
    node.call(BOB, do.DeleteTopic("{topic}.dead.sub", 0))
    node.service.machine.registry.limits = type(node.service.machine.registry.limits)(topics_max=1)
    node.fill(b"a")
    attempts: list[float] = []
    bury = letters.bury

    def counted(*arguments: Any) -> do.Bury | None:
        attempts.append(node.now)
        return bury(*arguments)

    monkeypatch.setattr(letters, "bury", counted)
    node.settle(reject=((token(node.work()), 0, 1, ""),))
    for _ in range(200):
        node.pass_time(1.0)
    assert attempts == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 183.0]


# Order by key.


def test_only_one_worker_at_a_time_holds_a_key() -> None:
    """WRK-4"""
    node = SharedNode(Shared(by_key=True))
    node.work(ANN)
    node.work(CAT)
    node.fill_keys(b"k", b"k", None, b"l")
    jobs = {ANN: node.took(ANN), CAT: node.took(CAT)}
    assert sorted(offsets(jobs[ANN]) + offsets(jobs[CAT])) == [0, 2, 3]
    owner = ANN if 0 in offsets(jobs[ANN]) else CAT
    node.settle(owner, accept=((token(jobs[owner]), 0, 1),))
    assert offsets(node.took(ANN) + node.took(CAT)) == [1]


def test_leader_fetches_a_missing_batch_before_it_leases_by_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WRK-4: without the keys, every lease would be empty, and the leader would propose them in a
    loop."""
    node = SharedNode(Shared(by_key=True))
    node.work(ANN)
    read, leases = letters.keys_from, 0

    def unreadable(*_: Any) -> list[int]:
        nonlocal leases
        leases += 1
        assert leases < 10, "the leader proposes leases in a loop"
        return []

    monkeypatch.setattr(letters, "keys_from", unreadable)
    node.fill_keys(b"k")
    assert node.took(ANN) == []
    monkeypatch.setattr(letters, "keys_from", read)
    node.fill_keys(b"l")
    assert offsets(node.took(ANN)) == [0, 1]


def test_messages_without_a_key_have_no_hash() -> None:
    assert hashed(None) == 0
    assert hashed(b"") != 0
    assert hashed(b"a") != hashed(b"b")


# Refusals.


def test_worker_on_a_missing_or_exclusive_subscription_is_refused() -> None:
    node = SharedNode()
    node.call(BOB, do.Subscribe("topic", "plain", do.FromNew(), 0))
    refusals: list[tuple[tuple[str, str], errors.AnyRefusal]] = [
        (("other", "sub"), errors.NoSuchTopic("other")),
        (("topic", "other"), errors.NotSubscribed("topic", "other")),
        (("topic", "plain"), errors.WrongKind("topic", "plain", "exclusive")),
    ]
    for where, why in refusals:
        assert node.send(ANN, Work(*where, "w", 1)) == [WorkEnded(*where, "w", why)]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (Work("t" * 300, "s", "w", 1), errors.InvalidTopic()),
        (Work("topic", "s" * 300, "w", 1), errors.InvalidName("subscription")),
        (Work("topic", "sub", "", 1), errors.InvalidName("worker")),
    ],
)
def test_invalid_names_are_refused(
    work: Work, why: errors.InvalidTopic | errors.InvalidName
) -> None:
    assert SharedNode().send(ANN, work) == [WorkEnded("", "", "", why)]


def test_invalid_window_is_refused() -> None:
    node = SharedNode()
    for window in (-1, 10_001):
        (ended,) = node.send(ANN, Work("topic", "sub", "w", window))
        assert isinstance(ended, WorkEnded)
        assert isinstance(ended.why, errors.InvalidArgument)


def test_invalid_settlement_is_refused_before_it_is_replicated() -> None:
    node = SharedNode()
    slot = node.service.machine.registry.last_slot
    refused = node.settle(release=((1, 0, 1, -5, ""),))
    assert isinstance(refused, errors.InvalidArgument)
    assert node.service.machine.registry.last_slot == slot


def test_workers_are_notified_when_the_subscription_is_removed() -> None:
    node = SharedNode()
    node.work(ANN)
    node.call(BOB, do.Unsubscribe("topic", "sub", 0))
    assert node.took(ANN) == [
        WorkEnded("topic", "sub", f"of {ANN}", errors.NotSubscribed("topic", "sub"))
    ]


def test_group_at_level_1_refuses_shared_subscriptions() -> None:
    desk = Desk(service={"level": 1})
    shared = do.SubscribeShared("topic", "sub", do.FromNew(), 0)
    assert desk.call(ANN, shared) == errors.LevelTooLow(2, 1)
    assert desk.call(ANN, Settle("topic", "sub", "w", 1)) == errors.LevelTooLow(2, 1)


# Batching and views.


def test_settlements_that_arrive_together_share_a_slot() -> None:
    node = SharedNode()
    node.fill(b"a", b"b", b"c")
    jobs = node.work()
    slot = node.service.machine.registry.last_slot
    node.waiting = True
    for number in range(3):
        settle = Settle("topic", "sub", f"of {ANN}", number + 1, ((token(jobs), number, 1),))
        node.send(ANN, Call(number + 1, settle))
    node.sync()
    results = [getattr(each, "result", None) for each in node.took(ANN)]
    assert results == [Settled(1), Settled(2), Settled(3)]
    assert node.service.machine.registry.last_slot == slot + 2


def test_view_shows_a_shared_subscription() -> None:
    node = SharedNode()
    node.fill(b"a", b"b", b"c")
    jobs = node.work(window=2)
    node.settle(release=((token(jobs), 0, 1, 5 * S, ""),))
    (view,) = [each for each in node.send(BOB, Look(1, "topic")) if isinstance(each, View)]
    shared = view.topics[0].subscriptions[0].shared
    assert shared is not None
    assert (shared.settings, shared.dead_letters) == (SETTINGS, "{topic}.dead.sub")
    assert (shared.workers, shared.leased, shared.waiting, shared.dead) == (1, 2, 1, 0)


def test_view_of_one_topic_shows_the_open_offsets() -> None:
    node = SharedNode()
    node.fill(b"a", b"b", b"c", b"d")
    jobs = node.work(window=3)
    node.work(window=0, seen=token(jobs))
    node.settle(accept=((token(jobs), 1, 1),))
    (view,) = [each for each in node.send(BOB, Look(1, "topic")) if isinstance(each, View)]
    (found,) = view.topics[0].subscriptions
    assert found.shared is not None
    assert (found.cursor, found.lag, found.attached) == (0, 3, True)
    assert (found.shared.open, found.shared.fresh) == (((0, 1), (2, 1)), 3)
    assert found.shared.shows_all
    (all_,) = [each for each in node.send(BOB, Look(2)) if isinstance(each, View)]
    shared = next(each for each in all_.topics if each.name == "topic").subscriptions[0].shared
    assert shared is not None
    assert (shared.open, shared.shows_all) == ((), False)


def test_view_shows_a_limited_number_of_open_offsets() -> None:
    node = SharedNode()
    node.fill(*[b"a"] * (OPEN_SHOWN + 1))
    node.work(window=OPEN_SHOWN + 1)
    (view,) = [each for each in node.send(BOB, Look(1, "topic")) if isinstance(each, View)]
    shared = view.topics[0].subscriptions[0].shared
    assert shared is not None
    assert (shared.open, shared.shows_all) == (((0, OPEN_SHOWN),), False)


def test_few_messages_from_a_large_batch_are_sent_without_the_rest() -> None:
    values = [bytes([n]) * 100 for n in range(100)]
    whole = batch.encode(values, timestamps=list(range(100)), keys=[b"k"] * 100)
    cut = narrowed(Chunk(15, 5, 2, "p", 25, whole))
    assert (cut.offset, cut.skip, cut.count, cut.producer, cut.sequence) == (15, 0, 2, "p", 25)
    found = batch.messages(cut.batch, topic="t", offset=15, producer="p", sequence=25)
    assert [each.value for each in found] == values[5:7]
    assert [each.timestamp for each in found] == [5, 6]
    assert found[0].key == b"k"
    most = Chunk(10, 0, 90, "p", 20, whole)
    assert narrowed(most) is most


def test_worker_holds_no_more_bytes_than_its_window() -> None:
    node = SharedNode()
    node.dispatcher._window_bytes = 1000
    node.fill(*[b"x" * 400] * 10)
    jobs = node.work(window=10)
    held = offsets(jobs)
    assert 1 <= len(held) < 10
    node.settle(accept=((token(jobs), held[0], len(held)),))
    assert offsets(node.took(ANN))
