"""Which record holds a slot: as a plain table would say, with runs instead of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.replication.index import Run, SlotIndex

Step = tuple[str, int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.integers(1, 6)),  # so many slots in a row
        st.tuples(st.just("put"), st.integers(1, 40)),  # a slot, wherever it is
        st.tuples(st.just("skip"), st.integers(1, 3)),  # records of something else
        st.tuples(st.just("trim"), st.integers(1, 40)),
        st.tuples(st.just("cut"), st.integers(1, 40)),
        st.tuples(st.just("reload"), st.just(0)),
    ),
    max_size=40,
)


def play(places: SlotIndex, steps: list[Step]) -> tuple[SlotIndex, dict[int, int]]:
    """The places, and what a table says of them."""
    table: dict[int, int] = {}
    record = 1
    for verb, number in steps:
        if verb == "next":
            start = max(table, default=0) + 1
            for slot in range(start, start + number):
                places.put(slot, record)
                table[slot] = record
                record += 1
        elif verb == "put":
            places.put(number, record)
            table[number] = record
            record += 1
        elif verb == "skip":
            record += number
        elif verb == "trim":
            places.trim(number)
            table = {slot: at for slot, at in table.items() if slot >= number}
        elif verb == "cut":
            places.cut(number)
            table = {slot: at for slot, at in table.items() if slot < number}
        else:
            state, places = places.state(), SlotIndex()
            places.restore(state)
    return places, table


@given(steps)
def test_every_slot_is_where_it_was_put_last(steps: list[Step]) -> None:
    places, table = play(SlotIndex(), steps)
    assert {slot: places.get(slot) for slot in range(80) if places.get(slot)} == table


@given(steps, st.integers(1, 45))
def test_the_lowest_record_is_not_above_any_that_is_still_wanted(
    steps: list[Step], slot: int
) -> None:
    """It may be lower: a record that was replaced stands in a run until that is trimmed."""
    places, table = play(SlotIndex(), steps)
    wanted = [record for at, record in table.items() if at >= slot]
    lowest = places.lowest(slot)
    assert (lowest is None) == (not wanted)
    assert lowest is None or lowest <= min(wanted)


@given(steps)
def test_what_is_put_next_comes_behind_all_that_is_known(steps: list[Step]) -> None:
    places, table = play(SlotIndex(), steps)
    assert places.end > max((slot for slot in table if slot not in places._apart), default=-1)


def test_slots_and_records_side_by_side_are_one_run() -> None:
    places = SlotIndex()
    for slot in range(1, 1001):
        places.put(slot, slot + 7)
    assert places.state() == ((1, 8, 1000),)
    places.trim(400)
    assert places.state() == ((400, 407, 601),)


def apart() -> SlotIndex:
    """Three runs: slots 1 to 3, 6 to 9, and 10."""
    places = SlotIndex()
    places.restore(((1, 11, 3), (6, 26, 4), (10, 40, 1)))
    return places


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
def test_trimming_leaves_the_slots_from_there_on(slot: int, left: tuple[Run, ...]) -> None:
    """REP-1"""
    places = apart()
    places.trim(slot)
    assert places.state() == left


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
def test_cutting_leaves_the_slots_before_there(slot: int, left: tuple[Run, ...]) -> None:
    """REP-1"""
    places = apart()
    places.cut(slot)
    assert places.state() == left


def test_lowest_record_of_the_slots_from_there_on_is_found() -> None:
    """REP-1"""
    places = apart()
    assert [places.lowest(slot) for slot in range(13)] == [
        *(11, 11, 12, 13, 26, 26, 26, 27, 28, 29, 40, None, None),
    ]
    places.put(8, 7)
    assert (places.end, [places.lowest(slot) for slot in (1, 8, 9)]) == (11, [7, 7, 29])
    assert (SlotIndex().end, SlotIndex().lowest(0)) == (0, None)


def test_slot_that_is_put_again_stands_apart() -> None:
    """REP-1"""
    places = SlotIndex()
    for slot, record in ((1, 11), (2, 12), (3, 20), (4, 21), (1, 30), (4, 31), (2, 12)):
        places.put(slot, record)
    state = ((1, 11, 2), (3, 20, 2), (1, 30, 1), (4, 31, 1))
    assert places.state() == state
    again = apart()
    again.restore(state)
    assert again.state() == state
    assert [again.get(slot) for slot in range(6)] == [None, 30, 12, 20, 31, None]
    assert [again.lowest(slot) for slot in (1, 2, 4, 5)] == [11, 12, 21, None]
    places.trim(2)
    assert places.state() == ((2, 12, 1), (3, 20, 2), (4, 31, 1))
    places.cut(4)
    assert places.state() == ((2, 12, 1), (3, 20, 1))
