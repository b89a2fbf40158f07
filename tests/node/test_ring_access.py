"""Users and rules on a ring of two processes (SEC-2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.client.client import Client
from oncecast.errors import Denied, NotAuthenticated, Overloaded
from oncecast.node.config import Settings
from oncecast.node.ring_server import RingServer
from oncecast.security.values import Rule
from oncecast.wire import commands as do
from tests.node.test_ring_server import drive

ROOT: Any = {"user": "root", "password": "long secret"}
ANN: Any = {"user": "ann", "password": "tulip"}
TOPICS = [f"t{number}" for number in range(8)]


def server(path: Path, **settings: Any) -> RingServer:
    return RingServer(
        Settings(data=str(path), listen="127.0.0.1:0", heartbeat=0.1, suspicion=1.0, **settings)
    )


@asynccontextmanager
async def secured(path: Path) -> AsyncIterator[tuple[RingServer, RingServer, Client]]:
    """Yield two processes with a group each, and the administrator."""
    async with server(path / "one") as one:
        async with oncecast.connect(one.me) as first:
            await first.access.add_user("root", "long secret", admin=True)
        async with oncecast.connect(one.me, **ROOT) as root:
            await root.access.add_user("ann", "tulip")
            await root.access.allow("ann", "put", "read", "ack", topic="t*")
            async with server(path / "two", join=one.me) as two:
                await both_own(root)
                # The client closes before the second process, which may lead a group that it uses.
                async with oncecast.connect(one.me, **ROOT) as other:
                    yield one, two, other


async def both_own(root: Client) -> None:
    while len([arc for arc in (await root.ring()).groups if arc.low]) < 2:
        pass


async def agree(root: Client, *rings: RingServer) -> None:
    """Wait until all replicas have the same version of the rules."""
    while len({each.access.version for ring in rings for each in ring.replicas.values()}) > 1:
        await root.ring()


def test_every_group_and_process_in_a_ring_enforces_the_rules(tmp_path: Path) -> None:
    """SEC-2 REP-6: a process that joins later gets the rules with its first topics."""

    async def live() -> None:
        async with secured(tmp_path) as (one, two, root):
            await agree(root, one, two)
            for ring in (one, two):
                with pytest.raises(NotAuthenticated):
                    async with oncecast.connect(ring.me):
                        pass
                async with oncecast.connect(ring.me, **ANN) as ann:
                    for topic in TOPICS:
                        await ann.put(topic, b"x")
                    with pytest.raises(Denied):
                        await ann.put("private", b"x")
                    with pytest.raises(Denied):
                        await ann.leave_ring()
                    with pytest.raises(Denied):
                        await ann.access.users()
            assert await root.access.users() == ["root", "ann"]

    drive(live)


def test_process_refuses_to_leave_until_it_knows_the_rules_of_its_ring(tmp_path: Path) -> None:
    """SEC-2: until the process knows the users, no client can make it leave or change its group."""

    async def live() -> None:
        async with server(tmp_path, join="127.0.0.1:1") as joined:
            async with oncecast.connect(joined.me, timeout=0.3) as stranger:
                assert (await stranger.ring()).node == joined.me
                with pytest.raises(Overloaded, match="has no access rules yet"):
                    await stranger.leave_ring()
            replica = f"{joined.me}/{joined.identity.group}"
            async with oncecast.connect(replica, timeout=0.3) as stranger:
                with pytest.raises(Overloaded, match="has no access rules yet"):
                    await stranger.remove_replica(replica)
            assert not joined.runtime.stopping

    drive(live)


def test_process_in_a_ring_without_users_can_leave_once_it_owns_topics(tmp_path: Path) -> None:
    async def live() -> None:
        async with server(tmp_path / "one") as one, server(tmp_path / "two", join=one.me) as two:
            async with oncecast.connect(two.me) as client:
                await client.leave_ring()
            await two.runtime.wait()

    drive(live)


def test_changed_access_rule_applies_in_every_group(tmp_path: Path) -> None:
    async def live() -> None:
        async with secured(tmp_path) as (one, two, root):
            assert await root.access.disallow("ann", "put", topic="t*")
            async with oncecast.connect(two.me, **ANN) as ann:
                for topic in TOPICS:
                    with pytest.raises(Denied):
                        await ann.put(topic, b"x")
            token = await root.access.create_token("robot")
            await agree(root, one, two)
            async with oncecast.connect(two.me, token=token) as robot:
                assert robot.name.startswith("robot.")

    drive(live)


def test_group_that_missed_a_change_gets_it_from_another_group(tmp_path: Path) -> None:
    async def live() -> None:
        async with secured(tmp_path) as (one, two, root):
            rule = Rule("ann", ("manage",), "t*")
            (arc, *_) = [arc for arc in (await root.ring()).groups if arc.low]
            async with oncecast.connect(",".join(arc.nodes), **ROOT) as alone:
                await alone.access.change_here(do.Allow(rule))
            await agree(root, one, two)
            for ring in (one, two):
                for replica in ring.replicas.values():
                    assert replica.access.allows("ann", "manage", "t1")

    drive(live)


def test_push_stops_when_its_access_rule_is_removed(tmp_path: Path) -> None:
    """SEC-2: the owner decides whether a reader at another process may read."""

    async def live() -> None:
        async with secured(tmp_path) as (one, two, root):
            await agree(root, one, two)
            for ring in (one, two):
                async with oncecast.connect(ring.me, **ANN) as ann:
                    inbox = await ann.subscribe("t1", f"ann.{ring.identity.group}", push=True)
                    await root.put("t1", b"x")
                    assert await inbox.get(timeout=10) is not None
                    await root.access.disallow("ann", "read", topic="t*")
                    with pytest.raises(Denied):
                        await inbox.get(timeout=10)
                    await root.access.allow("ann", "read", topic="t*")
                    await asyncio.gather(agree(root, one, two))

    drive(live)
