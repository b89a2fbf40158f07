"""LeaseMutex: leases that end for their holder first, and tokens that only grow."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from oncecast.kernel.protocol import Ask, Cancel, Effect, Emit, Later, NodeId, Send
from oncecast.kernel.stack import Stack
from oncecast.runtime.simulated import Build, Simulation
from oncecast.toolkit.events import (
    Acquire,
    Acquired,
    Decide,
    Lapsed,
    Release,
    Renewed,
    Settled,
    ViewChanged,
)
from oncecast.toolkit.fence import Fence, Stale
from oncecast.toolkit.group import Group
from oncecast.toolkit.mutex import Ending, Freed, LeaseMutex, Query, Renewal, Vacant
from oncecast.toolkit.synod import Synod

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
    made.observe(Settled(SERIES, 1, made.myself))
    made.drain()
    return made


def queries(token: int) -> list[Send]:
    return [Send(node, Query("door", token)) for node in (B, C)]


def asks(effects: list[Effect]) -> list[object]:
    return [effect.request for effect in effects if isinstance(effect, Ask)]


def test_free_lock_is_asked_for_at_once_and_held_when_its_token_is_settled() -> None:
    """DDS-4"""
    made = mutex()
    made.request(Acquire("door"))
    assert made.drain() == [Ask(Decide(SERIES, 1, made.myself))]
    made.now = 101.0
    made.observe(Settled(SERIES, 1, made.myself))
    assert made.drain() == [
        Emit(Acquired("door", 1)),
        Later(9.0, Ending("door")),  # since it asked, not since it was told
        Later(4.5, Renewal("door")),
    ]


@pytest.mark.parametrize("lease", [2.5, 10.0, 100.0])
def test_waiting_process_waits_for_the_holders_lease_by_the_slowest_clock(lease: float) -> None:
    """DDS-4: not for its own lease; and longer than the holder's own clock says, by both drifts."""
    holder = LeaseMutex(B, Random(1), lease=lease, drift=0.5)
    made = mutex()
    made.observe(Settled(SERIES, 1, holder.myself))
    made.request(Acquire("door"))
    patience = lease / (1 - 0.5) * (1 + 0.2)
    assert made.drain() == [Later(patience, Vacant("door")), *queries(1)]
    made.now = 100.0 + patience + 0.01
    made.timeout(Vacant("door"))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.myself)]


def test_holder_is_given_its_grace_after_its_lease() -> None:
    """DDS-4: what it has started under the lock takes a while to end."""
    holder = LeaseMutex(B, Random(1), lease=10.0, grace=5.0, drift=0.0)
    made = LeaseMutex(A, Random(0), drift=0.0)
    made.observe(Settled(SERIES, 1, holder.myself))
    assert made.locks["door"].vacant_at == 15.0
    holder.request(Acquire("door"))
    holder.observe(Settled(SERIES, 1, holder.myself))
    assert Later(10.0, Ending("door")) in holder.drain()


@pytest.mark.parametrize("holder", ["b", "b~0123456789ab", "late 7~0123456789ab", "b inf", "b -1"])
def test_holder_that_states_no_lease_is_given_our_own(holder: str) -> None:
    """DDS-4: earlier versions stored the name alone, and every process had the same lease."""
    made = mutex()
    made.observe(Settled(SERIES, 1, holder))
    assert made.locks["door"].vacant_at == pytest.approx(100.0 + 10.0 / 0.8 * 1.2)


def test_others_are_asked_once_a_token_whether_it_was_released_before() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.observe(Settled(SERIES, 5, "b"))
    made.request(Acquire("door"))
    assert [each for each in made.drain() if isinstance(each, Send)] == queries(5)
    made.observe(Settled(SERIES, 6, "b"))
    assert [each for each in made.drain() if isinstance(each, Send)] == queries(6)


def test_who_comes_after_a_release_hears_of_it_from_whoever_was_there() -> None:
    """DDS-4: it would wait for a lease that nobody has any more."""
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


def test_lock_that_is_released_is_asked_for_at_once() -> None:
    made = mutex()
    made.observe(Settled(SERIES, 1, "b"))
    made.request(Acquire("door"))
    made.drain()
    made.receive(B, Freed("door", 1))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.myself)]


def test_who_loses_a_token_waits_for_the_lease_of_the_winner() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    made.observe(Settled(SERIES, 1, "b"))
    assert made.drain() == [Later(15.0, Vacant("door")), *queries(1)]


def test_holder_renews_by_the_next_token() -> None:
    made = holding()
    made.now = 105.0
    made.timeout(Renewal("door"))
    assert asks(made.drain()) == [Decide(SERIES, 2, made.myself)]
    made.observe(Settled(SERIES, 2, made.myself))
    assert made.drain() == [
        Emit(Renewed("door", 2)),
        Later(10.0, Ending("door")),
        Later(5.0, Renewal("door")),
    ]


