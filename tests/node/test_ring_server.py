"""Test the replicas, the directory and the failures of a ring process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.broker.holdings import Frozen, PeerGroup
from oncecast.dht.identifiers import key_of
from oncecast.errors import (
    BadAddress,
    BadSetting,
    Corrupt,
    Diverged,
    InUse,
    NotConnected,
    WrongFormat,
)
from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import process_of
from oncecast.network.handshake import CLIENT, Refusal, Welcome
from oncecast.network.network import run
from oncecast.node.config import Settings
from oncecast.node.directory import GONE, RING, Members, RingIdentity, note, note_ring, recall
from oncecast.node.replica import Replica
from oncecast.node.ring_server import RingServer
from oncecast.node.server import Server
from oncecast.ring.events import GroupFacts, Left, Seat, Unseat
from oncecast.storage.journal import Journal
from tests.network.raw import Raw, hello

NOBODY = (NodeId("127.0.0.1:1/g-other"),)  # nothing listens on port 1
PATIENCE = 20.0


def server(path: Path, **settings: Any) -> RingServer:
    return RingServer(
        Settings(data=str(path), listen="127.0.0.1:0", heartbeat=0.02, suspicion=0.05, **settings)
    )


def drive(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def patiently() -> None:
        async with asyncio.timeout(PATIENCE):
            await test()

    run(patiently())


async def greeted(ring: RingServer, node: str) -> object:
    """Return the answer to a client that dials this node in the process."""
    raw = await Raw.dial(int(process_of(ring.me).rpartition(":")[2]))
    raw.greet(hello(NodeId(node), "ann", role=CLIENT))
    greeting = await raw.greeting()
    raw.close()
    return greeting


async def done(ring: RingServer) -> None:
    """Wait until all tasks started by an event have ended."""
    while ring._leaving:
        await asyncio.wait(ring._tasks - set(ring._keepers.values()))


def groups(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "groups").iterdir())


# -- its own group --


def test_process_creates_its_group_once(tmp_path: Path) -> None:
    first = server(tmp_path)
    own = first.identity.group
    assert first.identity.first
    assert first.parts.roster._group == own

    async def live() -> None:
        async with first:
            assert isinstance(await greeted(first, f"{first.me}/{own}"), Welcome)
            assert isinstance(await greeted(first, first.me), Welcome)

    drive(live)
    again = server(tmp_path)
    again.close()
    assert (again.identity.group, again.identity.first) == (own, True)
    assert list(again.replicas) == [own]
    assert again.replicas[own].journal.log.last > 0


def test_joining_process_creates_a_group_but_no_ring(tmp_path: Path) -> None:
    ring = server(tmp_path, join="127.0.0.1:1,127.0.0.1:2")
    ring.close()
    assert not ring.identity.first
    assert ring.parts.chord.status.contacts == (NodeId("127.0.0.1:1"), NodeId("127.0.0.1:2"))
    assert ring.replicas[ring.identity.group].group.contacts == ()


def test_single_process_ring_ignores_join_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise both rings would own all topics."""
    server(tmp_path).close()
    ring = server(tmp_path, join="127.0.0.1:1")
    ring.close()
    assert (ring.parts.chord.status.contacts, ring.parts.chord.status.lost) == ((), ())
    assert "this node is the only member of the ring in its directory" in caplog.text


