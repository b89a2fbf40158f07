"""SVC-9: the index of the messages in a topic, and the slots that are still needed."""

from __future__ import annotations

from array import array

import pytest

from oncecast.broker import index as index_module
from oncecast.broker import live_slots as places_module
from oncecast.broker.clock import Retiming
from oncecast.broker.extent import Extent
from oncecast.broker.index import PLAIN, Entry, Index
from oncecast.broker.live_slots import LiveSlots


def live_slots(*added: int) -> LiveSlots:
    found = LiveSlots()
    for slot in added:
        found.add(slot)
    return found


def columns(found: LiveSlots) -> tuple[list[int], bytes, int, int]:
    """Return the slots, their live flags, the head and the number of dead rows."""
    return list(found._slots), bytes(found._alive), found._head, found._dead


def filled(*entries: tuple[int, int, int], start: int = 0) -> Index:
    """Return an index of entries (slot, messages, bytes), one per second."""
    index = Index(live_slots())
    index.begin_at(start)
    for time, (slot, count, size) in enumerate(entries):
        index._live_slots.add(slot)
        index.append(slot, count, size, time)
    return index


# -- live slots --


def test_lowest_slot_is_the_first_live_slot() -> None:
    """SVC-9"""
    found = live_slots(3, 5, 8, 9)
    assert (found.lowest(), len(found), found.below(9), found.below(10)) == (3, 4, 3, 4)
    found.drop(5)
    assert (found.lowest(), len(found), found.below(9)) == (3, 3, 2)
    found.drop(3)
    assert (found.lowest(), len(found), found.below(9)) == (8, 2, 1)
    found.drop(9)
    found.drop(8)
    assert (found.lowest(), len(found), found.below(99)) == (None, 0, 0)
    found.add(12)
    assert (found.lowest(), len(found), found.below(12), found.below(13)) == (12, 1, 0, 1)


def test_head_moves_to_the_next_live_row() -> None:
    """SVC-9: the next live row directly follows the dropped row."""
    found = live_slots(3, 5)
    found.drop(3)
    assert columns(found) == ([3, 5], b"\0\1", 1, 1)
    assert list(found.column()) == [5]
    assert columns(found) == ([5], b"\1", 0, 0)


