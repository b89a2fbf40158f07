"""REP-2, SVC-10: damage the disks of replicas, from a flipped bit to an empty disk."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncecast import blocking
from oncecast.client.starts import EARLIEST, from_offset
from oncecast.errors import BadBatch
from oncecast.node.directory import MEMBERS, recall
from oncecast.storage.disk import OsDisk
from oncecast.storage.segment import Segment, serials
from oncecast.storage.store import Block
from tests.live.replicas import PATIENCE, Replica, Replicas, replicas, until

COUNT = 60


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicas(tmp_path_factory.mktemp("group"), 3) as made:
        yield made


@pytest.fixture
def values(request: pytest.FixtureRequest, group: Replicas) -> list[bytes]:
    """Put messages in a new topic, each in its own record, and return their values."""
    topic = request.node.name
    made = [b"%d of %s " % (number, topic.encode()) * 9 for number in range(COUNT)]
    with blocking.connect(group.server) as client:
        client.create_topic(topic)
        client.subscribe(topic, "all", start=EARLIEST).close()
        for value in made:
            client.put(topic, value)
    return made


@pytest.fixture
def read(request: pytest.FixtureRequest) -> Callable[[Replica], list[bytes]]:
    """Return a function that reads the topic from one replica, which it makes the leader."""

    def at(replica: Replica) -> list[bytes]:
        got: list[bytes] = []
        with blocking.connect(replica.address) as client:
            client.transfer_leader(replica.address)
            with client.read(request.node.name, "all", auto_ack=False) as reading:
                while len(got) < COUNT:
                    got += [message.value for message in reading.get_many(COUNT, PATIENCE)]
        return got

    return at


def flip(data: Path, value: bytes) -> None:
    """Flip one bit of the record that holds this value."""
    for log in sorted(data.glob("*.log")):
        content = bytearray(log.read_bytes())
        at = content.find(value)
        if at >= 0:
            content[at + len(value) // 2] ^= 1
            log.write_bytes(content)
            return
    raise AssertionError("the value is not in the log")


def is_repaired(replica: Replica) -> bool | None:
    """Return True if the replica has logged a repair since its last damage."""
    return "refilled" in replica.log.read_text().rpartition("damaged data=")[2] or None


# Flipped bits


def test_flipped_bit_is_repaired_from_other_replicas(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    victim = group.backup()
    assert victim.end(signal.SIGTERM) == 0
    flip(victim.data, values[30])
    group.restart(victim)
    assert victim.has_said("damaged data=")
    until("the replica is repaired", lambda: is_repaired(victim))
    assert read(victim) == values


def test_different_damage_on_each_replica_is_repaired(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    group.settled()
    for replica, value in zip(group.all, values[10::20], strict=True):
        assert replica.end(signal.SIGTERM) == 0
        flip(replica.data, value)
    for replica in group.all:
        replica.start(*group.addresses)
    group.settled()
    for replica in group.all:
        until("the replica is repaired", lambda replica=replica: is_repaired(replica))  # type: ignore[misc]
        assert read(replica) == values


# Lost directories


def test_unrepairable_directory_is_set_aside_and_the_node_joins_again(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    """REP-4: the replica's identity cannot be read. No file is deleted."""
    victim = group.backup()
    assert victim.end(signal.SIGTERM) == 0
    ruin(victim.data)
    before = logs(victim.data)
    group.restart(victim)
    assert victim.has_said(f"set_aside data={victim.data} .*joins=")
    (aside,) = victim.data.parent.glob(f"{victim.data.name}.damaged-*")
    assert logs(aside) == before
    assert read(victim) == values


def ruin(data: Path) -> None:
    """Flip one bit in the first block of the log, and in each snapshot."""
    disk = OsDisk(data)
    segment = Segment(disk, serials(disk)[0])
    blocks = (block for block in segment.walk() if isinstance(block, Block))
    first = next(block for block in blocks if block.records)
    disk.close()
    found = [(data / segment.name, first.end - 1)]
    found += [(state, state.stat().st_size - 1) for state in data.glob("*.snap")]
    for file, at in found:
        content = bytearray(file.read_bytes())
        content[at] ^= 1
        file.write_bytes(content)


def logs(data: Path) -> dict[str, int]:
    return {each.name: zlib.crc32(each.read_bytes()) for each in data.glob("*.log")}


