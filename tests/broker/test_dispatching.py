"""A node gives messages of a shared subscription to the workers that want them (WRK)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker import letters
from oncecast.broker.dispatching import GRACE
from oncecast.broker.letters import hashed, narrowed
from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.frames import Call, Chunk, Jobs, Look, View, Work, WorkEnded
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


class Shop(Desk):
    """A node with a shared subscription of the topic `topic`."""

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


def test_worker_gets_messages_that_are_there_and_that_arrive() -> None:
    """WRK-1"""
    shop = Shop()
    shop.fill(b"a", b"b")
    assert offsets(shop.work()) == [0, 1]
    shop.fill(b"c")
    assert offsets(shop.took(ANN)) == [2]


def test_worker_gets_more_only_when_it_settles() -> None:
    shop = Shop()
    shop.fill(b"a", b"b", b"c")
    jobs = shop.work(window=2)
    assert offsets(jobs) == [0, 1]
    assert shop.settle(accept=((token(jobs), 0, 1),)) == Settled(1)
    assert offsets(shop.took(ANN)) == [2]


def test_jobs_have_token_deliveries_and_lease() -> None:
    """WRK-3"""
    shop = Shop()
    shop.fill(b"a")
    (jobs,) = shop.work()
    assert isinstance(jobs, Jobs)
    assert (jobs.previous, jobs.part, jobs.last, jobs.deliveries) == (0, 0, True, (1,))
    assert jobs.lease_us == SETTINGS.lease_us
    assert batch.values(jobs.chunks[0].batch) == [b"a"]


def test_two_workers_share_the_messages() -> None:
    shop = Shop()
    shop.work(ANN)
    shop.work(CAT)
    shop.fill(b"a", b"b", b"c", b"d")
    assert (offsets(shop.took(ANN)), offsets(shop.took(CAT))) == ([0, 1], [2, 3])


def test_expired_lease_goes_to_another_worker_without_a_new_request() -> None:
    """WRK-1: a timer of the leader ends leases."""
    shop = Shop()
    shop.fill(b"a")
    old = token(shop.work(ANN))
    shop.work(CAT)
    shop.pass_time(10.0)
    assert shop.took(CAT) == []
    shop.pass_time(1.1)
    again = shop.took(CAT) or shop.took(ANN)
    assert offsets(again) == [0]
    assert isinstance(again[0], Jobs)
    assert again[0].token > old
    assert again[0].deliveries == (2,)
    assert shop.settle(ANN, accept=((old, 0, 1),)) == Settled(0, ((old, 0, 1),))


def test_disconnected_worker_loses_its_messages_after_a_while() -> None:
    """WRK-1"""
    shop = Shop()
    shop.fill(b"a")
    shop.work(ANN)
    shop.work(CAT)
    shop.leave(ANN)
    shop.pass_time(GRACE)
    assert shop.took(CAT) == []
    shop.pass_time(1.1)  # the backoff
    assert offsets(shop.took(CAT)) == [0]


def test_worker_that_reconnects_in_time_keeps_its_messages() -> None:
    shop = Shop()
    shop.fill(b"a")
    seen = token(shop.work(ANN))
    shop.work(CAT)
    shop.leave(ANN)
    assert shop.work(ANN, seen=seen) == []
    shop.pass_time(GRACE)
    shop.pass_time(2.0)
    assert shop.took(CAT) == []
    assert shop.settle(ANN, accept=((seen, 0, 1),)) == Settled(1)


def test_lost_jobs_are_sent_again() -> None:
    shop = Shop()
    shop.fill(b"a")
    first = shop.work()
    shop.fill(b"b")
    second = shop.took(ANN)
    assert isinstance(second[0], Jobs)
    assert second[0].previous == token(first)
    assert offsets(shop.work(seen=token(first))) == [1]
    assert offsets(shop.work(seen=0)) == [0, 1]
    assert shop.work(seen=token(second)) == []


def test_leases_and_workers_survive_a_restart_of_the_node() -> None:
    """WRK-1: leases are in the log."""
    shop = Shop()
    shop.fill(b"a", b"b")
    jobs = shop.work(window=1)
    shop.restart()
    shop.work(CAT, window=1)
    assert offsets(shop.took(CAT)) == []
    assert shop.work(ANN, window=1, seen=token(jobs)) == []
    assert shop.settle(accept=((token(jobs), 0, 1),)) == Settled(1)


def test_leaving_worker_gives_back_its_messages_at_once() -> None:
    """WRK-6"""
    shop = Shop()
    shop.fill(b"a")
    jobs = shop.work(ANN)
    shop.work(CAT)
    assert shop.settle(unused=((token(jobs), 0, 1),), leave=True) == Settled(0)
    assert offsets(shop.took(CAT)) == [0]
    shop.fill(b"b", b"c")
    assert shop.took(ANN) == []


# Dead letters.


def test_dead_letter_has_the_message_and_says_why() -> None:
    """WRK-2"""
    shop = Shop()
    data = batch.encode([b"value"], timestamps=7, keys=[b"key"], headers=[{"own": b"x"}])
    shop.call(BOB, do.Put("topic", "p", shop.epoch, 0, 1, len(data), 0, data))
    jobs = shop.work()
    shop.settle(release=((token(jobs), 0, 1, 0, "first"),))
    shop.settle(release=((token(shop.took(ANN)), 0, 1, 0, "ValueError: bad"),))
    name = "{topic}.dead.sub"
    assert shop.service.machine.bounds(name) == (0, 1)
    (extent,) = shop.service.machine.fetch(name, 0, 9, 9)
    stored = shop.service.stored_batch(extent.slot)
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
    assert shop.service.machine.bounds("topic") == (1, 1)


def test_dead_letters_of_many_batches_are_buried() -> None:
    shop = Shop()
    for _ in range(3):
        shop.fill(b"a", b"b")
    jobs = shop.work()
    runs = tuple((each.token, 0, 6, "no") for each in jobs if isinstance(each, Jobs))
    shop.settle(reject=runs)
    assert shop.service.machine.bounds("{topic}.dead.sub") == (0, 6)


def test_refused_burial_is_tried_again() -> None:
    shop = Shop()
    shop.call(BOB, do.DeleteTopic("{topic}.dead.sub", 0))
    limits = shop.service.machine.registry.limits
    shop.service.machine.registry.limits = type(limits)(topics_max=1)
    shop.fill(b"a")
    shop.settle(reject=((token(shop.work()), 0, 1, ""),))
    assert shop.service.machine.bounds("{topic}.dead.sub") == (0, 0)
    shop.service.machine.registry.limits = limits
    for _ in range(70):
        shop.pass_time(1.0)
    assert shop.service.machine.bounds("{topic}.dead.sub") == (0, 1)


# Order by key.


def test_key_is_in_the_hands_of_one_worker() -> None:
    """WRK-4"""
    shop = Shop(Shared(by_key=True))
    shop.work(ANN)
    shop.work(CAT)
    shop.fill_keys(b"k", b"k", None, b"l")
    jobs = {ANN: shop.took(ANN), CAT: shop.took(CAT)}
    assert sorted(offsets(jobs[ANN]) + offsets(jobs[CAT])) == [0, 2, 3]
    owner = ANN if 0 in offsets(jobs[ANN]) else CAT
    shop.settle(owner, accept=((token(jobs[owner]), 0, 1),))
    assert offsets(shop.took(ANN) + shop.took(CAT)) == [1]


def test_leader_waits_for_a_batch_that_it_fetches_instead_of_leasing_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WRK-4: a lease without keys would grant nothing, and the next one would follow at once."""
    shop = Shop(Shared(by_key=True))
    shop.work(ANN)
    read, leases = letters.keys_from, 0

    def unreadable(*_: Any) -> list[int]:
        nonlocal leases
        leases += 1
        assert leases < 10, "the leader proposes leases in a loop"
        return []

    monkeypatch.setattr(letters, "keys_from", unreadable)
    shop.fill_keys(b"k")
    assert shop.took(ANN) == []
    monkeypatch.setattr(letters, "keys_from", read)
    shop.fill_keys(b"l")
    assert offsets(shop.took(ANN)) == [0, 1]