def test_rows_are_compacted_when_more_than_half_are_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-9"""
    assert places_module.COMPACT_MIN == 1024
    monkeypatch.setattr(places_module, "COMPACT_MIN", 6)
    found = live_slots(*range(7))
    for slot in (6, 4, 2):
        found.drop(slot)
    assert columns(found) == (list(range(7)), b"\1\1\0\1\0\1\0", 0, 3)
    found.drop(0)  # now 4 of 7 rows are dead
    assert columns(found) == ([1, 3, 5], b"\1\1\1", 0, 0)
    found = live_slots(*range(8))
    for slot in range(4):
        found.drop(slot)
    assert columns(found)[2:] == (4, 4)  # exactly half of the rows are dead
    found.drop(4)
    assert columns(found) == ([5, 6, 7], b"\1\1\1", 0, 0)
    found = live_slots(*range(6))
    for slot in range(6):
        found.drop(slot)
    assert columns(found) == (list(range(6)), bytes(6), 6, 6)  # too few rows to compact


def test_restored_slots_are_appended_as_live() -> None:
    """SVC-9"""
    found = live_slots(1)
    found.extend(array("Q", [4, 6]))
    assert columns(found) == ([1, 4, 6], b"\1\1\1", 0, 0)


# -- the index --


def test_new_index_is_empty() -> None:
    """SVC-9"""
    index = Index(live_slots())
    assert (index.summary(), index.size, index.batches) == ((0, 0, 0, True), 0, 0)
    assert (index.newest_batch, index.since(0), index.newest(0)) == (0, 0, 0)
    assert list(index.entries(0)) == []


def test_index_returns_entries_of_whole_batches() -> None:
    """REP-6"""
    index = filled((3, 2, 10), (5, 3, 20), (9, 1, 30))
    rows = [
        Entry(0, 2, 10, 0, *PLAIN, 3),
        Entry(2, 3, 20, 1, *PLAIN, 5),
        Entry(5, 1, 30, 2, *PLAIN, 9),
    ]
    assert list(index.entries(0)) == rows
    assert list(index.entries(1)) == rows
    assert list(index.entries(2)) == list(index.entries(4)) == rows[1:]
    assert list(index.entries(5)) == rows[2:]
    assert list(index.entries(6)) == []
    index.drop_below(3)  # in the middle of a batch
    assert list(index.entries(0)) == rows[1:]
    assert index.summary() == (3, 6, 10, True)
    assert (index.size, index.batches, index.newest_batch) == (50, 2, 5)
    index.drop_below(6)
    assert list(index.entries(0)) == []
    assert (index.summary(), index.size, index.newest_batch) == ((6, 6, 60, True), 0, 6)
    index._live_slots.add(12)
    index.append(12, 1, 7, 5)
    assert (index.size, list(index.entries(0))) == (7, [Entry(6, 1, 7, 5, *PLAIN, 12)])


def test_batch_is_dropped_with_its_last_message() -> None:
    """SVC-9"""
    index = filled((3, 2, 10), (5, 3, 20), (9, 1, 30))
    lowest = []
    for offset in range(1, 7):
        index.drop_below(offset)
        lowest.append(index._live_slots.lowest())
    assert lowest == [3, 5, 5, 5, 9, None]


@pytest.mark.parametrize(
    ("entries", "dropped", "left"),
    [
        (10, 5, 10),  # exactly half of the rows are dead
        (8, 4, 8),
        (8, 5, 3),
        (7, 4, 7),  # a short index is compacted only when it is empty
        (5, 5, 0),
        (12, 5, 12),
    ],
)
def test_index_is_compacted_when_more_than_half_of_its_rows_are_gone(
    monkeypatch: pytest.MonkeyPatch, entries: int, dropped: int, left: int
) -> None:
    """SVC-9: more than `COMPACT_MIN` rows must be gone, too."""
    assert index_module.COMPACT_MIN == 64
    monkeypatch.setattr(index_module, "COMPACT_MIN", 4)
    index = filled(*[(slot, 1, 10) for slot in range(entries)])
    index.drop_below(dropped)
    assert len(index._slots) == left
    assert (index.batches, index.size) == (entries - dropped, 10 * (entries - dropped))
    assert [each.offset for each in index.entries(0)] == list(range(dropped, entries))


def test_all_slots_are_checked_if_they_are_out_of_order() -> None:
    """SVC-9: a carried batch has a higher slot than newer batches."""
    index = filled((3, 1, 10), (5, 1, 10), (9, 1, 10))
    assert index.move(0, 3, 12)
    assert (index.summary()[3], [each.slot for each in index.before(10)]) == (False, [5, 9])
    index = filled((3, 1, 10), (5, 1, 10), (4, 1, 10))
    assert (index.summary()[3], [each.slot for each in index.before(5)]) == (False, [3, 4])
    index.clear()
    assert index.summary()[3]  # the slots are in order again


def test_compaction_does_not_mark_disordered_slots_as_ordered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SVC-9: slots count as ordered again only after all rows are dropped."""
    monkeypatch.setattr(index_module, "COMPACT_MIN", 1)
    ordered = filled((3, 1, 10), (5, 1, 10), (9, 1, 10))
    ordered.drop_below(2)
    assert (len(ordered._slots), ordered.summary()[3]) == (1, True)
    disordered = filled((9, 1, 10), (3, 1, 10), (5, 1, 10))
    disordered.drop_below(2)
    assert (len(disordered._slots), disordered.summary()[3]) == (1, False)


def test_entry_moves_only_from_its_current_slot() -> None:
    """SVC-9"""
    index = filled((3, 2, 10), (5, 3, 20))
    assert not index.move(-1, 3, 9)
    assert not index.move(1, 5, 9)  # in the middle of the first batch
    assert not index.move(0, 5, 9)
    assert not index.move(5, 5, 9)
    assert [each.slot for each in index.entries(0)] == [3, 5]
    assert index.move(2, 5, 9)
    assert [each.slot for each in index.entries(0)] == [3, 9]
    assert not index.summary()[3]
    lone = filled((3, 2, 10))
    assert lone.move(0, 3, 9)
    assert lone.summary()[3]


def test_index_shows_whether_an_extent_ends_with_its_batch() -> None:
    """SVC-3"""
    index = filled((3, 2, 10), (5, 3, 20))
    assert [index.ends(Extent(3, 0, count, 0)) for count in (1, 2)] == [False, True]
    assert [index.ends(Extent(5, 0, count, 2)) for count in (1, 2, 3)] == [False, False, True]


def test_moving_an_index_to_a_later_offset_drops_its_entries() -> None:
    """REP-6"""
    index = filled((3, 2, 10), (5, 3, 20))
    index.begin_at(9)
    assert (index._live_slots.lowest(), index.summary()) == (None, (9, 9, 30, True))
    assert list(index.entries(0)) == []


def test_times_in_the_index_never_decrease() -> None:
    """SVC-9"""
    index = Index(live_slots(1, 2, 3, 4))
    for slot, time in ((1, 50), (2, 40), (3, 60), (4, 55)):
        index.append(slot, 1, 10, time)
    assert [each.time for each in index.entries(0)] == [50, 50, 60, 60]
    assert [index.since(time) for time in (50, 51, 60, 61)] == [0, 2, 2, 4]
    index.retime(Retiming(50, lambda time: 55))
    assert [each.time for each in index.entries(0)] == [50, 50, 55, 55]
    index.retime(Retiming(49, lambda time: time - 10))
    assert [each.time for each in index.entries(0)] == [40, 40, 45, 45]
