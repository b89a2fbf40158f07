"""The times to live of a topic's batches, without a machine (WRK-5)."""

from __future__ import annotations

from oncecast.broker.lifetimes import PRUNE_MIN, Lifetimes


def filled(count: int, floor: int = 0) -> Lifetimes:
    """Return lifetimes of batches at the offsets 0, 10, 20 and so on."""
    lifetimes = Lifetimes()
    for number in range(count):
        lifetimes.add(10 * number, number - 5, floor)
    return lifetimes


def rows(lifetimes: Lifetimes) -> list[tuple[int, int]]:
    return list(lifetimes.rows(0))


def test_only_batches_with_a_time_to_live_have_a_lifetime() -> None:
    lifetimes = filled(3)
    assert [lifetimes.of(offset) for offset in (0, 5, 10, 20, 21, 30)] == [
        -5,  # a delayed batch was late
        None,
        -4,
        -3,
        None,
        None,
    ]
    assert lifetimes
    assert not Lifetimes()


def test_snapshot_omits_batches_before_the_floor() -> None:
    lifetimes = filled(4)
    assert list(lifetimes.rows(10)) == [(10, -4), (20, -3), (30, -2)]
    assert list(lifetimes.rows(11)) == [(20, -3), (30, -2)]
    restored = Lifetimes()
    restored.restore(tuple(lifetimes.rows(11)))
    assert rows(restored) == [(20, -3), (30, -2)]


def test_old_batches_are_forgotten_once_they_are_many_and_most() -> None:
    lifetimes = filled(PRUNE_MIN)
    last = 10 * PRUNE_MIN
    lifetimes.add(last, 7, last)
    assert len(rows(lifetimes)) == PRUNE_MIN + 1  # not many enough
    lifetimes.add(last + 10, 8, last)
    assert len(rows(lifetimes)) == PRUNE_MIN + 2
    lifetimes.add(last + 20, 9, last + 1)
    assert rows(lifetimes) == [(last + 10, 8), (last + 20, 9)]


def test_old_batches_stay_while_they_are_few_of_all() -> None:
    count = 3 * PRUNE_MIN
    lifetimes = filled(count)
    dropped = 10 * (PRUNE_MIN + 10)
    lifetimes.add(10 * count, 1, dropped)
    assert len(rows(lifetimes)) == count + 1
    half = 10 * (count // 2 + 1)
    lifetimes.add(10 * count + 10, 1, half)
    assert rows(lifetimes)[0] == (half, count // 2 + 1 - 5)
