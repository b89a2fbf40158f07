"""LeaderElection: the lowest name that is not suspected."""

from __future__ import annotations

from random import Random

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.events import NOBODY, LeaderElected, ViewChanged
from oncecast.kernel.protocol import Emit, NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def test_lowest_of_the_view_leads_whoever_came_first() -> None:
    """DDS-4"""
    election = LeaderElection(C, Random(0))
    election.observe(ViewChanged((C,)))
    election.observe(ViewChanged((B, C)))
    election.observe(ViewChanged((A, B, C)))
    assert election.drain() == [Emit(LeaderElected(leader)) for leader in (C, B, A)]


def test_suspected_leader_is_followed_by_the_next_and_leads_again_when_it_is_back() -> None:
    """DDS-4"""
    election = LeaderElection(C, Random(0))
    for view in ((A, B, C), (B, C), (A, B, C)):
        election.observe(ViewChanged(view))
    assert election.drain() == [Emit(LeaderElected(leader)) for leader in (A, B, A)]


def test_change_that_does_not_concern_the_leader_is_not_told() -> None:
    election = LeaderElection(C, Random(0))
    election.observe(ViewChanged((A, B, C)))
    election.drain()
    election.observe(ViewChanged((A, C)))
    assert election.drain() == []


def test_only_candidates_lead() -> None:
    election = LeaderElection(A, Random(0), candidates=[B, C])
    election.observe(ViewChanged((A, B, C)))
    election.observe(ViewChanged((A,)))
    assert election.drain() == [Emit(LeaderElected(B)), Emit(LeaderElected(NOBODY))]
