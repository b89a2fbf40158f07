"""Test REP-1 to REP-5 with real processes that join, leave, crash and stall."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

import oncecast
from oncecast import blocking
from oncecast.cli.cluster import local as local_cluster
from oncecast.cli.cluster.local import free_ports
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.wire.frames import GroupView, MemberView
from oncecast.wire.retention import Policy
from tests.live.conftest import Command
from tests.live.replicas import PATIENCE, Replica, Replicas, replicas, until
from tests.live.test_serve_wire import Files


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(tmp_path_factory.mktemp("group"), 3) as made:
        yield made


@pytest.fixture
def cluster(
    group: Replicas, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Return a function that runs a command and returns its status, stdout and stderr."""
    monkeypatch.setenv("ONCECAST_SERVER", group.server)

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


# Inspect and change


def test_joined_nodes_are_members_of_the_group(group: Replicas, cluster: Command) -> None:
    """REP-4, CLI-1"""
    leader = group.settled()
    status, out, _ = cluster("cluster", "status", "--json")
    seen = json.loads(out)
    assert (status, seen["leader"], seen["quorum"]) == (ExitStatus.OK, leader.address, True)
    assert {each["node"] for each in seen["members"]} == set(group.addresses)
    assert (seen["size"], seen["waiting"], seen["node"]) == (3, [], leader.address)

    status, out, _ = cluster("cluster", "status")
    assert (status, f"leader   {leader.address}\nquorum   yes\nmembers  3 of 3" in out) == (0, True)


def test_members_are_listed_with_their_applied_slots(group: Replicas, cluster: Command) -> None:
    leader = group.settled()
    status, out, _ = cluster("cluster", "members", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, sorted(row["role"] for row in rows)) == (0, ["leader", "replica", "replica"])
    assert all(row["applied"] >= 1 for row in rows)
    head, *lines = cluster("cluster", "members")[1].splitlines()
    assert head.split() == ["node", "role", "applied", "reachable", "heard", "level"]
    assert [leader.address, "leader"] in [line.split()[:2] for line in lines]


def test_client_finds_the_leader_through_any_node(group: Replicas, cluster: Command) -> None:
    """REP-3"""
    group.settled()
    assert cluster("sub", "any", "--server", group.addresses[0])[0] == ExitStatus.OK
    for number, address in enumerate(group.addresses):
        done = cluster("put", "any", f"by {number}", "--server", address)
        assert done == (ExitStatus.OK, f"{number}\n", "")
    assert cluster("get", "any", "--count", "9")[1] == "by 0\nby 1\nby 2\n"


def test_follower_serves_a_fixed_range_scan(group: Replicas) -> None:
    """PIPE-1: scans of old messages are spread across all replicas."""
    follower = group.backup()
    values = [b"%d" % number for number in range(50)]

    async def scanned() -> tuple[list[bytes], str]:
        async with oncecast.connect(group.server) as client:
            await client.create_topic("scanned", Policy(age_us=3_600_000_000))
            await client.put_many("scanned", values)
            where = await client.locate("scanned", oncecast.EARLIEST)
        async with oncecast.connect(follower.address, any_replica=True) as client:
            found: list[bytes] = []
            start, until = oncecast.from_offset(where.offset), where.next
            async for each in client.scan("scanned", start, until, topic_id=where.topic_id):
                found += [message.value for message in each.messages()]
            return found, client.parts.session.entry.node

    # If the follower has not applied the last puts yet, the leader answers.
    def by_follower() -> bool | None:
        found, node = asyncio.run(scanned())
        assert found[: len(values)] == values
        return True if node == follower.address else None

    until("a follower serves the scan", by_follower)


def test_transfer_leader_makes_the_given_node_the_leader(group: Replicas, cluster: Command) -> None:
    """REP-3"""
    successor = group.backup()
    status, out, err = cluster("cluster", "transfer-leader", successor.address)
    assert (status, err) == (ExitStatus.OK, "")
    words = f"{successor.address} is now the leader: 3 of 3 members"
    assert out == f"{words}, leader {successor.address}\n"


