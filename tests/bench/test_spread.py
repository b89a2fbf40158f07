"""Test the simulation of executors that read from a replica group."""

from __future__ import annotations

from bench.spark.spread import lines, spread


def test_executors_can_read_from_the_leader_alone_or_from_all_replicas() -> None:
    """PIPE-1"""
    leader, anywhere = (
        spread(6, 2.0, tasks=12, pages=3, any_replica=each) for each in (False, True)
    )
    assert sorted(leader.pages.values()) == [0, 0, 36]
    assert sum(anywhere.pages.values()) == 36
    assert min(anywhere.pages.values()) > 0
    assert (leader.estimate, anywhere.estimate) == (100.0, 200.0)
    assert anywhere.rate > leader.rate  # virtual time gives the same figures in every run
    head, *rows = lines([("leader", leader), ("any replica", anywhere)])
    assert head.split()[-1] == "estimate"
    assert len(rows) == 2
