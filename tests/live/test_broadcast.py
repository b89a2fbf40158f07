"""Five processes broadcast while one is killed and restarted, or suspended and resumed."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.live.cluster import all_reach, children, start_all

MB = 1_000_000


def test_restarted_node_has_every_message_once(tmp_path: Path) -> None:
    """NET-3, SVC-10"""
    with children(tmp_path, 5) as cluster:
        *peers, victim = cluster
        start_all(cluster)
        peers[0].tell("publish", 30, 100)
        victim.tell("publish", 20, 100)
        all_reach(cluster, 50)

        peers[1].tell("publish", 700, 100)  # a node is killed during these; all nodes keep them
        assert victim.end(signal.SIGKILL) == -signal.SIGKILL
        peers[2].tell("publish", 50, 100)
        all_reach(peers, 800)

        restored = victim.start([node.id for node in cluster])
        assert restored >= 50  # its deliveries are on its disk
        all_reach(cluster, 800)
        victim.tell("publish", 10, 100)  # its sequence continues
        all_reach(cluster, 810)

        assert victim.status()["delivered"] == 810
        for node in peers:
            assert node.status()["delivered"] == 810
            assert f"lost peer={victim.id}" in node.log_text()
        assert [node.end(signal.SIGTERM) for node in cluster] == [0] * 5


def test_peers_of_a_suspended_node_use_bounded_memory(tmp_path: Path) -> None:
    """NET-1, NET-3"""
    # Pings are rare, so only the full queue reveals the slow node.
    with children(tmp_path, 5, "--keepalive=60") as cluster:
        *peers, victim = cluster
        start_all(cluster)
        published = 0
        for count in (50, 1, 1, 1):  # fill the caches, then let the tree settle
            peers[0].tell("publish", count, MB // 10)
            published += count
            all_reach(cluster, published)

        victim.signal(signal.SIGSTOP)
        before = [node.memory_bytes() for node in peers]
        for _ in range(10):
            peers[0].tell("publish", 50, MB // 10)
            published += 50
            all_reach(peers, published)
        after = [node.memory_bytes() for node in peers]
        growth = [now - then for then, now in zip(before, after, strict=True)]
        assert max(growth) < 20 * MB, growth  # far less than the 50 MB that were published
        logs = "".join(node.log_text() for node in peers)
        assert f"slow peer={victim.id}" in logs  # its parent in the tree has logged this

        peers[0].tell("publish", 20, 10)
        published += 20
        all_reach(peers, published)
        victim.signal(signal.SIGCONT)
        all_reach(cluster, published)
        status = victim.status()
        # Its peers keep only the latest messages, so it gets these; older ones may be lost.
        assert status["small"] == 20
        assert status["lost"] == published - status["delivered"]
        assert [node.end(signal.SIGTERM) for node in cluster] == [0] * 5


def test_process_with_a_broken_disk_exits_with_status_1(tmp_path: Path) -> None:
    """SVC-10"""
    with children(tmp_path, 1, "--broken-disk") as (node,):
        node.start([])
        node.tell("publish", 1, 10)
        assert node.wait() == 1
        assert "SyncFailed: the disk is broken" in node.log_text()


def test_node_exits_when_its_standard_input_is_closed(tmp_path: Path) -> None:
    with children(tmp_path, 1) as (node,):
        node.start([])
        assert node.process is not None
        assert node.process.stdin is not None
        node.process.stdin.close()
        assert node.wait() == 0