@pytest.mark.long
def test_stopping_leader_hands_over_before_its_process_ends(group: Replicas) -> None:
    """REP-4 SVC-2: the next leader stores each put in flight once."""
    leader = group.settled()
    values = [b"%d" % number for number in range(300)]
    with (
        blocking.connect(group.server, timeout=PATIENCE) as client,
        client.subscribe("stopped", "reader") as reading,
    ):
        for value in values[:100]:
            client.put("stopped", value)
        leader.send(signal.SIGTERM)
        for value in values[100:]:
            client.put_nowait("stopped", value)
        client.flush()
        assert leader.wait() == 0
        said = re.search(r"handed_over to=(\S+)", leader.log.read_text())
        assert said is not None, leader.log.read_text()
        view = group.named(said[1]).look()
        assert view is not None
        assert view.leader == said[1]
        found: list[bytes] = []
        while len(found) < len(values):
            found += [message.value for message in reading.get_many(400, timeout=PATIENCE)]
        assert found == values
    group.restart(leader)


def test_removed_member_returns_only_if_it_is_added_again(
    group: Replicas, cluster: Command
) -> None:
    """REP-4"""
    gone = group.backup()
    status, out, _ = cluster("cluster", "remove", gone.address, "--json")
    seen = json.loads(out)
    assert (status, seen["size"], len(seen["members"])) == (ExitStatus.OK, 2, 2)

    def waits() -> bool | None:
        return gone.address in cluster("cluster", "status")[1].split("waiting")[-1] or None

    until("the node waits", waits)
    status, out, _ = cluster("cluster", "add", gone.address)
    assert (status, "is now a replica: 3 of 3 members" in out) == (ExitStatus.OK, True)
    group.settled()


def test_node_removed_while_down_joins_again(group: Replicas, cluster: Command) -> None:
    """REP-2: the node's own log says that it is a member, and the group has a free seat."""
    gone = group.backup()
    gone.end(signal.SIGKILL)

    def silent() -> bool | None:
        return "silent" in cluster("cluster", "members")[1] or None

    until("the node is reported as silent", silent)
    assert cluster("cluster", "remove", gone.address)[0] == ExitStatus.OK
    gone.start(*group.addresses)
    group.settled()


def test_removed_leader_still_knows_the_new_leader(group: Replicas, cluster: Command) -> None:
    """REP-2: a client connected to the removed node gets the leader's view."""
    gone = group.settled()
    status, out, _ = cluster("cluster", "remove", gone.address)
    assert (status, out.startswith(f"{gone.address} is no longer a replica: 2 of 2")) == (0, True)
    for server in (group.server, gone.address):
        status, out, _ = cluster("cluster", "status", "--json", "--server", server)
        seen = json.loads(out)
        assert (status, seen["quorum"]) == (ExitStatus.OK, True)
        assert gone.address not in (seen["leader"], *(each["node"] for each in seen["members"]))
    status, _, err = cluster("cluster", "remove", gone.address)
    assert (status, "is not a replica of this group; choose one of" in err) == (
        ExitStatus.NOT_FOUND,
        True,
    )

    def is_back() -> bool | None:
        return cluster("cluster", "add", gone.address)[0] == ExitStatus.OK or None

    until("the node is added again", is_back)
    group.settled()


def test_invalid_group_changes_are_rejected(group: Replicas, cluster: Command) -> None:
    """SVC-7"""
    group.settled()
    status, _, err = cluster("cluster", "add", "127.0.0.1:1")
    assert (status, "127.0.0.1:1 has not asked to join" in err) == (ExitStatus.USAGE, True)
    status, _, err = cluster("cluster", "transfer-leader", "127.0.0.1:1")
    assert (status, "is not a replica of this group; choose one" in err) == (
        ExitStatus.NOT_FOUND,
        True,
    )