def test_messages_without_a_key_have_no_hash() -> None:
    assert hashed(None) == 0
    assert hashed(b"") != 0
    assert hashed(b"a") != hashed(b"b")


# Refusals.


def test_work_on_something_else_is_refused() -> None:
    shop = Shop()
    shop.call(BOB, do.Subscribe("topic", "plain", do.FromNew(), 0))
    refusals: list[tuple[tuple[str, str], errors.AnyRefusal]] = [
        (("other", "sub"), errors.NoSuchTopic("other")),
        (("topic", "other"), errors.NotSubscribed("topic", "other")),
        (("topic", "plain"), errors.WrongKind("topic", "plain", "exclusive")),
    ]
    for where, why in refusals:
        assert shop.send(ANN, Work(*where, "w", 1)) == [WorkEnded(*where, "w", why)]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (Work("t" * 300, "s", "w", 1), errors.InvalidTopic()),
        (Work("topic", "s" * 300, "w", 1), errors.InvalidName("subscription")),
        (Work("topic", "sub", "", 1), errors.InvalidName("worker")),
    ],
)
def test_bad_names_are_refused(work: Work, why: errors.InvalidTopic | errors.InvalidName) -> None:
    assert Shop().send(ANN, work) == [WorkEnded("", "", "", why)]


