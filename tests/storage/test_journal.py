"""SVC-10: the journal restores the records of a stack and trims the log."""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Corrupt, StorageError, WrongFormat
from oncecast.kernel.protocol import Append, NodeId, Protocol, Snapshot, Trim, Value
from oncecast.kernel.stack import Stack
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage.journal import Journal

SEGMENT_BYTES = 4096


class Word(Value):
    text: str


class Words(Value):
    texts: tuple[str, ...]


class Sum(Value):
    amount: int


class Diary(Protocol):
    name = "diary"
    Record = Word
    State = Words

    def __init__(self) -> None:
        super().__init__(NodeId("me"), Random(1))
        self.texts: list[str] = []

    def restore(self, record: Word | Words) -> None:
        if isinstance(record, Words):
            self.texts = list(record.texts)
        else:
            self.texts.append(record.text)


class Counter(Protocol):
    name = "counter"
    Record = Sum

    def __init__(self) -> None:
        super().__init__(NodeId("me"), Random(1))
        self.total = 0

    def restore(self, record: Sum) -> None:
        self.total += record.amount


class World:
    """A diary, and optionally a counter, on a disk that survives restarts."""

    def __init__(self, *, counting: bool = False) -> None:
        self.disk = SimulatedDisk(Random(1))
        self.counting = counting
        self.open()

    def open(self) -> None:
        self.diary, self.counter = Diary(), Counter()
        self.stack = Stack([self.diary, self.counter] if self.counting else [self.diary])
        self.journal = Journal.open(self.disk, self.stack, segment_bytes=SEGMENT_BYTES)

    def reopen(self) -> None:
        self.journal.abandon()
        self.open()

    def take(self, *effects: Append | Snapshot | Trim) -> None:
        for effect in effects:
            self.journal.take(effect)
        self.journal.sync()

    def write(self, numbers: range, size: int = 10) -> None:
        for number in numbers:
            self.take(Append(Word(f"{number:0{size}}"), number))

    def segments(self) -> int:
        return sum(name.endswith(".log") for name in self.disk.names())


def test_records_are_restored_in_order_and_numbers_continue() -> None:
    world = World(counting=True)
    world.take(Append(Word("a"), 1), Append(Sum(5), 2), Append(Word("b"), 3), Append(Sum(7), 4))
    world.reopen()
    assert (world.diary.texts, world.counter.total) == (["a", "b"], 12)
    assert world.stack.records.last == world.journal.synced == 4


def test_snapshot_replaces_only_records_from_its_own_protocol() -> None:
    world = World(counting=True)
    world.take(Append(Word("a"), 1), Append(Sum(5), 2))
    world.take(Snapshot(Words(("all so far",)), 2))
    world.take(Append(Word("b"), 3), Append(Sum(7), 4))
    world.reopen()
    assert world.diary.texts == ["all so far", "b"]
    assert world.counter.total == 12


def test_record_can_be_read_again() -> None:
    world = World()
    world.take(Append(Word("a"), 1), Append(Word("b"), 2))
    assert world.diary.recall(1) == Word("a")
    world.reopen()
    assert world.diary.recall(2) == Word("b")


def test_trim_frees_disk_space_once_a_snapshot_covers_it() -> None:
    world = World()
    world.write(range(1, 41), size=500)
    before = world.segments()
    world.take(Trim("diary", 41))
    assert world.segments() == before
    world.take(Snapshot(Words(("all",)), 40))
    assert world.segments() < before
    world.reopen()
    assert world.diary.texts == ["all"]


def test_trim_after_its_snapshot_frees_disk_space() -> None:
    world = World()
    world.write(range(1, 41), size=500)
    before = world.segments()
    world.take(Snapshot(Words(("all",)), 40))
    world.take(Trim("diary", 41), Append(Word("next"), 41))
    assert world.segments() < before


def test_protocol_without_trims_keeps_the_whole_log() -> None:
    world = World(counting=True)
    world.take(Append(Sum(5), 1))
    world.write(range(2, 42), size=500)
    before = world.segments()
    world.take(Snapshot(Words(("all",)), 41), Trim("diary", 42))
    assert world.segments() == before
    world.reopen()
    assert world.counter.total == 5


def flip(world: World, text: bytes) -> None:
    for name in world.disk.names():
        content = world.disk.open(name).read(0, world.disk.open(name).size())
        if name.endswith(".log") and text in content:
            world.disk.flip(name, content.index(text), 0)


def test_damage_to_a_record_that_a_restore_needs_is_reported() -> None:
    world = World()
    world.write(range(1, 10))
    world.journal.close()
    flip(world, b"0000000005")
    with pytest.raises(Corrupt) as named:
        world.open()
    assert (named.value.first, named.value.last) == (5, 5)


def test_damage_covered_by_a_snapshot_does_not_prevent_a_start() -> None:
    world = World()
    world.write(range(1, 10))
    world.take(Snapshot(Words(("nine",)), 9))
    world.write(range(10, 12))
    world.journal.close()
    flip(world, b"0000000005")
    world.open()
    assert world.diary.texts == ["nine", "0000000010", "0000000011"]
    with pytest.raises(Corrupt):
        world.diary.recall(5)


def test_full_disk_loses_a_snapshot_but_no_records() -> None:
    world = World()
    world.write(range(1, 5))
    world.disk.fill()
    world.take(Snapshot(Words(("four",)), 4))
    world.disk.free()
    world.write(range(5, 6))
    world.reopen()
    assert len(world.diary.texts) == 5


def test_records_in_an_unknown_format_are_refused() -> None:
    world = World(counting=True)
    world.take(Append(Sum(5), 1))
    world.journal.close()
    world.counting = False
    with pytest.raises(WrongFormat, match="the record format is unknown"):
        world.open()


@pytest.mark.parametrize("seed", range(5))
def test_power_loss_at_any_step_loses_no_synced_records(seed: int) -> None:
    """With snapshots and trims, the restored records are a prefix of the written records."""
    rng = Random(seed)
    for _ in range(30):
        world = World()
        written: list[str] = []
        for life in range(4):
            steps = rng.randint(1, 40)

            def cut(verb: str, name: str) -> None:
                nonlocal steps
                steps -= 1
                if steps < 0:
                    raise PowerCut

            world.disk.before = cut
            synced = len(written)
            try:
                for _ in range(20):
                    number = world.stack.records.last = len(written) + 1
                    written.append(f"{life} {number}".ljust(300))
                    effects: list[Append | Snapshot | Trim] = [Append(Word(written[-1]), number)]
                    if rng.random() < 0.2:
                        effects += [Snapshot(Words(tuple(written)), number)]
                        effects += [Trim("diary", number + 1)]
                    world.take(*effects)
                    synced = number
            except (PowerCut, StorageError):
                pass
            world.disk.before = None
            world.disk.crash()
            world.open()
            restored = world.diary.texts
            assert restored == written[: len(restored)]
            assert len(restored) >= synced
            written = restored[:]


class PowerCut(Exception):
    pass
