"""REP-2, SVC-10: replicas whose disks have lost something, from a bit to everything."""

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
    """What stands in the topic of this test, each in a record of its own."""
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
    """All that the topic of this test has, as one replica has it: it is made to lead."""

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
    """One bit of the record that holds this value."""
    for log in sorted(data.glob("*.log")):
        content = bytearray(log.read_bytes())
        at = content.find(value)
        if at >= 0:
            content[at + len(value) // 2] ^= 1
            log.write_bytes(content)
            return
    raise AssertionError("nowhere in the log")


def is_whole(replica: Replica) -> bool | None:
    """Whether it has said so, since it said what it has lost."""
    return "refilled" in replica.log.read_text().rpartition("damaged data=")[2] or None


# A bit


def test_a_flipped_bit_is_found_and_refilled_from_the_others(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    victim = group.backup()
    assert victim.end(signal.SIGTERM) == 0
    flip(victim.data, values[30])
    group.restart(victim)
    assert victim.has_said("damaged data=")
    until("it says that it is whole", lambda: is_whole(victim))
    assert read(victim) == values


def test_different_records_damaged_on_each_of_three_are_all_refilled(
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
        until("it says that it is whole", lambda replica=replica: is_whole(replica))  # type: ignore[misc]
        assert read(replica) == values


# A directory


def test_a_directory_that_cannot_be_healed_is_set_aside_and_the_node_joins_anew(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    """REP-4: all that said who it is cannot be read. Nothing of it is deleted."""
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
    """One bit of the first block of the log, and of each state."""
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


def test_an_empty_disk_is_another_life_that_gets_all(
    group: Replicas, values: list[bytes], read: Callable[[Replica], list[bytes]]
) -> None:
    """REP-4"""
    victim = group.backup()
    before = life(victim)
    victim.end(signal.SIGKILL)
    victim.wipe()
    group.restart(victim)  # its earlier life may still have the seat, and nobody suspect that
    until("its other life has the seat", lambda: life(victim) not in (0, before) or None)
    group.settled()
    assert read(victim) == values


def life(replica: Replica) -> int:
    """That has the seat, as far as it knows; 0: none has."""
    view = replica.look()
    assert view is not None
    return next((each.incarnation for each in view.members if each.node == view.node), 0)


# What a node notes of its group


@pytest.mark.parametrize("noted", ["", "{", '{"me":"127.0.0.1:1","members":["127.0.0.1:1"]}'])
def test_a_log_knows_its_group_whatever_became_of_the_note(group: Replicas, noted: str) -> None:
    """The note is lost, damaged, or of another group; and nobody says whom to join."""
    victim = group.backup()
    assert victim.end(signal.SIGTERM) == 0
    (victim.data / MEMBERS).unlink()
    if noted:
        (victim.data / MEMBERS).write_text(noted)
    victim.start()
    group.settled()
    assert set(group.addresses) == members_noted(victim)


def test_a_node_that_has_nothing_but_the_note_joins_its_group_and_founds_none(
    group: Replicas,
) -> None:
    """REP-4: nobody says whom to join."""
    victim = group.backup()
    victim.end(signal.SIGKILL)
    for each in victim.data.iterdir():
        if each.name != MEMBERS:
            each.unlink()
    victim.start()
    group.settled()
    assert set(group.addresses) == members_noted(victim)


def members_noted(replica: Replica) -> set[str]:
    noted = recall(str(replica.data))
    assert noted is not None
    assert noted.me == replica.address
    return set(noted.members)


# Too much


def test_a_record_that_all_three_have_lost_is_named_and_not_guessed(
    group: Replicas, values: list[bytes]
) -> None:
    """SVC-10: no state stands for it, so none of them can go on. It is the last of these tests."""
    group.settled()
    for replica in group.all:
        assert replica.end(signal.SIGTERM) == 0
        flip(replica.data, values[30])
    for replica in group.all:
        replica.start(*group.addresses)
    named = r"records \d+ to \d+ of its log cannot be read, and no other replica can read slot \d+"
    until("one of them ends and says why", lambda: ended_with(group, named))
    assert not any(view.leader for each in group.all if (view := each.look()) is not None)


def ended_with(group: Replicas, named: str) -> bool | None:
    """The others may wait for it: they cannot know that it has not got what they lack."""
    ended = [each for each in group.all if each.process and each.process.poll() is not None]
    assert all(each.has_said(named) for each in ended)
    return bool(ended) or None


def test_a_record_that_all_three_have_lost_behind_a_state_is_missed_by_its_reader_alone(
    tmp_path: Path,
) -> None:
    """SVC-10: it is named to who reads it; who seeks to the next one, and all others, go on."""
    with replicas(tmp_path, 3, "--snapshot-bytes", "200000") as group:
        values = [b"%d of three " % number * 9 for number in range(3)]
        with blocking.connect(group.server) as client:
            for topic in ("hurt", "more"):
                client.subscribe(topic, "all", start=EARLIEST).close()
            for value in values:
                client.put("hurt", value)
            for _ in range(9):
                client.put("more", bytes(50_000))
        until("each has a state", lambda: all(map(has_state, group.all)) or None)
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


def has_state(replica: Replica) -> bool:
    return any(replica.data.glob("*.snap"))