def test_node_with_an_empty_disk_joins_with_a_new_incarnation(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    """REP-4"""
    victim = group.backup()
    before = incarnation(victim)
    victim.end(signal.SIGKILL)
    victim.wipe()
    group.restart(victim)  # its old incarnation may still be a member
    until("the new incarnation is a member", lambda: incarnation(victim) not in (0, before) or None)
    group.settled()
    assert read(victim) == values


def incarnation(replica: Replica) -> int:
    """Return the replica's incarnation in its own list of members, or 0 if it is not there."""
    view = replica.look()
    assert view is not None
    return next((each.incarnation for each in view.members if each.node == view.node), 0)


# The file that lists the members


@pytest.mark.parametrize("recorded", ["", "{", '{"me":"127.0.0.1:1","members":["127.0.0.1:1"]}'])
def test_node_finds_its_group_from_its_log_without_a_valid_members_file(
    group: Replicas, recorded: str
) -> None:
    """The members file is missing, damaged or from another group, and --join is not set."""
    victim = group.backup()
    assert victim.end(signal.SIGTERM) == 0
    (victim.data / MEMBERS).unlink()
    if recorded:
        (victim.data / MEMBERS).write_text(recorded)
    victim.start()
    group.settled()
    assert set(group.addresses) == recorded_members(victim)


def test_node_with_only_the_members_file_joins_its_group(
    group: Replicas,
) -> None:
    """REP-4: without --join, it must not start a new group."""
    victim = group.backup()
    victim.end(signal.SIGKILL)
    for each in victim.data.iterdir():
        if each.name != MEMBERS:
            each.unlink()
    victim.start()
    group.settled()
    assert set(group.addresses) == recorded_members(victim)


def recorded_members(replica: Replica) -> set[str]:
    recorded = recall(str(replica.data))
    assert recorded is not None
    assert recorded.me == replica.address
    return set(recorded.members)


# Damage on all replicas


def test_record_lost_by_all_replicas_is_reported(group: Replicas, values: list[bytes]) -> None:
    """SVC-10: no snapshot covers it, so the group stops.

    This must stay the last test for the group.
    """
    group.settled()
    for replica in group.all:
        assert replica.end(signal.SIGTERM) == 0
        flip(replica.data, values[30])
    for replica in group.all:
        replica.start(*group.addresses)
    named = r"records \d+ to \d+ of its log cannot be read, and no other replica can read slot \d+"
    until("a replica exits and gives the reason", lambda: ended_with(group, named))
    assert not any(view.leader for each in group.all if (view := each.look()) is not None)


def ended_with(group: Replicas, named: str) -> bool | None:
    """Return True if a replica has exited, and check that each exited replica logged `named`.

    Others may still be waiting for the lost record.
    """
    ended = [each for each in group.all if each.process and each.process.poll() is not None]
    assert all(each.has_said(named) for each in ended)
    return bool(ended) or None


def test_lost_record_covered_by_a_snapshot_affects_only_its_reader(
    tmp_path: Path,
) -> None:
    """SVC-10: the reader gets an error and can seek past the lost record."""
    with replicas(tmp_path, 3, "--snapshot-bytes", "200000") as group:
        values = [b"%d of three " % number * 9 for number in range(3)]
        with blocking.connect(group.server) as client:
            for topic in ("hurt", "more"):
                client.subscribe(topic, "all", start=EARLIEST).close()
            for value in values:
                client.put("hurt", value)
            for _ in range(9):
                client.put("more", bytes(50_000))
        until("each replica has a snapshot", lambda: all(map(has_snapshot, group.all)) or None)
        for replica in group.all:
            assert replica.end(signal.SIGTERM) == 0
            flip(replica.data, values[1])
        for replica in group.all:
            replica.start(*group.addresses)
        group.settled()
        with blocking.connect(group.server) as client:
            with client.read("hurt", "all") as reading:
                assert [each.value for each in reading.get_many(1, PATIENCE)] == values[:1]
                with pytest.raises(BadBatch, match="offset 1 of topic 'hurt' is lost: 0"):
                    reading.get(PATIENCE)
            client.seek("hurt", "all", from_offset(2))
            with client.read("hurt", "all") as reading:
                assert [each.value for each in reading.get_many(1, PATIENCE)] == values[2:]
        group.settled()


def has_snapshot(replica: Replica) -> bool:
    return any(replica.data.glob("*.snap"))
