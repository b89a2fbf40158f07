"""The index of records by slot behaves like a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.replication.index import Run, SlotIndex

Step = tuple[str, int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.integers(1, 6)),  # put the next slots in order
        st.tuples(st.just("put"), st.integers(1, 40)),  # put any slot
        st.tuples(st.just("skip"), st.integers(1, 3)),  # skip records of other kinds
        st.tuples(st.just("trim"), st.integers(1, 40)),
        st.tuples(st.just("cut"), st.integers(1, 40)),
        st.tuples(st.just("reload"), st.just(0)),
    ),
    max_size=40,
)


def play(index: SlotIndex, steps: list[Step]) -> tuple[SlotIndex, dict[int, int]]:
    """Apply the steps to the index and to a dict, and return both."""
    table: dict[int, int] = {}
    record = 1
    for verb, number in steps:
        if verb == "next":
            start = max(table, default=0) + 1
            for slot in range(start, start + number):
                index.put(slot, record)
                table[slot] = record
                record += 1
        elif verb == "put":
            index.put(number, record)
            table[number] = record
            record += 1
        elif verb == "skip":
            record += number
        elif verb == "trim":
            index.trim(number)
            table = {slot: at for slot, at in table.items() if slot >= number}
        elif verb == "cut":
            index.cut(number)
            table = {slot: at for slot, at in table.items() if slot < number}
        else:
            state, index = index.state(), SlotIndex()
            index.restore(state)
    return index, table


@given(steps)
def test_index_returns_the_last_record_for_each_slot(steps: list[Step]) -> None:
    index, table = play(SlotIndex(), steps)
    assert {slot: index.get(slot) for slot in range(80) if index.get(slot)} == table


@given(steps, st.integers(1, 45))
def test_lowest_record_is_not_above_any_needed_record(steps: list[Step], slot: int) -> None:
    """The lowest record may be lower, because a replaced record stays until its run is trimmed."""
    index, table = play(SlotIndex(), steps)
    needed = [record for at, record in table.items() if at >= slot]
    lowest = index.lowest(slot)
    assert (lowest is None) == (not needed)
    assert lowest is None or lowest <= min(needed)


@given(steps)
def test_index_end_is_above_every_slot_in_its_runs(steps: list[Step]) -> None:
    index, table = play(SlotIndex(), steps)
    assert index.end > max((slot for slot in table if slot not in index._apart), default=-1)


def test_consecutive_slots_and_records_form_one_run() -> None:
    index = SlotIndex()
    for slot in range(1, 1001):
        index.put(slot, slot + 7)
    assert index.state() == ((1, 8, 1000),)
    index.trim(400)
    assert index.state() == ((400, 407, 601),)


def three_runs() -> SlotIndex:
    """Return an index with three runs: slots 1 to 3, 6 to 9, and 10."""
    index = SlotIndex()
    index.restore(((1, 11, 3), (6, 26, 4), (10, 40, 1)))
    return index


@pytest.mark.parametrize(
    ("slot", "left"),
    [
        (0, ((1, 11, 3), (6, 26, 4), (10, 40, 1))),
        (1, ((1, 11, 3), (6, 26, 4), (10, 40, 1))),
        (3, ((3, 13, 1), (6, 26, 4), (10, 40, 1))),
        (4, ((6, 26, 4), (10, 40, 1))),
        (5, ((6, 26, 4), (10, 40, 1))),
        (6, ((6, 26, 4), (10, 40, 1))),
        (9, ((9, 29, 1), (10, 40, 1))),
        (10, ((10, 40, 1),)),
        (11, ()),
        (12, ()),
    ],
)
def test_trim_keeps_the_given_slot_and_all_later_slots(slot: int, left: tuple[Run, ...]) -> None:
    """REP-1"""
    index = three_runs()
    index.trim(slot)
    assert index.state() == left


@pytest.mark.parametrize(
    ("slot", "left"),
    [
        (1, ()),
        (2, ((1, 11, 1),)),
        (4, ((1, 11, 3),)),
        (6, ((1, 11, 3),)),
        (7, ((1, 11, 3), (6, 26, 1))),
        (10, ((1, 11, 3), (6, 26, 4))),
        (11, ((1, 11, 3), (6, 26, 4), (10, 40, 1))),
    ],
)
def test_cut_keeps_only_slots_before_the_given_slot(slot: int, left: tuple[Run, ...]) -> None:
    """REP-1"""
    index = three_runs()
    index.cut(slot)
    assert index.state() == left


def test_lowest_returns_the_first_record_at_or_after_the_given_slot() -> None:
    """REP-1"""
    index = three_runs()
    assert [index.lowest(slot) for slot in range(13)] == [
        *(11, 11, 12, 13, 26, 26, 26, 27, 28, 29, 40, None, None),
    ]
    index.put(8, 7)
    assert (index.end, [index.lowest(slot) for slot in (1, 8, 9)]) == (11, [7, 7, 29])
    assert (SlotIndex().end, SlotIndex().lowest(0)) == (0, None)


def test_rewritten_slot_gets_its_own_run() -> None:
    """REP-1"""
    index = SlotIndex()
    for slot, record in ((1, 11), (2, 12), (3, 20), (4, 21), (1, 30), (4, 31), (2, 12)):
        index.put(slot, record)
    state = ((1, 11, 2), (3, 20, 2), (1, 30, 1), (4, 31, 1))
    assert index.state() == state
    again = three_runs()
    again.restore(state)
    assert again.state() == state
    assert [again.get(slot) for slot in range(6)] == [None, 30, 12, 20, 31, None]
    assert [again.lowest(slot) for slot in (1, 2, 4, 5)] == [11, 12, 21, None]
    index.trim(2)
    assert index.state() == ((2, 12, 1), (3, 20, 2), (4, 31, 1))
    index.cut(4)
    assert index.state() == ((2, 12, 1), (3, 20, 1))
