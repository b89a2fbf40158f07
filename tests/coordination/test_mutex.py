"""Test LeaseMutex: a lease ends first for its holder, and tokens only increase."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from oncecast.coordination.protocols.events import (
    Acquire,
    Acquired,
    Decide,
    Lapsed,
    Release,
    Renewed,
    Settled,
    ViewChanged,
)
from oncecast.coordination.protocols.fence import Fence
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.mutex import (
    Ending,
    Freed,
    LeaseMutex,
    Query,
    Renewal,
    Vacant,
    stated_lease,
)
from oncecast.coordination.protocols.synod import Synod
from oncecast.coordination.protocols.synod_messages import NUMBER_MAX
from oncecast.errors import Stale
from oncecast.kernel.protocol import Ask, Cancel, Effect, Emit, Later, NodeId, Send
from oncecast.kernel.stack import Stack
from oncecast.simulator.simulated import Build, Simulation

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
SERIES = "lock/door"
LOCK, LEASE = "the lock", 0.8


def mutex() -> LeaseMutex:
    made = LeaseMutex(A, Random(0), lease=10.0, drift=0.2)
    made.observe(ViewChanged((A, B, C)))
    made.now = 100.0
    return made


def holding() -> LeaseMutex:
    made = mutex()
    made.request(Acquire("door"))
    made.observe(Settled(SERIES, 1, made.identity))
    made.drain()
    return made


def ended(token: int) -> list[Effect]:
    """Return the effects when a lease ends for its holder."""
    return [Cancel(Ending("door")), Cancel(Renewal("door")), Emit(Lapsed("door", token))]


def freed(token: int) -> list[Effect]:
    return [Send(node, Freed("door", token)) for node in (B, C)]


def queries(token: int) -> list[Send]:
    return [Send(node, Query("door", token)) for node in (B, C)]


def asks(effects: list[Effect]) -> list[object]:
    return [effect.request for effect in effects if isinstance(effect, Ask)]


def test_free_lock_is_requested_at_once_and_held_when_its_token_is_settled() -> None:
    """DDS-4"""
    made = mutex()
    made.request(Acquire("door"))
    assert made.drain() == [Ask(Decide(SERIES, 1, made.identity))]
    made.now = 101.0
    made.observe(Settled(SERIES, 1, made.identity))
    assert made.drain() == [
        Emit(Acquired("door", 1)),
        Later(9.0, Ending("door")),  # the lease counts from the request
        Later(4.5, Renewal("door")),
    ]


@pytest.mark.parametrize("lease", [2.5, 10.0, 100.0])
def test_waiting_process_allows_for_clock_drift_in_the_holder_lease(lease: float) -> None:
    """DDS-4: the process waits for the holder's lease, not its own, plus the drift of both
    clocks."""
    holder = LeaseMutex(B, Random(1), lease=lease, drift=0.5)
    made = mutex()
    made.observe(Settled(SERIES, 1, holder.identity))
    made.request(Acquire("door"))
    longest = lease / (1 - 0.5) * (1 + 0.2)
    assert made.drain() == [Later(longest, Vacant("door")), *queries(1)]
    made.now = 100.0 + longest + 0.01
    made.timeout(Vacant("door"))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.identity)]


def test_lock_is_vacant_after_the_holder_lease_and_grace_period() -> None:
    """DDS-4: work under the lock needs time to stop."""
    holder = LeaseMutex(B, Random(1), lease=10.0, grace=5.0, drift=0.0)
    made = LeaseMutex(A, Random(0), drift=0.0)
    made.observe(Settled(SERIES, 1, holder.identity))
    assert made.locks["door"].vacant_at == 15.0
    holder.request(Acquire("door"))
    holder.observe(Settled(SERIES, 1, holder.identity))
    assert Later(10.0, Ending("door")) in holder.drain()


def test_stated_lease_may_be_shorter_than_a_second() -> None:
    assert stated_lease("b~0123456789ab 0.5", 10.0) == 0.5


@pytest.mark.parametrize(
    "holder", ["b", "b~0123456789ab", "late 7~0123456789ab", "b inf", "b 0", "b -0.5"]
)
def test_holder_without_a_stated_lease_is_assumed_to_have_our_own_lease(holder: str) -> None:
    """DDS-4: earlier versions stored only the name, and all leases were the same."""
    made = mutex()
    made.observe(Settled(SERIES, 1, holder))
    assert made.locks["door"].vacant_at == pytest.approx(100.0 + 10.0 / 0.8 * 1.2)


def test_waiting_process_sends_one_query_for_each_token() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.observe(Settled(SERIES, 5, "b"))
    made.request(Acquire("door"))
    assert [each for each in made.drain() if isinstance(each, Send)] == queries(5)
    made.observe(Settled(SERIES, 6, "b"))
    assert [each for each in made.drain() if isinstance(each, Send)] == queries(6)


def test_late_joiner_learns_of_a_release_from_any_member() -> None:
    """DDS-4: otherwise it would wait for a lease that was released."""
    there, holder = mutex(), holding()
    holder.request(Release("door"))
    there.receive(B, Freed("door", 3))
    there.observe(Settled(SERIES, 4, "b"))
    there.drain()
    holder.drain()
    for made, token, answers in (
        (there, 3, [Send(C, Freed("door", 3))]),
        (there, 4, []),
        (holder, 1, [Send(C, Freed("door", 1))]),
        (mutex(), 1, []),
    ):
        made.receive(C, Query("door", token))
        assert made.drain() == answers


def test_lease_defaults_to_ten_seconds_and_drift_to_one_percent() -> None:
    made = LeaseMutex(A, Random(0))
    assert made.identity.split()[-1] == repr(10.0 / 0.99)


def test_waiting_or_holding_process_does_not_ask_for_a_second_token() -> None:
    made = mutex()
    for _ in range(2):
        made.request(Acquire("door"))
    assert made.drain() == [Ask(Decide(SERIES, 1, made.identity))]
    made.observe(Settled(SERIES, 1, made.identity))
    made.drain()
    made.request(Acquire("door"))
    assert made.drain() == []


@pytest.mark.parametrize("token", [0, NUMBER_MAX])
@pytest.mark.parametrize("message", [Freed, Query])
def test_invalid_token_is_dropped_and_counted(message: type[Freed | Query], token: int) -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    for possible in (1, NUMBER_MAX - 1):
        made.receive(B, message("door", possible))
    assert made.dropped == 0
    lock = {name: getattr(made.locks["door"], name) for name in made.locks["door"].__slots__}
    made.drain()
    made.receive(B, message("door", token))
    assert (made.drain(), made.dropped) == ([], 1)
    assert lock == {name: getattr(made.locks["door"], name) for name in lock}


def test_releasing_an_older_token_changes_nothing() -> None:
    made = mutex()
    made.observe(Settled(SERIES, 5, "b"))
    made.request(Acquire("door"))
    made.drain()
    made.receive(B, Freed("door", 4))
    assert made.drain() == []
    assert (made.locks["door"].token, made.locks["door"].vacant_at) == (5, 115.0)


def test_other_processes_cannot_release_a_held_token() -> None:
    made = holding()
    made.receive(B, Freed("door", 1))
    assert made.drain() == []
    made.receive(B, Query("door", 1))
    assert made.drain() == []


def test_holder_lapses_when_it_learns_that_a_later_token_was_released() -> None:
    made = holding()
    made.receive(B, Freed("door", 2))
    assert made.drain() == ended(1)


def test_process_asks_for_the_next_token_if_a_rival_won_and_released_one() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    made.receive(B, Freed("door", 1))
    asked = [Ask(Decide(SERIES, 2, made.identity))]
    assert made.drain() == asked
    made.receive(B, Freed("door", 1))  # a duplicate: token 2 is already requested
    assert made.drain() == []


def test_token_settled_twice_does_not_extend_a_lease() -> None:
    made = mutex()
    made.observe(Settled(SERIES, 2, "b"))
    made.request(Acquire("door"))
    made.drain()
    made.now = 107.0
    for token in (1, 2):
        made.observe(Settled(SERIES, token, "b"))
    assert made.drain() == []
    assert (made.locks["door"].token, made.locks["door"].vacant_at) == (2, 115.0)


def test_process_does_not_hold_an_unrequested_token() -> None:
    """DDS-4: the start of its lease is unknown."""
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    made.observe(Settled(SERIES, 5, made.identity))
    assert made.drain() == [*freed(5), Ask(Decide(SERIES, 6, made.identity))]


def test_waiting_process_asks_for_a_released_lock_at_once() -> None:
    made = mutex()
    made.observe(Settled(SERIES, 1, "b"))
    made.request(Acquire("door"))
    made.drain()
    made.receive(B, Freed("door", 1))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.identity)]


def test_process_that_loses_a_token_waits_for_the_winning_lease() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    made.observe(Settled(SERIES, 1, "b"))
    assert made.drain() == [Later(15.0, Vacant("door")), *queries(1)]


def test_holder_renews_with_the_next_token() -> None:
    made = holding()
    made.now = 105.0
    made.timeout(Renewal("door"))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.identity)]
    made.observe(Settled(SERIES, 2, made.identity))
    assert made.drain() == [
        Emit(Renewed("door", 2)),
        Later(10.0, Ending("door")),
        Later(5.0, Renewal("door")),
    ]


def test_release_is_sent_to_all_other_members() -> None:
    made = holding()
    made.request(Release("door"))
    assert made.drain() == [
        Cancel(Ending("door")),
        Cancel(Renewal("door")),
        Send(B, Freed("door", 1)),
        Send(C, Freed("door", 1)),
    ]


def test_holder_lapses_when_its_lease_ends() -> None:
    made = holding()
    made.now = 110.0
    made.timeout(Ending("door"))
    assert made.drain() == ended(1)
    assert not made.locks["door"].held
    made.request(Acquire("door"))
    assert made.drain() == [Ask(Decide(SERIES, 2, made.identity))]


def test_holder_lapses_when_it_learns_of_a_later_token() -> None:
    made = holding()
    made.observe(Settled(SERIES, 2, "b"))
    assert made.drain() == ended(1)  # it does not wait for the lock again


def test_token_that_arrives_after_the_release_is_freed() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.request(Release("door"))
    made.drain()
    made.observe(Settled(SERIES, 1, made.identity))
    assert made.drain() == [Send(B, Freed("door", 1)), Send(C, Freed("door", 1))]


@pytest.mark.parametrize(("late", "held"), [(0.49, True), (0.5, False), (1.0, False)])
def test_token_that_arrives_after_half_its_lease_is_freed_and_requested_again(
    late: float, held: bool
) -> None:
    """DDS-4: too little time is left to renew the lease."""
    made = LeaseMutex(A, Random(0), lease=1.0)
    made.observe(ViewChanged((A, B, C)))
    made.request(Acquire("door"))
    made.drain()
    made.now = late
    made.observe(Settled(SERIES, 1, made.identity))
    if held:
        assert made.drain()[0] == Emit(Acquired("door", 1))
    else:
        assert made.drain() == [*freed(1), Ask(Decide(SERIES, 2, made.identity))]


@pytest.mark.parametrize(("late", "renewed"), [(5.0, True), (9.9, True), (10.0, False)])
def test_holder_may_renew_until_the_end_of_the_next_lease(late: float, renewed: bool) -> None:
    made = holding()
    made.timeout(Renewal("door"))
    made.drain()
    made.now = 100.0 + late
    made.observe(Settled(SERIES, 2, made.identity))
    assert (Emit(Renewed("door", 2)) in made.drain()) == renewed


@pytest.mark.parametrize(("now", "effects"), [(114.9, []), (115.0, freed(2))])
def test_late_token_is_freed_when_the_grace_period_of_its_former_holder_ends(
    now: float, effects: list[Effect]
) -> None:
    """DDS-4: work under the lock may still be stopping."""
    made = LeaseMutex(A, Random(0), lease=10.0, grace=5.0, drift=0.0)
    made.observe(ViewChanged((A, B, C)))
    made.now = 100.0
    made.request(Acquire("door"))
    made.observe(Settled(SERIES, 1, made.identity))
    made.now = 109.0
    made.timeout(Renewal("door"))
    made.now = 110.0
    made.timeout(Ending("door"))
    made.drain()
    made.now = now
    made.observe(Settled(SERIES, 2, made.identity))
    assert made.drain() == effects


def test_restarted_process_does_not_hold_its_earlier_locks() -> None:
    before, after = (LeaseMutex(A, Random(seed)) for seed in range(2))
    after.request(Acquire("door"))
    after.observe(Settled(SERIES, 1, before.identity))
    assert not after.locks["door"].held


def test_fence_rejects_a_token_after_a_later_token() -> None:
    """DDS-4"""
    fence = Fence()
    assert fence.highest == 0
    for token in (1, 1, 3):
        fence.admit(token)
    with pytest.raises(
        Stale, match="token 2 is stale: token 3 has already been used; acquire the lock again"
    ):
        fence.admit(2)


class LockGroup:
    """Three simulated nodes with a lock, and a lease for each."""

    def __init__(self, leases: Sequence[float] = (LEASE,) * 3) -> None:
        self.sim = Simulation(1, listener=self.hear)
        self.names = [NodeId(f"n{index}") for index in range(3)]
        self.heard: list[tuple[NodeId, object]] = []
        for name, lease in zip(self.names, leases, strict=True):
            self.sim.add(name, self.build(lease), durable=True)
        self.sim.run(until=1.0)

    def build(self, lease: float) -> Build:
        def made(me: NodeId, rng: Random) -> Stack:
            return Stack(
                [
                    Group(me, rng, peers=self.names, heartbeat=0.3, suspect_after=0.8),
                    Synod(me, rng, acceptors=self.names, resend=0.2),
                    LeaseMutex(me, rng, lease=lease),
                ]
            )

        return made

    def hear(self, node: NodeId, event: object) -> None:
        self.heard.append((node, event))

    def run(self, seconds: float) -> None:
        self.sim.run(until=self.sim.now + seconds)


@pytest.mark.parametrize("holder", range(3))
def test_lock_passes_to_another_process_after_its_holder_crashes(holder: int) -> None:
    """DDS-4: this holds even if the holder is also the leader."""
    group = LockGroup()
    first, second = group.names[holder], group.names[holder - 1]
    group.sim.ask(first, Acquire(LOCK))
    group.run(0.5)
    group.sim.ask(second, Acquire(LOCK))
    group.sim.crash(first)
    group.run(5.0)
    entries = [(node, event.token) for node, event in group.heard if isinstance(event, Acquired)]
    (one, token), (other, next_token) = entries
    assert (one, other) == (first, second)
    assert token < next_token


@pytest.mark.parametrize("cut_off", [False, True])
def test_process_with_a_short_lease_waits_for_a_holder_with_a_long_lease(
    cut_off: bool,
) -> None:
    """DDS-4: the process does not get the lock while the holder renews, or before the lease
    ends."""
    group = LockGroup(leases=(10.0, 1.0, 1.0))
    holder, other, _ = group.names
    group.sim.ask(holder, Acquire(LOCK))
    group.run(0.5)
    group.sim.ask(other, Acquire(LOCK))
    group.run(0.5)
    if cut_off:
        group.sim.isolate(holder)
    group.run(8.0)
    assert not [event for node, event in group.heard if node == other]
    group.run(20.0)
    entered = [event for node, event in group.heard if node == other]
    lapsed = [event for node, event in group.heard if isinstance(event, Lapsed)]
    assert bool(entered) == bool(lapsed) == cut_off


def test_paused_holder_lapses_and_its_token_is_rejected() -> None:
    """DDS-4"""
    group = LockGroup()
    late, other, _ = group.names
    fence = Fence()
    group.sim.ask(late, Acquire(LOCK))
    group.run(LEASE / 4)
    group.sim.pause(late)
    group.sim.ask(other, Acquire(LOCK))
    group.run(5.0)
    tokens = {node: event.token for node, event in group.heard if isinstance(event, Acquired)}
    assert tokens[late] < tokens[other]
    fence.admit(tokens[other])
    with pytest.raises(Stale):
        fence.admit(tokens[late])
    group.sim.resume(late)
    group.run(0.1)
    assert (late, Lapsed(LOCK, tokens[late])) in group.heard