def test_process_stops_if_it_has_started_a_second_ring(tmp_path: Path) -> None:
    """REP-6: the first process has lost its disk; otherwise two groups would own each topic."""
    ring = server(tmp_path)

    async def live() -> None:
        async with ring:
            registry = ring.replicas[ring.identity.group].parts.service.machine.registry
            async with oncecast.connect(ring.me) as client:
                await client.create_topic("t")  # so that it owns a topic
            assert registry.holdings is not None
            assert ring.other_ring() == ""
            there = GroupFacts("g-other", key_of("x"), NOBODY[0], NOBODY, 1)
            ring.parts.roster.groups["g-other"] = there
            assert ring.other_ring() == process_of(NOBODY[0])
            registry.holdings.frozen = Frozen("move", key_of("y"), PeerGroup("g-other", NOBODY))
            assert ring.other_ring() == ""  # the other group is receiving topics
            registry.holdings.frozen = None
            ring.other_ring = lambda: "127.0.0.1:1"  # type: ignore[method-assign]
            await ring.runtime.wait()

    with pytest.raises(Diverged, match=r"is in another ring, .* with --join 127\.0\.0\.1:1"):
        drive(live)


def test_single_node_group_ignores_join_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = {"data": str(tmp_path), "heartbeat": 0.02, "suspicion": 0.05}

    async def live() -> None:
        async with Server(Settings(listen="127.0.0.1:0", **settings)) as first:
            address = first.me
        assert "join_ignored" not in caplog.text
        async with Server(Settings(listen=address, join="127.0.0.1:1", **settings)):
            assert "this node is the only member of the group in its directory" in caplog.text

    drive(live)


def test_unfinished_and_removed_groups_are_deleted_at_the_next_start(
    tmp_path: Path,
) -> None:
    """A replica that was killed before its first write must not create its group."""
    (tmp_path / "groups" / "g-begun").mkdir(parents=True)
    (tmp_path / "groups" / "g-begun" / "LOCK").write_text("")
    (tmp_path / "groups" / f"g-other{GONE}").mkdir()
    (tmp_path / "groups" / f"g-other{GONE}" / "00000001.log").write_text("")
    ring = server(tmp_path)
    ring.close()
    assert groups(tmp_path) == [ring.identity.group]


def test_group_with_a_lost_directory_is_not_created_again(tmp_path: Path) -> None:
    """Other processes may still have the group, so this process did not start the ring."""
    note_ring(str(mkdir(tmp_path)), RingIdentity(NodeId("127.0.0.1:9"), "g-lost", first=True))
    note(str(mkdir(tmp_path / "groups" / "g-other")), Members(NodeId("x"), NOBODY))
    ring = server(tmp_path)
    ring.close()
    assert ring.identity.group != "g-lost"
    assert not ring.identity.first
    assert ring.replicas["g-other"].group.contacts == NOBODY
    assert ring._contacts() == (NodeId("127.0.0.1:1"),)


def test_restarted_process_contacts_known_members_without_waiting_for_a_ring(
    tmp_path: Path,
) -> None:
    """If all processes of a ring restart, they find no ring to join."""
    server(tmp_path, join="127.0.0.1:1").close()
    again = server(tmp_path, join="127.0.0.1:1")
    again.close()
    assert again.parts.chord.status.contacts == ()
    assert again.parts.chord.status.lost == (NodeId("127.0.0.1:1"),)


