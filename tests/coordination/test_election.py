"""LeaderElection elects the lowest name that is not suspected."""

from __future__ import annotations

from random import Random

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.events import NO_NODE, LeaderElected, ViewChanged
from oncecast.kernel.protocol import Emit, NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def test_lowest_member_in_the_view_leads() -> None:
    """DDS-4"""
    election = LeaderElection(C, Random(0))
    election.observe(ViewChanged((C,)))
    election.observe(ViewChanged((B, C)))
    election.observe(ViewChanged((A, B, C)))
    assert election.drain() == [Emit(LeaderElected(leader)) for leader in (C, B, A)]


def test_next_member_leads_while_the_leader_is_suspected() -> None:
    """DDS-4"""
    election = LeaderElection(C, Random(0))
    for view in ((A, B, C), (B, C), (A, B, C)):
        election.observe(ViewChanged(view))
    assert election.drain() == [Emit(LeaderElected(leader)) for leader in (A, B, A)]


def test_view_change_with_the_same_leader_emits_nothing() -> None:
    election = LeaderElection(C, Random(0))
    election.observe(ViewChanged((A, B, C)))
    election.drain()
    election.observe(ViewChanged((A, C)))
    assert election.drain() == []


def test_only_candidates_are_elected_leader() -> None:
    election = LeaderElection(A, Random(0), candidates=[B, C])
    election.observe(ViewChanged((A, B, C)))
    election.observe(ViewChanged((A,)))
    assert election.drain() == [Emit(LeaderElected(B)), Emit(LeaderElected(NO_NODE))]
