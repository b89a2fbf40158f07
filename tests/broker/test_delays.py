"""The delayed messages of a topic, without a machine (WRK-5)."""

from __future__ import annotations

from oncecast.broker.clock import Retiming
from oncecast.broker.delays import Delayed, Delays, number_at, position


def delayed(
    slot: int = 1,
    *,
    count: int = 2,
    size: int = 10,
    skip: int = 0,
    time: int = 100,
    delay: int = 50,
    fixed: int = 0,
    ttl: int = 0,
) -> Delayed:
    return Delayed(slot, count, size, skip, time, delay, fixed, ttl)


def filled(*batches: Delayed) -> Delays:
    delays = Delays()
    for each in batches:
        delays.add(each)
    return delays


def slots(delays: Delays, now: int, most: int = 100) -> list[int]:
    return [each.slot for each in delays.take(now, most)]


def test_batches_leave_in_the_order_of_their_due_times() -> None:
    delays = filled(delayed(1, delay=70), delayed(2, delay=50), delayed(3, fixed=160))
    assert delays.due == 150
    assert slots(delays, 149) == []
    assert slots(delays, 150) == [2]
    assert slots(delays, 200, 1) == [3]
    assert slots(delays, 200, 0) == []
    assert slots(delays, 200) == [1]
    assert delays.due is None


def test_batches_with_the_same_due_time_keep_their_order() -> None:
    delays = filled(*(delayed(slot) for slot in range(1, 20)))
    assert slots(delays, 150) == list(range(1, 20))


def test_totals_count_only_batches_that_wait() -> None:
    delays = filled(delayed(1), delayed(2, count=3, size=7, delay=60))
    assert (delays.messages, delays.size) == (5, 17)
    assert slots(delays, 150) == [1]
    assert (delays.messages, delays.size) == (3, 7)
    assert delays.clear() == [2]
    assert (delays.messages, delays.size, delays.due, delays.batches) == (0, 0, None, {})
    delays.add(delayed(4))
    assert slots(delays, 1000) == [4]


def test_numbers_begin_at_one_and_are_never_reused() -> None:
    delays = filled(delayed(1))
    assert list(delays.batches) == [1]
    delays.clear()
    delays.add(delayed(2))
    assert (list(delays.batches), delays.last) == ([2], 2)
    assert [number_at(position(number)) for number in (1, 2)] == [1, 2]
    assert position(1) < -1


def test_batch_moves_only_from_the_slot_that_it_is_in() -> None:
    delays = filled(delayed(1))
    assert not delays.move(1, 7, 9)
    assert not delays.move(2, 1, 9)
    assert delays.move(1, 1, 9)
    assert slots(delays, 150) == [9]


def test_corrected_clock_reorders_batches() -> None:
    """WRK-5: a fixed time is not corrected, and a put before the correction neither."""
    delays = filled(
        delayed(1, time=500), delayed(2, fixed=400), delayed(3, time=100), delayed(4, time=450)
    )
    delays.retime(Retiming(400, lambda time: 300))
    assert delays.due == 150
    assert slots(delays, 1000) == [3, 1, 4, 2]
    assert slots(delays, 1000) == []


def test_only_later_puts_are_corrected() -> None:
    delays = filled(delayed(1, time=400), delayed(2, time=401, delay=40))
    delays.retime(Retiming(400, lambda time: 300))
    assert slots(delays, 449) == [2]
    assert delays.due == 450


def test_clock_of_another_group_shifts_the_puts() -> None:
    delays = filled(delayed(1, time=500), delayed(2, fixed=300), delayed(3, time=100, delay=10))
    delays.shift(-200)
    assert delays.due == 10
    assert slots(delays, 10) == [3]  # a time is never negative
    assert slots(delays, 349) == [2]
    assert slots(delays, 350) == [1]


def test_rows_restore_every_field() -> None:
    before = filled(delayed(1, skip=1, ttl=9), delayed(2, fixed=120, count=4))
    after = Delays()
    after.last = before.last
    after.restore(tuple(before.rows()))
    assert list(after.rows()) == list(before.rows())
    assert (after.messages, after.size, after.due) == (6, 20, 120)
    (first,) = [each for each in after.take(1000, 100) if each.slot == 1]
    assert (first.skip, first.ttl, first.due) == (1, 9, 150)
