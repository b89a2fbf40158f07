"""Five processes broadcast; one is killed and comes back, one is stopped and goes on."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.live.cluster import all_reach, children, start_all

MB = 1_000_000


def test_a_killed_node_comes_back_and_has_everything_once(tmp_path: Path) -> None:
    """NET-3, SVC-10"""
    with children(tmp_path, 5) as cluster:
        *others, victim = cluster
        start_all(cluster)
        others[0].tell("publish", 30, 100)
        victim.tell("publish", 20, 100)
        all_reach(cluster, 50)

        others[1].tell("publish", 700, 100)  # it dies among these; all are kept by everybody
        assert victim.end(signal.SIGKILL) == -signal.SIGKILL
        others[2].tell("publish", 50, 100)
        all_reach(others, 800)

        restored = victim.start([node.id for node in cluster])
        assert restored >= 50  # what it had delivered is on its disk
        all_reach(cluster, 800)
        victim.tell("publish", 10, 100)  # its numbers go on where they were
        all_reach(cluster, 810)

        assert victim.status()["delivered"] == 810
        for node in others:
            assert node.status()["delivered"] == 810
            assert f"lost peer={victim.id}" in node.log_text()
        assert [node.end(signal.SIGTERM) for node in cluster] == [0] * 5


def test_a_stopped_node_costs_the_others_bounded_memory(tmp_path: Path) -> None:
    """NET-1, NET-3"""
    # With pings so rare, it is the full queue that tells the others.
    with children(tmp_path, 5, "--keepalive=60") as cluster:
        *others, victim = cluster
        start_all(cluster)
        published = 0
        for count in (50, 1, 1, 1):  # fills the caches; then the tree settles
            others[0].tell("publish", count, MB // 10)
            published += count
            all_reach(cluster, published)

        victim.signal(signal.SIGSTOP)
        before = [node.memory_bytes() for node in others]
        for _ in range(10):
            others[0].tell("publish", 50, MB // 10)
            published += 50
            all_reach(others, published)
        after = [node.memory_bytes() for node in others]
        growth = [now - then for then, now in zip(before, after, strict=True)]
        assert max(growth) < 20 * MB, growth  # 50 MB were published
        logs = "".join(node.log_text() for node in others)
        assert f"slow peer={victim.id}" in logs  # whoever is its parent in the tree

        others[0].tell("publish", 20, 10)
        published += 20
        all_reach(others, published)
        victim.signal(signal.SIGCONT)
        all_reach(cluster, published)
        status = victim.status()
        # The others keep what was published last, so it must come; much of the rest is gone.
        assert status["small"] == 20
        assert status["lost"] == published - status["delivered"]
        assert [node.end(signal.SIGTERM) for node in cluster] == [0] * 5


def test_a_broken_disk_ends_the_process_with_code_1(tmp_path: Path) -> None:
    """SVC-10"""
    with children(tmp_path, 1, "--broken-disk") as (node,):
        node.start([])
        node.tell("publish", 1, 10)
        assert node.wait() == 1
        assert "SyncFailed: the disk is broken" in node.log_text()


def test_the_end_of_its_orders_ends_a_node(tmp_path: Path) -> None:
    with children(tmp_path, 1) as (node,):
        node.start([])
        assert node.process is not None
        assert node.process.stdin is not None
        node.process.stdin.close()
        assert node.wait() == 0