def test_bad_window_is_refused() -> None:
    shop = Shop()
    for window in (-1, 10_001):
        (ended,) = shop.send(ANN, Work("topic", "sub", "w", window))
        assert isinstance(ended, WorkEnded)
        assert isinstance(ended.why, errors.InvalidArgument)


def test_bad_settlement_is_refused_before_it_is_replicated() -> None:
    shop = Shop()
    slot = shop.service.machine.registry.last_slot
    refused = shop.settle(release=((1, 0, 1, -5, ""),))
    assert isinstance(refused, errors.InvalidArgument)
    assert shop.service.machine.registry.last_slot == slot


def test_workers_are_told_when_the_subscription_is_removed() -> None:
    shop = Shop()
    shop.work(ANN)
    shop.call(BOB, do.Unsubscribe("topic", "sub", 0))
    assert shop.took(ANN) == [
        WorkEnded("topic", "sub", f"of {ANN}", errors.NotSubscribed("topic", "sub"))
    ]


def test_group_at_level_1_refuses_shared_subscriptions() -> None:
    desk = Desk(service={"level": 1})
    shared = do.SubscribeShared("topic", "sub", do.FromNew(), 0)
    assert desk.call(ANN, shared) == errors.LevelTooLow(2, 1)
    assert desk.call(ANN, Settle("topic", "sub", "w", 1)) == errors.LevelTooLow(2, 1)


# Gathering and views.


def test_settlements_that_arrive_together_share_a_slot() -> None:
    shop = Shop()
    shop.fill(b"a", b"b", b"c")
    jobs = shop.work()
    slot = shop.service.machine.registry.last_slot
    shop.waiting = True
    for number in range(3):
        settle = Settle("topic", "sub", f"of {ANN}", number + 1, ((token(jobs), number, 1),))
        shop.send(ANN, Call(number + 1, settle))
    shop.sync()
    results = [getattr(each, "result", None) for each in shop.took(ANN)]
    assert results == [Settled(1), Settled(2), Settled(3)]
    assert shop.service.machine.registry.last_slot == slot + 2


def test_view_shows_a_shared_subscription() -> None:
    shop = Shop()
    shop.fill(b"a", b"b", b"c")
    jobs = shop.work(window=2)
    shop.settle(release=((token(jobs), 0, 1, 5 * S, ""),))
    (view,) = [each for each in shop.send(BOB, Look(1, "topic")) if isinstance(each, View)]
    shared = view.topics[0].subscriptions[0].shared
    assert shared is not None
    assert (shared.settings, shared.dead_letters) == (SETTINGS, "{topic}.dead.sub")
    assert (shared.workers, shared.leased, shared.waiting, shared.dead) == (1, 2, 1, 0)


def test_few_messages_of_a_large_batch_are_sent_alone() -> None:
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
    shop = Shop()
    shop.dispatcher._window_bytes = 1000
    shop.fill(*[b"x" * 400] * 10)
    jobs = shop.work(window=10)
    held = offsets(jobs)
    assert 1 <= len(held) < 10
    shop.settle(accept=((token(jobs), held[0], len(held)),))
    assert offsets(shop.took(ANN))
