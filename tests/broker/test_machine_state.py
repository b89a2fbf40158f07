"""The machine knows the needed slots, carries old entries and restores its state."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import msgspec
import pytest

from oncecast.broker import state
from oncecast.broker.extent import Extent
from oncecast.broker.index import Index
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.machine import Machine
from oncecast.broker.moves import AnyCommand
from oncecast.wire import commands as do
from oncecast.wire.limits import Limits
from oncecast.wire.results import Already, Carried, Published
from tests.broker.machine_steps import ALL, Steps


def test_log_is_kept_from_the_oldest_kept_message_onwards() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    epoch, reader = steps.open(), steps.attach()
    steps.put(epoch, 0)
    oldest = steps.slot
    steps.put(epoch, 1)
    assert steps.machine.needed() == oldest
    steps.ack(reader.epoch, 1)
    assert steps.machine.needed() == oldest + 1


def test_carried_message_is_read_from_its_new_slot() -> None:
    """SVC-9: live entries are copied forward, and the log is truncated."""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    put = do.Put("t", "p", epoch, 0, 3, 100, 0, b"")
    steps.apply(put)
    old = steps.slot
    steps.put(epoch, 3)
    ((_, left),) = steps.machine.extents_before(old + 1)
    assert left == Extent(old, 0, 3, 0)
    assert steps.apply(do.Carry(old, left.offset, put)) == Carried(moved=True)
    assert [each.slot for each in steps.machine.fetch("t", 0, ALL, ALL)] == [old + 2, old + 1]
    assert steps.machine.needed() == old + 1
    assert list(steps.machine.extents_before(old + 1)) == []
    assert [each.slot for _, each in steps.machine.extents_before(old + 2)] == [old + 1]


def test_late_carry_has_no_effect() -> None:
    """SVC-9: the entry was read or carried in the meantime."""
    steps = Steps()
    steps.subscribe()
    put = do.Put("t", "p", steps.open(), 0, 1, 100, 0, b"")
    steps.apply(put)
    carry = do.Carry(steps.slot, 0, put)
    assert steps.apply(carry) == Carried(moved=True)
    assert steps.apply(carry) == Carried(moved=False)
    steps.ack(steps.attach().epoch, 1)
    assert steps.apply(do.Carry(steps.slot, 0, put)) == Carried(moved=False)
    assert steps.machine.needed() == steps.slot + 1


def test_staged_part_is_carried_before_and_after_it_is_published() -> None:
    """SVC-9"""
    steps = Steps()
    steps.subscribe()
    stage = do.Stage("query", 0, "a", "t", 2, 100, 0, b"")
    steps.apply(stage)
    ((_, left),) = steps.machine.extents_before(ALL)
    assert left.offset == -1
    assert steps.apply(do.Carry(left.slot, -1, stage)) == Carried(moved=True)
    staged_at = steps.slot
    assert isinstance(steps.publish(0, "a"), Published)
    assert steps.apply(do.Carry(staged_at, -1, stage)) == Carried(moved=False)
    assert steps.apply(do.Carry(staged_at, 0, stage)) == Carried(moved=True)
    assert steps.machine.fetch("t", 0, ALL, ALL) == (Extent(steps.slot, 0, 2, 0, sequence=0),)


def test_fetch_returns_at_least_one_batch_and_stays_within_its_limits() -> None:
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    for number in range(5):
        steps.put(epoch, 2 * number, 2)
    fetch = steps.machine.fetch
    assert [each.offset for each in fetch("t", 0, ALL, 1)] == [0]
    assert [each.offset for each in fetch("t", 0, ALL, 299)] == [0, 2]
    assert [each.offset for each in fetch("t", 3, ALL, 300)] == [3, 4, 6]
    assert [(each.offset, each.count) for each in fetch("t", 1, 4, ALL)] == [(1, 1), (2, 2), (4, 1)]
    assert fetch("t", 0, 0, ALL) == ()
    assert fetch("t", 10, ALL, ALL) == ()
    assert fetch("nowhere", 0, ALL, ALL) == ()


def test_deduplication_survives_a_snapshot() -> None:
    """SVC-10"""
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0, 3)
    steps.machine = Machine.restore(list(steps.machine.state()))
    assert steps.put(epoch, 0, 3) == Already(0, 3)


def test_restored_topic_knows_the_last_fencing_epoch() -> None:
    """SVC-8: if the fencing epoch exceeded the last epoch, no reader could get a permit."""
    steps = Steps()
    steps.subscribe()
    steps.attach(incarnation="earlier")
    taken_over = steps.attach(incarnation="later").epoch
    steps.attach(incarnation="later")
    restored = Machine.restore(list(steps.machine.state())).registry
    assert taken_over <= restored.topics["t"].fenced <= restored.last_epoch


def test_state_does_not_depend_on_memory_layout() -> None:
    """SVC-10: one replica has compacted its index, and the other was restored earlier."""
    steps = Steps()
    steps.subscribe()
    epoch, reader = steps.open(), steps.attach()
    restored = None
    for number in range(3000):
        steps.put(epoch, number)
        if number == 1500:
            restored = Machine.restore(list(steps.machine.state()))
        if number > 10:
            steps.ack(reader.epoch, number - 10)
    assert restored is not None
    replay = Steps()
    replay.machine, replay.slot = restored, restored.registry.last_slot
    replay.ack(reader.epoch, 1490)
    for number in range(1501, 3000):
        replay.put(epoch, number)
        replay.ack(reader.epoch, number - 10)
    assert replay.machine.checksum() == steps.machine.checksum()


def test_large_index_is_split_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "COLUMN_ROWS", 7)
    monkeypatch.setattr(state, "CHUNK_ROWS", 5)
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    for number in range(100):
        steps.put(epoch, number)
    chunks = list(steps.machine.state())
    assert len(chunks) > 20
    restored = Machine.restore(chunks)
    assert restored.checksum() == steps.machine.checksum()
    assert restored.fetch("t", 0, ALL, ALL) == steps.machine.fetch("t", 0, ALL, ALL)


@pytest.mark.parametrize("chunks", [[], [b"\x90"], [b"\x91\xa1x"], [b"\xc1"]])
def test_invalid_state_is_not_restored(chunks: list[bytes]) -> None:
    """SVC-10"""
    with pytest.raises(ValueError, match=r"snapshot|expected|Expected|malformed"):
        Machine.restore(chunks)


def test_different_machines_have_different_checksums() -> None:
    """SVC-10"""
    steps, other = Steps(), Steps()
    for each in (steps, other):
        each.subscribe()
        each.put(each.open(), 0, 2)
    reader, same = steps.attach(), other.attach()
    assert steps.machine.checksum() == other.machine.checksum()
    steps.ack(reader.epoch, 1)
    other.ack(same.epoch, 0)
    assert steps.machine.checksum() != other.machine.checksum()


def test_lowest_live_slot_is_correct_for_any_drop_order() -> None:
    """SVC-9: the index uses at most twice the memory of its live slots."""
    rng, live_slots, model = Random(7), LiveSlots(), list[int]()
    for slot in range(0, 20_000, 2):
        live_slots.add(slot)
        model.append(slot)
        while len(model) > 50:
            live_slots.drop(model.pop(rng.randrange(len(model))))
        if slot % 200 == 0:
            assert live_slots.lowest() == model[0]
            assert live_slots.below(slot) == sum(each < slot for each in model)
    assert len(live_slots) == len(model)
    assert len(live_slots._alive) <= 1024
    assert list(live_slots.column()) == model
    copy = LiveSlots()
    copy.extend(array("Q", model))
    assert copy.lowest() == model[0]
    for slot in model:
        copy.drop(slot)
    assert copy.lowest() is None


def test_index_frees_the_memory_of_dropped_entries() -> None:
    """SVC-9"""
    live_slots = LiveSlots()
    index = Index(live_slots)
    for slot in range(10_000):
        live_slots.add(slot)
        index.append(slot, 1, 100, slot, (1, -1) if slot % 3 == 0 else (0, -1))
        if slot > 20:
            index.drop_below(slot - 20)
    assert index.batches == 21
    assert index.size == 2100
    assert len(index._live_slots) < 200
    assert len(index._notes) < 200
    index.clear()
    assert (index.batches, index.size, index.first) == (0, 0, 10_000)


# How many fields each type had in the first version.
FIRST = {"HeadRow": 6, "Limits": 9, "ProducerRow": 8, "OpenProducer": 6, "Attach": 3, "Tick": 1}


def as_first_written(value: Any) -> Any:
    """Drop the fields that were added later. A value is a list that begins with its tag."""
    if not isinstance(value, list):
        return value
    fields = FIRST.get(value[0]) if value and isinstance(value[0], str) else None
    return [as_first_written(each) for each in value[: None if fields is None else fields + 1]]


def test_state_and_log_from_the_first_version_can_be_read() -> None:
    """SVC-10: the defaults of later fields preserve the behaviour of that version."""
    steps = Steps(Limits())
    log: list[bytes] = []
    for command in (
        do.OpenProducer("t", "p", "inc-1", 1000, directory_id="directory"),
        do.Subscribe("t", "s", do.FromNew(), 1001),
        do.Attach("t", "s", "inc-1"),
        do.Put("t", "p", 1, 0, 2, 100, 1002, b""),
        do.Tick(1003),
    ):
        log.append(msgspec.msgpack.encode(command))
        steps.apply(command)

    def first(data: bytes) -> bytes:
        return msgspec.msgpack.encode(as_first_written(msgspec.msgpack.decode(data)))

    old = [first(chunk) for chunk in steps.machine.state()]
    assert old != list(steps.machine.state())
    assert Machine.restore(old).checksum() == steps.machine.checksum()
    replayed = Steps(Limits())
    for data in log:
        assert len(first(data)) <= len(data)
        replayed.apply(msgspec.msgpack.decode(first(data), type=AnyCommand))
    assert replayed.machine.checksum() == steps.machine.checksum()


def test_columns_are_little_endian_on_every_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-10: a replica on another platform may read them."""
    column = array("Q", [1, 0x0102030405060708])
    little = state._packed(column)
    assert state._unpacked(little) == column
    swapped = column[:]
    swapped.byteswap()
    monkeypatch.setattr("sys.byteorder", "big")
    assert state._packed(column) == swapped.tobytes()
    assert column[0] == 1  # the column itself is unchanged
    assert state._unpacked(little) == swapped