def mkdir(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# -- seats --


def test_seat_starts_a_replica_that_clients_can_reach(tmp_path: Path) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            other = f"{ring.me}/g-other"
            refusal = await greeted(ring, other)
            assert isinstance(refusal, Refusal)
            assert refusal.passing
            ring._hear(Seat("g-other", (*NOBODY, NodeId(other))))
            await asyncio.sleep(0)
            welcome = await greeted(ring, other)
            assert isinstance(welcome, Welcome)
            assert welcome.sender == other
            assert ring.replicas["g-other"].group.contacts == NOBODY

    drive(live)
    again = server(tmp_path)
    again.close()
    assert again.replicas["g-other"].group.contacts == NOBODY
    assert not again.replicas["g-other"].group.is_member


@pytest.mark.long
def test_client_retries_until_the_replica_is_running(tmp_path: Path) -> None:
    """Any other refusal would end the session."""

    async def live() -> None:
        async with server(tmp_path) as ring:
            node = f"{ring.me}/g-other"
            with pytest.raises(NotConnected, match="no replica of g-other"):
                await oncecast.connect(node, connect_timeout=0.5).__aenter__()
            assert ring.runtime.stats.refused > 1
            ring._hear(Seat("g-other", NOBODY))
            async with oncecast.connect(node):
                pass

    drive(live)


def test_joined_group_members_are_saved_before_its_journal_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a killed process would create the group at its next start."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    ring = server(tmp_path)
    monkeypatch.setattr(Journal, "open", die)
    with pytest.raises(KeyboardInterrupt):
        ring._open("g-other", NOBODY)
    ring.close()
    monkeypatch.undo()
    again = server(tmp_path)
    again.close()
    assert again.replicas["g-other"].group.contacts == NOBODY


@pytest.mark.parametrize("group", ["g-other", "../other", "G", ""])
def test_seat_without_other_members_is_refused(
    group: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a seat would create a second group with this name. Invalid names are refused too."""

    async def live() -> None:
        async with server(tmp_path) as ring:
            own = NodeId(f"{ring.me}/{group}")
            ring._hear(Seat(group, () if group == "g-other" else (*NOBODY, own)))
            assert list(ring.replicas) == [ring.identity.group]

    drive(live)
    assert "not_seated group=" in caplog.text
    assert len(groups(tmp_path)) == 1


@pytest.mark.parametrize("gone", [False, True])
def test_unseated_replica_keeps_its_directory_while_the_group_exists(
    tmp_path: Path, gone: bool
) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            own = ring.identity.group
            ring._hear(Seat("g-other", NOBODY))
            await asyncio.sleep(0)
            ring._hear(Unseat("g-other", gone))
            ring._hear(Unseat("g-other", gone))
            await done(ring)
            assert list(ring.replicas) == [own]
            assert groups(tmp_path) == sorted([own] if gone else [own, "g-other"])
            assert isinstance(await greeted(ring, f"{ring.me}/g-other"), Refusal)
            assert isinstance(await greeted(ring, f"{ring.me}/{own}"), Welcome)

    drive(live)


@pytest.mark.parametrize("gone", [False, True])
def test_replica_restarts_if_it_is_seated_again_while_stopping(tmp_path: Path, gone: bool) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            ring._hear(Seat("g-other", NOBODY))
            await asyncio.sleep(0)
            before = ring.replicas["g-other"]
            ring._hear(Unseat("g-other", gone))
            ring._hear(Seat("g-other", NOBODY))
            await done(ring)
            assert ring.replicas["g-other"] is not before
            assert (ring.replicas["g-other"].group.incarnation != before.group.incarnation) is gone
            await asyncio.sleep(0)
            assert isinstance(await greeted(ring, f"{ring.me}/g-other"), Welcome)

    drive(live)


def test_process_that_has_left_its_ring_stops(tmp_path: Path) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            ring._hear(Left())
            await ring.runtime.wait()

    drive(live)


# -- failures --


def test_diverged_replica_is_set_aside_and_joins_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            ring._hear(Seat("g-other", NOBODY))
            await asyncio.sleep(0)
            replica = ring.replicas["g-other"]
            anew = begins(replica)
            replica.runtime.fail(Diverged("its state differs"))
            await anew.wait()
            await asyncio.sleep(0)
            assert isinstance(await greeted(ring, replica.me), Welcome)
            assert isinstance(await greeted(ring, f"{ring.me}/{ring.identity.group}"), Welcome)
            assert replica.group.contacts == NOBODY

    drive(live)
    assert "set_aside group=g-other" in caplog.text
    assert sum(name.startswith("g-other.damaged-") for name in groups(tmp_path)) == 1
    assert recall(str(tmp_path / "groups" / "g-other")) is not None


def test_replica_that_reads_a_corrupt_record_is_recovered_in_place(tmp_path: Path) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            own = ring.replicas[ring.identity.group]
            assert isinstance(await greeted(ring, own.me), Welcome)
            anew = begins(own)
            own.runtime.fail(Corrupt("00000001.log", 0, 1, 1, "checksum mismatch"))
            await anew.wait()
            await asyncio.sleep(0)
            assert isinstance(await greeted(ring, own.me), Welcome)

    drive(live)
    assert len(groups(tmp_path)) == 1


def begins(replica: Replica) -> asyncio.Event:
    """Return an event that is set before the replica runs."""
    begun, announce = asyncio.Event(), replica.announce

    def tell() -> None:
        announce()
        begun.set()

    replica.announce = tell  # type: ignore[method-assign]
    return begun


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("a bug"), Diverged("no replica has all records")]
)
def test_unexpected_replica_failure_stops_the_process(tmp_path: Path, error: Exception) -> None:
    async def live() -> None:
        ring = server(tmp_path)
        async with ring:
            running = asyncio.create_task(ring.runtime.wait())
            assert isinstance(await greeted(ring, f"{ring.me}/{ring.identity.group}"), Welcome)
            ring.replicas[ring.identity.group].runtime.fail(error)
            await running

    with pytest.raises(type(error), match=str(error)):
        drive(live)


@pytest.mark.parametrize("kind", [Server, RingServer])
def test_directory_can_be_used_by_only_one_process_and_server_type(
    tmp_path: Path, kind: type[Server | RingServer]
) -> None:
    settings = Settings(data=str(tmp_path), listen="127.0.0.1:0")
    made = kind(settings)
    try:
        with pytest.raises(InUse, match="in use by process"):
            kind(settings)
        with pytest.raises(WrongFormat, match="files that do not belong to a node"):
            (Server if kind is RingServer else RingServer)(settings)
    finally:
        made.close()


def test_error_for_an_unreadable_ring_file_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / RING).write_text("{")
    with pytest.raises(WrongFormat, match=r"ring\.json: .*; restore this file, or delete it"):
        server(tmp_path)


@pytest.mark.parametrize("what", ["listen", "http", "advertise"])
def test_settings_reject_addresses_with_a_node_name(tmp_path: Path, what: str) -> None:
    with pytest.raises(BadAddress, match="use only"):
        Server(Settings(**{"data": str(tmp_path), what: "127.0.0.1:7400/g-1"}))  # type: ignore[arg-type]


def test_process_cannot_join_itself(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="is this node"):
        RingServer(Settings(data=str(tmp_path), listen="127.0.0.1:7", join="127.0.0.1:7"))


# -- pages and logs --


def test_pages_show_each_group_by_name(tmp_path: Path) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            ring._hear(Seat("g-other", NOBODY))
            own = ring.identity.group
            assert json.loads(ring.health().body)["status"] == "joining"
            assert isinstance(await greeted(ring, f"{ring.me}/{own}"), Welcome)
            health = json.loads(ring.health().body)
            assert (health["status"], health["group"]) == ("ok", own)
            assert health["groups"].keys() == {own, "g-other"}
            assert health["groups"]["g-other"]["role"] == "joining"
            lines = ring.metrics().body.splitlines()
            assert 'oncecast_members{group="g-other"} 0' in lines
            assert lines.count("# TYPE oncecast_members gauge") == 1
            assert any(each.startswith("oncecast_steps_total ") for each in lines)
            assert "oncecast_ring_processes 1" in lines
            ring.replicas["g-other"].parts.gateway.free_disk_bytes = lambda: 0
            assert json.loads(ring.health().body)["status"] == "disk-full"
            ring.runtime.stop()
            assert ring.health().status == 503
            assert ring.live().status == 200

    drive(live)


def test_log_lines_name_the_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def live() -> None:
        async with server(tmp_path) as ring:
            assert isinstance(await greeted(ring, f"{ring.me}/{ring.identity.group}"), Welcome)

    with caplog.at_level(logging.INFO, "oncecast.node"):
        drive(live)
    (group,) = groups(tmp_path)
    assert f"recovered group={group} node=" in caplog.text
