"""Foreign connections to a real process are closed and logged, and leak no memory."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from random import Random

from oncecast.network.framing import GREETING, HEADER, PREAMBLE
from oncecast.network.incidents import LINES_AT_ONCE
from tests.live.cluster import PATIENCE, Child, children, open_files

MB = 1_000_000
ROUND = 500


def greeting(rng: Random) -> bytes:
    return rng.choice(
        [
            rng.randbytes(rng.randrange(1, 60_000)),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500),
            PREAMBLE + HEADER.pack(0xFFFFFFFF, GREETING),
            PREAMBLE + HEADER.pack(60, GREETING) + rng.randbytes(60),
        ]
    )


def visit(node: Child, words: bytes) -> None:
    """Send the bytes and wait until the node closes the connection."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE) as sock:
        try:
            sock.sendall(words)
            while sock.recv(65_536):
                pass
        except ConnectionError:
            pass  # the node closed the connection while we were sending


def test_hostile_bytes_are_counted_and_logged_at_a_limited_rate(tmp_path: Path) -> None:
    """NET-1"""
    rng = Random(1)
    with children(tmp_path, 1) as (node,):
        node.start([])
        for _ in range(ROUND):
            visit(node, greeting(rng))
        before = node.memory_bytes()
        for _ in range(4 * ROUND):
            visit(node, greeting(rng))
        assert node.memory_bytes() - before < 2 * MB
        stats = node.status()["stats"]
        assert stats["hostile"] == stats["accepted"] == 5 * ROUND
        lines = [line for line in node.log_text().splitlines() if "hostile" in line]
        assert LINES_AT_ONCE <= len(lines) < 5 * ROUND // 10
        assert all(line.startswith("WARNING hostile peer=127.0.0.1:") for line in lines)


def test_thousand_idle_connections_do_not_block_a_peer(tmp_path: Path) -> None:
    """NET-1"""
    open_files(1200)
    with children(tmp_path, 2) as (node, peer), ExitStack() as idle:
        node.start([peer.id])
        before = node.memory_bytes()
        for n in range(1000):
            sock = socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE)
            idle.enter_context(sock)
            if n % 2:
                sock.sendall(PREAMBLE[: n % 8])  # the greeting is incomplete
        peer.start([node.id])
        peer.hear("neighbors", 1)
        node.hear("neighbors", 1)
        stats = node.status()["stats"]
        assert stats["accepted"] > 1000  # the peer was served after all of them
        assert stats["crowded"] + stats["overdue"] >= 1000 - 128
        assert node.memory_bytes() - before < 4 * MB