def test_node_logs_a_limit_that_differs_from_the_leader_limit(group: Replicas) -> None:
    """SVC-7: a follower could not store a batch that the leader accepts."""
    odd = group.backup()
    for flags in (("--batch-bytes-max", "1000000"), ()):
        odd.end(signal.SIGTERM)
        odd.flags = flags
        group.restart(odd)
        if flags:
            until("a node logs it", lambda: one_has_logged(group, "differs setting=batch_bytes_"))


def one_has_logged(group: Replicas, pattern: str) -> bool | None:
    return any(each.has_said(pattern) for each in group.all) or None


# Fail-over


@contextmanager
def load(group: Replicas, trace: Path, *words: str) -> Iterator[tuple[Any, IO[str]]]:
    """Run `oncecast load`. Yield its process and its trace."""
    os.mkfifo(trace)
    options = ("--server", group.server, "--json", "--trace", str(trace), "--timeout", "30", *words)
    command = [sys.executable, "-m", "oncecast", "load", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            with trace.open() as rows:
                yield process, rows
        finally:
            process.kill()


class Acks:
    """Counts the stored messages in a trace."""

    def __init__(self, rows: IO[str]) -> None:
        self._rows = rows

    def wait_for(self, count: int) -> None:
        """Wait until `count` more messages are stored."""
        for row in self._rows:
            count -= '"kind":"stored"' in row
            if not count:
                return
        raise AssertionError(f"the load has ended, but {count} messages are missing")


def test_no_messages_are_lost_or_duplicated_while_nodes_crash_and_stall(
    group: Replicas, tmp_path: Path
) -> None:
    """SVC-2 SVC-3 SVC-10 REP-1 REP-5: nodes are killed or suspended with puts in flight."""
    words = ("--publishes", "6000", "--rate", "900", "--subscribers", "1")
    with load(group, tmp_path / "trace", *words) as (process, rows):
        acks = Acks(rows)
        for victim in (group.settled, group.backup):
            acks.wait_for(200)
            killed = victim()
            killed.end(signal.SIGKILL)
            acks.wait_for(600)  # the group continues without the killed node
            killed.start(*group.addresses)
            acks.wait_for(200)
        stopped = group.settled()
        acks.wait_for(200)
        stopped.send(signal.SIGSTOP)
        acks.wait_for(400)  # the group continues without the stopped node
        stopped.send(signal.SIGCONT)
        for _ in rows:
            pass
        out, _ = process.communicate(timeout=PATIENCE)
    report = json.loads(out)
    assert (process.returncode, report["deliveries"] + report["forgone"]) == (ExitStatus.OK, 6000)
    assert (report["lost"], report["duplicated"], report["out_of_order"]) == (0, 0, 0)
    group.settled()


# Disks


def test_group_continues_without_a_replica_that_cannot_write(
    group: Replicas, cluster: Command
) -> None:
    """SVC-10 REP-1 REP-5: the replica logs the reason, and catches up once disk space is free."""
    full, large = group.backup(), b"x" * (2 << 20)
    assert cluster("sub", "full")[0] == cluster("put", "full", "before")[0] == ExitStatus.OK
    assert full.process is not None
    # Writes beyond the first MiB fail, as with a quota or a full disk.
    resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with blocking.connect(group.server) as client:
        assert client.put("full", large, timeout=PATIENCE).offset == 1
    assert full.process.wait(PATIENCE) == ExitStatus.FAILURE
    assert full.has_said("check the disk")
    assert cluster("put", "full", "without it")[:2] == (ExitStatus.OK, "2\n")
    group.restart(full)
    assert cluster("cluster", "transfer-leader", full.address)[0] == ExitStatus.OK
    got = cluster("get", "full", "--count", "9")[1]
    assert got.splitlines() == ["before", large.decode(), "without it"]


def test_founder_that_lost_its_disk_stops_if_it_starts_without_join(group: Replicas) -> None:
    """REP-1: the founder starts another group, and then gets messages from its former group."""
    founder, *_ = group.all
    founder.end(signal.SIGKILL)
    founder.wipe()
    founder.start()
    assert founder.process is not None
    assert founder.process.wait(PATIENCE) == ExitStatus.FAILURE
    assert founder.has_said("leads another group that includes this node; .* --join 127.0.0.1:")
    founder.wipe()
    group.restart(founder)


# Without a quorum


def test_commands_report_a_missing_quorum(group: Replicas, cluster: Command) -> None:
    """CLI-1: the exit status is 6 until the group has a quorum again."""
    leader = group.settled()
    others = [each for each in group.all if each is not leader]
    for each in others:
        each.end(signal.SIGKILL)

    def without() -> str | None:
        status, out, _ = cluster("cluster", "status")
        return out if status == ExitStatus.NO_QUORUM and "2 not heard from" in out else None

    out = until("no quorum", without)
    assert "members  3 of 3 (1 reachable, 2 not heard from)" in out
    assert f"{others[0].address} (not heard from for" in out
    assert f"seen by  {leader.address}" in out
    status, _, err = cluster("put", "any", "x", "--timeout", "2")
    assert (status, "the group has no leader; start more nodes" in err) == (
        ExitStatus.NO_QUORUM,
        True,
    )
    assert cluster("get", "any", "--timeout", "1")[0] == ExitStatus.NO_QUORUM
    for each in others:
        each.start(*group.addresses)
    group.settled()
    assert cluster("cluster", "status")[0] == ExitStatus.OK


def test_group_recovers_when_all_nodes_are_killed(group: Replicas, cluster: Command) -> None:
    """SVC-10, REP-1: the nodes restart without --join."""
    group.settled()
    assert cluster("sub", "all")[0] == cluster("put", "all", "x")[0] == ExitStatus.OK
    for each in group.all:
        each.send(signal.SIGKILL)
    for each in group.all:
        each.end()
    for each in group.all:
        each.start()
    group.settled()
    assert cluster("get", "all") == (ExitStatus.OK, "x\n", "")


# Foreign nodes


def test_group_with_tls_refuses_nodes_without_tls(tmp_path: Path) -> None:
    """SVC-12"""
    files = Files(tmp_path / "pem")
    certificate, key = files.names
    flags = ("--tls-certificate", certificate, "--tls-key", key, "--tls-ca", files.ca)
    foreign = Replica(tmp_path)
    try:
        with replicas(tmp_path, 2, *flags, tls=files.tls) as guarded:
            guarded.settled()
            foreign.start(*guarded.addresses)
            until(
                "the group refuses the node",
                lambda: one_has_logged(guarded, "TLS handshake failed"),
            )
    finally:
        foreign.close()


def test_node_from_another_cluster_is_refused_with_a_reason(
    group: Replicas, tmp_path: Path
) -> None:
    foreign = Replica(tmp_path, "--cluster", "other")
    try:
        foreign.start(*group.addresses)
        named = "belongs to cluster 'other', .* to 'oncecast'; correct the address"
        until("the node is refused", lambda: foreign.has_said(named) or None)
    finally:
        foreign.close()


# cluster up


def test_cluster_up_runs_a_group_until_it_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-1"""
    data = tmp_path / "up"
    for port in free_ports(2, 0):
        (data / str(port)).mkdir(parents=True)  # left by a run that created no group
    for run_number in range(2):  # the second run finds the data of the first
        command = [sys.executable, "-m", "oncecast", "cluster", "up", "-n", "2", "--json"]
        with subprocess.Popen(
            [*command, "--data", str(data)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                reported = json.loads(process.stdout.readline())
                with blocking.connect(reported["server"]) as client:
                    seen = client.group()
                    client.create_topic("t")
                    assert client.put("t", b"x", timeout=PATIENCE).offset == run_number
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == ExitStatus.OK
        assert [each["node"] for each in reported["nodes"]] == reported["server"].split(",")
        assert {each.node for each in seen.members} == set(reported["server"].split(","))
        for each in reported["nodes"]:
            with pytest.raises(ProcessLookupError):
                os.kill(each["pid"], 0)
    assert main(("cluster", "up", "-n", "3", "--data", str(data))) == ExitStatus.FAILURE
    assert "contains 2 nodes, starting at port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("node", "members", "size", "quorum", "is_in"),
    [
        ("b", "", 0, False, False),  # the node has just started
        ("b", "", 0, True, False),  # it has heard from a leader
        ("b", "a", 3, False, False),  # the node is catching up
        ("b", "ab", 3, True, False),  # another node has not joined yet
        ("b", "abc", 3, False, False),  # the node knows no leader yet
        ("b", "abc", 3, True, True),
        ("b", "ab", 2, True, True),  # another node was removed in an earlier run
        ("c", "ab", 2, False, True),  # the removed node knows that it was removed
    ],
)
def test_cluster_up_does_not_wait_for_a_removed_node(
    node: str, members: str, size: int, quorum: bool, is_in: bool
) -> None:
    class FakeClient:
        def group(self) -> GroupView:
            there = tuple(MemberView(each, 1, 0, False) for each in members)
            return GroupView(1, node, "a" * quorum, quorum, 1, size, 0, there, ())

    assert local_cluster.is_in_group(cast("blocking.Client", FakeClient()), 3) == is_in


class FakeProcess:
    """Replaces Popen and starts no process."""

    pid = 1

    def __init__(self, command: list[str], **options: object) -> None:
        self.command = command


def test_cluster_up_starts_one_group_with_all_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    nodes = [local_cluster.start(tmp_path, port, [7400][: port - 7400], 5) for port in (7400, 7401)]
    for node in nodes:
        words = cast("FakeProcess", node.process).command
        assert words[words.index("--replicas") + 1] == "5"
    # A killed node finds its group again, even the one that started it.
    local_cluster.say_how_to_go_on(nodes[0], nodes)
    local_cluster.say_how_to_go_on(nodes[1], nodes)
    founder, other = capsys.readouterr().err.splitlines()[1::2]
    assert founder.endswith("--replicas 5 --join 127.0.0.1:7401")
    assert other.endswith("--replicas 5 --join 127.0.0.1:7400")
    assert founder.startswith("oncecast serve --listen 127.0.0.1:7400 --data ")


@pytest.mark.parametrize("verb", ["add", "remove", "transfer-leader"])
@pytest.mark.parametrize(
    ("node", "fact"),
    [
        ("", "is not a valid address"),
        ("node", "is not a valid address"),
        ("127.0.0.1:99999", "the port is too high"),
        ("\udce9:1", "is not a valid address"),
    ],
)
def test_invalid_node_address_is_a_usage_error(
    verb: str, node: str, fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(("cluster", verb, node))
    assert exit_.value.code == ExitStatus.USAGE
    assert fact in capsys.readouterr().err


def test_cluster_up_rejects_ports_above_65535(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("cluster", "up", "-n", "3", "--port", "65534")) == ExitStatus.FAILURE
    assert "3 nodes starting at port 65534 need ports above 65535" in capsys.readouterr().err


def test_cluster_up_reports_a_port_in_use_before_it_starts_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        words = ("cluster", "up", "-n", "1", "--port", port, "--data", str(tmp_path))
        assert main(words) == ExitStatus.FAILURE
    out, err = capsys.readouterr()
    assert (out, list(tmp_path.iterdir())) == ("", [])
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; free the port" in err


@pytest.mark.parametrize("port", ["0", "65536", "any"])
def test_invalid_port_is_a_usage_error(port: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(("cluster", "up", "--port", port))
    assert exit_.value.code == ExitStatus.USAGE
