"""Hand-made histories that can be linearized, and that cannot."""

from __future__ import annotations

from oncecast.history import History, check
from tests.history.making import NAME, ack, attached, got, look, lost_put, put, subscribed


def fine(*history: object) -> bool:
    operations: History = [*history]  # type: ignore[list-item]
    return check(operations).ok


def test_put_that_overlaps_a_look_may_be_seen_or_not() -> None:
    start = subscribed(0, 1)
    assert fine(start, put(2, 5, 0, "a"), look(3, 4, 0))
    assert fine(start, put(2, 5, 0, "a"), look(3, 4, 1))


def test_look_that_misses_a_put_which_had_returned_is_broken() -> None:
    """REP-1"""
    start = subscribed(0, 1)
    assert not fine(start, put(2, 3, 0, "a"), look(4, 5, 0))


def test_put_without_an_answer_may_have_happened_at_any_time_or_never() -> None:
    """SVC-2"""
    start = (subscribed(0, 1), attached(1.5, 1.6, 0, 0), lost_put(2, "a", client="bob"))
    assert fine(*start, put(3, 4, 0, "b"))
    assert fine(*start, put(3, 4, 1, "b"), got(5, 0, "a", "b"))
    assert fine(*start, put(3, 4, 0, "b"), got(5, 0, "b"), got(9, 1, "a"))
    assert not fine(*start, put(3, 4, 1, "b"), got(5, 0, "x", "b"))


def test_ack_of_the_last_epoch_may_precede_an_attach_that_was_never_answered() -> None:
    """SVC-11"""
    start = (
        subscribed(0, 1),
        put(2, 3, 0, "a", "b"),
        attached(4, 5, 0, 2),
        got(6, 0, "a", "b"),
        ack(7, None, 1),
        attached(7.5, None, -1, -1, reader="r2", epoch=0),
    )
    assert fine(*start, look(8, 9, 2, (NAME, 1, 3)))
    assert not fine(*start, look(8, 9, 2, (NAME, 2, 3)))


def test_subscribe_that_finds_the_subscription_may_have_made_it_in_an_earlier_attempt() -> None:
    """SVC-6"""
    first_answer_was_lost = subscribed(0, 9, 1, already=True)
    history = (put(3, 4, 0, "a"), attached(1, 2, 0, 0), got(5, 0, "a"), ack(6, None, 1))
    assert fine(first_answer_was_lost, *history)
