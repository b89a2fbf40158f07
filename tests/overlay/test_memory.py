"""Numbers and payloads are kept correctly, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncecast.kernel.protocol import NodeId
from oncecast.overlay.events import NUMBER_MAX, MessageId
from oncecast.overlay.memory import Numbers, Payloads

A = NodeId("a")
number = st.integers(1, 30)


@given(st.lists(number))
def test_numbers_contain_exactly_the_added_values(added: list[int]) -> None:
    numbers, model = Numbers(), set[int]()
    for each in added:
        assert numbers.add(each) is (each not in model)
        model.add(each)
        assert numbers.well_formed
        assert [n for n in range(1, 32) if n in numbers] == sorted(model)
    assert numbers.lowest_missing == min(set(range(1, 32)) - model)


@given(st.sets(number), number)
def test_add_all_to_adds_all_numbers_up_to_a_limit(added: set[int], upto: int) -> None:
    numbers = Numbers()
    for each in added:
        numbers.add(each)
    missing = numbers.missing_to(upto)
    assert [n for first, last in missing for n in range(first, last + 1)] == sorted(
        set(range(1, upto + 1)) - added
    )
    numbers.add_all_to(upto)
    assert numbers.well_formed
    assert {n for n in range(1, 32) if n in numbers} == added | set(range(1, upto + 1))


@given(st.sets(number), st.sets(number))
def test_lacks_of_shows_whether_the_other_side_has_more_numbers(
    ours: set[int], theirs: set[int]
) -> None:
    mine, other = Numbers(), Numbers()
    for each in ours:
        mine.add(each)
    for each in theirs:
        other.add(each)
    assert mine.lacks_of(other) is bool(theirs - ours)


@given(st.sets(number), st.sets(number))
def test_add_all_of_adds_all_numbers_from_the_other_side(ours: set[int], theirs: set[int]) -> None:
    mine, other = Numbers(), Numbers()
    for each in ours:
        mine.add(each)
    for each in theirs:
        other.add(each)
    mine.add_all_of(other)
    assert mine.well_formed
    assert {n for n in range(1, 32) if n in mine} == ours | theirs


def test_jumping_to_any_number_adds_one_gap() -> None:
    numbers = Numbers()
    numbers.add(NUMBER_MAX)
    numbers.add(1)
    assert numbers.gaps == [(2, NUMBER_MAX - 1)]


def test_well_formed_rejects_impossible_numbers() -> None:
    for bad in (
        Numbers(-1),
        Numbers(NUMBER_MAX + 1),
        Numbers(5, [(0, 2)]),
        Numbers(5, [(3, 2)]),
        Numbers(5, [(4, 5)]),
        Numbers(9, [(2, 4), (3, 6)]),
        Numbers(9, [(2, 4), (5, 6)]),
        Numbers(9, [(6, 7), (2, 3)]),
    ):
        assert not bad.well_formed, (bad.top, bad.gaps)
    assert Numbers(9, [(1, 2), (4, 8)]).well_formed


def test_oldest_payloads_are_evicted_by_count_and_by_bytes() -> None:
    payloads = Payloads(count_max=3, bytes_max=10)
    ids = [MessageId(A, n) for n in range(1, 6)]
    assert [payloads.add(each, b"123") for each in ids[:4]] == [[], [], [], [ids[0]]]
    assert payloads.add(ids[4], b"1234567") == [ids[1], ids[2]]
    assert (list(payloads.by_id), payloads.bytes) == (ids[3:], 10)


def test_oversized_payload_is_kept_until_the_next_payload() -> None:
    payloads = Payloads(count_max=3, bytes_max=10)
    payloads.add(MessageId(A, 1), b"x" * 11)
    assert list(payloads.by_id) == [MessageId(A, 1)]
    assert payloads.add(MessageId(A, 2), b"") == [MessageId(A, 1)]
    assert payloads.bytes == 0


def test_payload_added_twice_counts_once() -> None:
    payloads = Payloads(count_max=3, bytes_max=10)
    payloads.add(MessageId(A, 1), b"1234")
    payloads.add(MessageId(A, 1), b"1234")
    assert payloads.bytes == 4