def test_release_is_told_to_all_others() -> None:
    made = holding()
    made.request(Release("door"))
    assert made.drain() == [
        Cancel(Ending("door")),
        Cancel(Renewal("door")),
        Send(B, Freed("door", 1)),
        Send(C, Freed("door", 1)),
    ]


def test_lease_that_ends_is_told_to_the_holder() -> None:
    made = holding()
    made.now = 110.0
    made.timeout(Ending("door"))
    assert Emit(Lapsed("door", 1)) in made.drain()
    assert not made.locks["door"].held


def test_holder_that_hears_of_a_later_token_holds_no_longer() -> None:
    made = holding()
    made.observe(Settled(SERIES, 2, "b"))
    assert Emit(Lapsed("door", 1)) in made.drain()


def test_token_that_comes_when_nobody_waits_any_more_is_freed() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.request(Release("door"))
    made.drain()
    made.observe(Settled(SERIES, 1, made.myself))
    assert made.drain() == [Send(B, Freed("door", 1)), Send(C, Freed("door", 1))]


def test_token_that_comes_after_its_lease_is_freed_and_the_next_asked_for() -> None:
    made = mutex()
    made.request(Acquire("door"))
    made.drain()
    made.now = 110.0
    made.observe(Settled(SERIES, 1, made.myself))
    effects = made.drain()
    assert Send(B, Freed("door", 1)) in effects
    assert asks(effects) == [Decide(SERIES, 2, made.myself)]


def test_restarted_process_does_not_hold_what_its_forerunner_held() -> None:
    before, after = (LeaseMutex(A, Random(seed)) for seed in range(2))
    after.request(Acquire("door"))
    after.observe(Settled(SERIES, 1, before.myself))
    assert not after.locks["door"].held


def test_late_token_is_refused_by_who_has_seen_a_later_one() -> None:
    """DDS-4"""
    fence = Fence()
    for token in (1, 1, 3):
        fence.admit(token)
    with pytest.raises(Stale, match="token 2 is stale: 3 was here since; acquire the lock anew"):
        fence.admit(2)


class Cast:
    """Three nodes with a lock, and the lease of each."""

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
def test_lock_goes_on_when_its_holder_dies(holder: int) -> None:
    """DDS-4: the holder may be the leader too."""
    cast = Cast()
    first, second = cast.names[holder], cast.names[holder - 1]
    cast.sim.ask(first, Acquire(LOCK))
    cast.run(0.5)
    cast.sim.ask(second, Acquire(LOCK))
    cast.sim.crash(first)
    cast.run(5.0)
    entries = [(node, event.token) for node, event in cast.heard if isinstance(event, Acquired)]
    (one, token), (other, next_token) = entries
    assert (one, other) == (first, second)
    assert token < next_token


@pytest.mark.parametrize("cut_off", [False, True])
def test_process_with_a_short_lease_takes_no_lock_from_a_holder_with_a_long_one(
    cut_off: bool,
) -> None:
    """DDS-4: neither while the holder renews its lease, nor before it is over."""
    cast = Cast(leases=(10.0, 1.0, 1.0))
    patient, hasty, _ = cast.names
    cast.sim.ask(patient, Acquire(LOCK))
    cast.run(0.5)
    cast.sim.ask(hasty, Acquire(LOCK))
    cast.run(0.5)
    if cut_off:
        cast.sim.isolate(patient)
    cast.run(8.0)
    assert not [event for node, event in cast.heard if node == hasty]
    cast.run(20.0)
    entered = [event for node, event in cast.heard if node == hasty]
    lapsed = [event for node, event in cast.heard if isinstance(event, Lapsed)]
    assert bool(entered) == bool(lapsed) == cut_off


def test_holder_that_was_stopped_hears_that_it_is_late_and_its_token_is_refused() -> None:
    """DDS-4"""
    cast = Cast()
    late, other, _ = cast.names
    fence = Fence()
    cast.sim.ask(late, Acquire(LOCK))
    cast.run(LEASE / 4)
    cast.sim.pause(late)
    cast.sim.ask(other, Acquire(LOCK))
    cast.run(5.0)
    tokens = {node: event.token for node, event in cast.heard if isinstance(event, Acquired)}
    assert tokens[late] < tokens[other]
    fence.admit(tokens[other])
    with pytest.raises(Stale):
        fence.admit(tokens[late])
    cast.sim.resume(late)
    cast.run(0.1)
    assert (late, Lapsed(LOCK, tokens[late])) in cast.heard
