"""Test /health and /live on a node in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from oncecast.errors import DiskFull
from oncecast.kernel.protocol import NodeId
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.replication.paxos import Paxos
from tests.client.serving import run

STAYS = ["status", "node", "version", "reason", "role", "leader", "quorum"]


def health(server: Server) -> tuple[int, str, str]:
    """Return the HTTP status code, the health status and its reason."""
    page = server.health()
    known = json.loads(page.body)
    assert list(known) == STAYS
    assert page.kind == "application/json"
    return page.status, known["status"], known["reason"]


def live(server: Server) -> tuple[int, str]:
    page = server.live()
    return page.status, json.loads(page.body)["status"]


def node(path: Path, then: Callable[[Server], Coroutine[Any, Any, None]], join: str = "") -> None:
    async def scenario() -> None:
        settings = Settings(data=str(path), listen="127.0.0.1:0", join=join)
        async with Server(settings) as server:
            await then(server)

    run(scenario())


def test_node_that_accepts_puts_is_ready(tmp_path: Path) -> None:
    """OPS-1"""

    async def then(server: Server) -> None:
        assert health(server) == (200, "ok", "")
        assert live(server) == (200, "live")

    node(tmp_path, then)


def test_node_without_disk_space_for_puts_is_not_ready(tmp_path: Path) -> None:
    """OPS-1 SVC-10"""

    async def then(server: Server) -> None:
        log, gateway = server.replica.journal.log, server.parts.gateway
        there_is, gateway.free_disk_bytes = gateway.free_disk_bytes, lambda: 0
        log.full = DiskFull(str(tmp_path), "no space left")
        status, word, reason = health(server)
        assert (status, word) == (503, "disk-full")
        assert "no space left" in reason
        assert live(server) == (200, "live")
        gateway.free_disk_bytes, log.full = there_is, None
        assert health(server) == (200, "ok", "")

    node(tmp_path, then)


def test_node_without_a_leader_is_not_ready(tmp_path: Path) -> None:
    """OPS-1 REP-5"""

    async def then(server: Server) -> None:
        paxos = server.parts.stack.protocols[0]
        assert isinstance(paxos, Paxos)
        following = paxos.state.following
        following.leader = NodeId("")
        assert health(server) == (503, "no-leader", "this node does not know the group's leader")
        following.leader = NodeId("127.0.0.1:1")
        following.heard = asyncio.get_running_loop().time()
        assert health(server)[:2] == (200, "ok")
        following.heard -= 10 * paxos.options.suspicion
        assert health(server)[:2] == (503, "no-quorum")
        assert live(server) == (200, "live")
        following.leader = paxos.me

    node(tmp_path, then)


def test_node_that_has_not_joined_yet_is_not_ready(tmp_path: Path) -> None:
    """OPS-1"""

    async def then(server: Server) -> None:
        assert health(server)[:2] == (503, "joining")
        assert live(server) == (200, "live")

    node(tmp_path, then, join="127.0.0.1:9")


def test_stopping_node_reports_the_reason(tmp_path: Path) -> None:
    """OPS-1 OPS-2"""

    async def then(server: Server) -> None:
        server.runtime.stop()
        assert health(server) == (503, "draining", "this node was told to stop")
        assert live(server) == (200, "live")

    node(tmp_path, then)


def test_failed_node_reports_the_reason(tmp_path: Path) -> None:
    """OPS-1"""
    reported: list[object] = []

    async def then(server: Server) -> None:
        server.runtime.fail(OSError("the disk is gone"))
        reported.extend((health(server), live(server)))

    with pytest.raises(OSError, match="the disk is gone"):
        node(tmp_path, then)
    assert reported == [(503, "failed", "the disk is gone"), (200, "live")]
