"""REP-1 to REP-5 as a user sees them: real processes that join, are governed, die and stall."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

from oncecast import blocking
from oncecast.cli.cluster import local as local_cluster
from oncecast.cli.cluster.local import free_ports
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from oncecast.wire.frames import GroupView, MemberView
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
    """Runs a command with the addresses of all three; its status, output and complaints."""
    monkeypatch.setenv("ONCECAST_SERVER", group.server)

    def run(*words: str) -> tuple[int, str, str]:
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


# Looking, and governing


def test_those_who_were_told_to_join_are_members(group: Replicas, cluster: Command) -> None:
    """REP-4, CLI-1"""
    leader = group.settled()
    status, out, _ = cluster("cluster", "status", "--json")
    seen = json.loads(out)
    assert (status, seen["leader"], seen["quorum"]) == (ExitStatus.OK, leader.address, True)
    assert {each["node"] for each in seen["members"]} == set(group.addresses)
    assert (seen["size"], seen["waiting"], seen["node"]) == (3, [], leader.address)

    status, out, _ = cluster("cluster", "status")
    assert (status, f"leader   {leader.address}\nquorum   yes\nmembers  3 of 3" in out) == (0, True)


def test_members_are_shown_with_what_they_have(group: Replicas, cluster: Command) -> None:
    leader = group.settled()
    status, out, _ = cluster("cluster", "members", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (status, sorted(row["role"] for row in rows)) == (0, ["leader", "replica", "replica"])
    assert all(row["applied"] >= 1 for row in rows)
    head, *lines = cluster("cluster", "members")[1].splitlines()
    assert head.split() == ["node", "role", "applied", "reachable", "heard"]
    assert [leader.address, "leader"] in [line.split()[:2] for line in lines]


def test_any_node_leads_to_the_leader(group: Replicas, cluster: Command) -> None:
    """REP-3"""
    group.settled()
    assert cluster("sub", "any", "--server", group.addresses[0])[0] == ExitStatus.OK
    for number, address in enumerate(group.addresses):
        done = cluster("put", "any", f"by {number}", "--server", address)
        assert done == (ExitStatus.OK, f"{number}\n", "")
    assert cluster("get", "any", "--count", "9")[1] == "by 0\nby 1\nby 2\n"


def test_the_leader_is_moved(group: Replicas, cluster: Command) -> None:
    """REP-3"""
    successor = group.backup()
    status, out, err = cluster("cluster", "transfer-leader", successor.address)
    assert (status, err) == (ExitStatus.OK, "")
    words = f"{successor.address} is now the leader: 3 of 3 members"
    assert out == f"{words}, leader {successor.address}\n"


@pytest.mark.long
def test_a_leader_that_is_told_to_stop_hands_over_before_its_process_ends(group: Replicas) -> None:
    """REP-4 SVC-2: and each put in flight is stored once, by the next leader."""
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


def test_a_member_is_let_go_and_comes_back_only_when_asked(
    group: Replicas, cluster: Command
) -> None:
    """REP-4"""
    gone = group.backup()
    status, out, _ = cluster("cluster", "remove", gone.address, "--json")
    seen = json.loads(out)
    assert (status, seen["size"], len(seen["members"])) == (ExitStatus.OK, 2, 2)

    def waits() -> bool | None:
        return gone.address in cluster("cluster", "status")[1].split("waiting")[-1] or None

    until("it waits for a place", waits)
    status, out, _ = cluster("cluster", "add", gone.address)
    assert (status, "is now a replica: 3 of 3 members" in out) == (ExitStatus.OK, True)
    group.settled()


def test_who_was_removed_while_it_was_away_is_taken_back(group: Replicas, cluster: Command) -> None:
    """REP-2: its own log says that it has a seat; the place is still open."""
    gone = group.backup()
    gone.end(signal.SIGKILL)

    def silent() -> bool | None:
        return "silent" in cluster("cluster", "members")[1] or None

    until("it is missed", silent)
    assert cluster("cluster", "remove", gone.address)[0] == ExitStatus.OK
    gone.start(*group.addresses)
    group.settled()


def test_the_leader_too_is_let_go_and_still_knows_who_leads(
    group: Replicas, cluster: Command
) -> None:
    """REP-2: whoever asks the one that has no seat any more is told by the one that leads."""
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

    until("it has offered itself, and is taken in", is_back)
    group.settled()


def test_what_would_harm_the_group_is_refused(group: Replicas, cluster: Command) -> None:
    """SVC-7"""
    group.settled()
    status, _, err = cluster("cluster", "add", "127.0.0.1:1")
    assert (status, "127.0.0.1:1 has not offered itself" in err) == (ExitStatus.USAGE, True)
    status, _, err = cluster("cluster", "transfer-leader", "127.0.0.1:1")
    assert (status, "is not a replica of this group; choose one" in err) == (
        ExitStatus.NOT_FOUND,
        True,
    )


def test_a_limit_that_differs_from_the_leaders_is_said(group: Replicas) -> None:
    """SVC-7: what one of them takes, the others could not."""
    odd = group.backup()
    for flags in (("--batch-bytes-max", "1000000"), ()):
        odd.end(signal.SIGTERM)
        odd.flags = flags
        group.restart(odd)
        if flags:
            until("somebody says so", lambda: one_has_said(group, "differs setting=batch_bytes_"))


def one_has_said(group: Replicas, pattern: str) -> bool | None:
    return any(each.has_said(pattern) for each in group.all) or None


# Fail-over


@contextmanager
def load(group: Replicas, trace: Path, *words: str) -> Iterator[tuple[Any, IO[str]]]:
    """The automated client; what it traces can be read as it comes."""
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
    """What the load was told to be stored, so far."""

    def __init__(self, rows: IO[str]) -> None:
        self._rows = rows

    def wait_for(self, count: int) -> None:
        """For so many more."""
        for row in self._rows:
            count -= '"kind":"stored"' in row
            if not count:
                return
        raise AssertionError(f"the load has ended, and {count} are lacking")


def test_nothing_is_lost_doubled_or_disordered_while_nodes_die_and_stall(
    group: Replicas, tmp_path: Path
) -> None:
    """SVC-2 SVC-3 SVC-10 REP-1 REP-5: each is killed or stopped with puts under way."""
    words = ("--publishes", "6000", "--rate", "900", "--subscribers", "1")
    with load(group, tmp_path / "trace", *words) as (process, rows):
        acks = Acks(rows)
        for victim in (group.settled, group.backup):
            acks.wait_for(200)
            killed = victim()
            killed.end(signal.SIGKILL)
            acks.wait_for(600)  # without it
            killed.start(*group.addresses)
            acks.wait_for(200)
        stopped = group.settled()
        acks.wait_for(200)
        stopped.send(signal.SIGSTOP)
        acks.wait_for(400)  # without it
        stopped.send(signal.SIGCONT)
        for _ in rows:
            pass
        out, _ = process.communicate(timeout=PATIENCE)
    report = json.loads(out)
    assert (process.returncode, report["deliveries"] + report["forgone"]) == (ExitStatus.OK, 6000)
    assert (report["lost"], report["duplicated"], report["out_of_order"]) == (0, 0, 0)
    group.settled()


# Disks


def test_a_replica_that_can_write_nothing_more_stops_and_the_group_goes_on(
    group: Replicas, cluster: Command
) -> None:
    """SVC-10 REP-1 REP-5: it says why, and has all when there is room again."""
    full, large = group.backup(), b"x" * (2 << 20)
    assert cluster("sub", "room")[0] == cluster("put", "room", "before")[0] == ExitStatus.OK
    assert full.process is not None
    # Not a byte behind the first million: what a quota or a full disk does.
    resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    with blocking.connect(group.server) as client:
        assert client.put("room", large, timeout=PATIENCE).offset == 1
    assert full.process.wait(PATIENCE) == ExitStatus.FAILURE
    assert full.has_said("check the disk")
    assert cluster("put", "room", "without it")[:2] == (ExitStatus.OK, "2\n")
    group.restart(full)
    assert cluster("cluster", "transfer-leader", full.address)[0] == ExitStatus.OK
    got = cluster("get", "room", "--count", "9")[1]
    assert got.splitlines() == ["before", large.decode(), "without it"]


def test_a_founder_that_lost_its_disk_and_is_not_told_to_join_stops(group: Replicas) -> None:
    """REP-1: it founds another group, and hears of the one that it was in."""
    founder, *_ = group.all
    founder.end(signal.SIGKILL)
    founder.wipe()
    founder.start()
    assert founder.process is not None
    assert founder.process.wait(PATIENCE) == ExitStatus.FAILURE
    assert founder.has_said("leads another group that has this node .* --join 127.0.0.1:")
    founder.wipe()
    group.restart(founder)


# Too few


def test_without_a_quorum_commands_say_so(group: Replicas, cluster: Command) -> None:
    """CLI-1: the status is 6, and it goes on when there is one again."""
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
    assert (status, "no node leads the group; start more nodes" in err) == (
        ExitStatus.NO_QUORUM,
        True,
    )
    assert cluster("get", "any", "--timeout", "1")[0] == ExitStatus.NO_QUORUM
    for each in others:
        each.start(*group.addresses)
    group.settled()
    assert cluster("cluster", "status")[0] == ExitStatus.OK


def test_all_are_killed_at_once_and_go_on(group: Replicas, cluster: Command) -> None:
    """SVC-10, REP-1: nobody tells them whom to join."""
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


# Strangers


def test_a_group_speaks_tls_and_to_nobody_who_does_not(tmp_path: Path) -> None:
    """SVC-12"""
    files = Files(tmp_path / "pem")
    certificate, key = files.names
    flags = ("--tls-certificate", certificate, "--tls-key", key, "--tls-ca", files.ca)
    stranger = Replica(tmp_path)
    try:
        with replicas(tmp_path, 2, *flags, tls=files.tls) as guarded:
            guarded.settled()
            stranger.start(*guarded.addresses)
            until("they turn it away", lambda: one_has_said(guarded, "TLS handshake failed"))
    finally:
        stranger.close()


def test_a_node_of_another_cluster_is_told_so(group: Replicas, tmp_path: Path) -> None:
    stranger = Replica(tmp_path, "--cluster", "other")
    try:
        stranger.start(*group.addresses)
        named = "belongs to cluster 'other', .* to 'oncecast'; correct the address"
        until("it is refused", lambda: stranger.has_said(named) or None)
    finally:
        stranger.close()


# A group to try out


def test_cluster_up_runs_a_group_until_it_is_told_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-1"""
    data = tmp_path / "up"
    for port in free_ports(2, 0):
        (data / str(port)).mkdir(parents=True)  # of a run in which nothing was founded
    for life in range(2):  # the second time it finds what it had
        command = [sys.executable, "-m", "oncecast", "cluster", "up", "-n", "2", "--json"]
        with subprocess.Popen(
            [*command, "--data", str(data)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                told = json.loads(process.stdout.readline())
                with blocking.connect(told["server"]) as client:
                    seen = client.group()
                    client.create_topic("t")
                    assert client.put("t", b"x", timeout=PATIENCE).offset == life
            finally:
                process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == ExitStatus.OK
        assert [each["node"] for each in told["nodes"]] == told["server"].split(",")
        assert {each.node for each in seen.members} == set(told["server"].split(","))
        for each in told["nodes"]:
            with pytest.raises(ProcessLookupError):
                os.kill(each["pid"], 0)
    assert main(("cluster", "up", "-n", "3", "--data", str(data))) == ExitStatus.FAILURE
    assert "has 2 nodes, from port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("node", "members", "size", "quorum", "is_in"),
    [
        ("b", "", 0, False, False),  # it has just been started
        ("b", "", 0, True, False),  # and has heard a leader
        ("b", "a", 3, False, False),  # it catches up
        ("b", "ab", 3, True, False),  # another one is still to come
        ("b", "abc", 3, False, False),  # it hears of no leader yet
        ("b", "abc", 3, True, True),
        ("b", "ab", 2, True, True),  # another one was sent away in an earlier run
        ("c", "ab", 2, False, True),  # and that one knows it
    ],
)
def test_a_group_to_try_out_does_not_wait_for_who_was_sent_away(
    node: str, members: str, size: int, quorum: bool, is_in: bool
) -> None:
    class Looked:
        def group(self) -> GroupView:
            there = tuple(MemberView(each, 1, 0, False) for each in members)
            return GroupView(1, node, "a" * quorum, quorum, 1, size, 0, there, ())

    assert local_cluster.is_in_group(cast("blocking.Client", Looked()), 3) == is_in


class Unborn:
    """In place of a process."""

    pid = 1

    def __init__(self, command: list[str], **options: object) -> None:
        self.command = command


def test_a_group_to_try_out_has_a_place_for_each_of_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Unborn)
    nodes = [local_cluster.start(tmp_path, port, [7400][: port - 7400], 5) for port in (7400, 7401)]
    for node in nodes:
        words = cast("Unborn", node.process).command
        assert words[words.index("--replicas") + 1] == "5"
    # Who is killed finds the group again, also the one that has founded it.
    local_cluster.say_how_to_go_on(nodes[0], nodes)
    local_cluster.say_how_to_go_on(nodes[1], nodes)
    founder, other = capsys.readouterr().err.splitlines()[1::2]
    assert founder.endswith("--replicas 5 --join 127.0.0.1:7401")
    assert other.endswith("--replicas 5 --join 127.0.0.1:7400")
    assert founder.startswith("oncecast serve --listen 127.0.0.1:7400 --data ")


@pytest.mark.parametrize("verb", ["add", "remove", "transfer-leader"])
@pytest.mark.parametrize("node", ["", "node", "127.0.0.1:99999", "\udce9:1"])
def test_what_is_no_address_is_wrong_usage(
    verb: str, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(("cluster", verb, node))
    assert exit_.value.code == ExitStatus.USAGE
    assert 'is not an address; write "host:port"' in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "any"])
def test_what_is_no_port_is_wrong_usage(port: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(("cluster", "up", "--port", port))
    assert exit_.value.code == ExitStatus.USAGE
