"""The credit of a reader limits the messages and bytes that a node may send."""

from __future__ import annotations

import pytest

from oncecast.client.session.credit import UNREPORTED_BYTES_MAX, Credit

WINDOW = 8 << 20  # window size in bytes


def granted(messages: int = 10) -> Credit:
    credit = Credit(messages)
    credit.grant(0, 0)
    return credit


def test_new_reader_is_granted_a_full_window() -> None:
    """SVC-3"""
    assert Credit(10).grant(0, 0) == (10, WINDOW)
    assert Credit(10).grant(7, 5) == (8, WINDOW)  # two messages have arrived and are not taken
    assert UNREPORTED_BYTES_MAX == WINDOW // 8


def test_credit_is_renewed_only_after_the_application_takes_the_messages() -> None:
    """SVC-3: a batch counts as taken when its last message is taken."""
    credit = granted()
    credit.arrived(3, 100)
    credit.arrived(6, 50)
    for delivered, held in ((2, 150), (3, 50), (5, 50), (6, 0), (9, 0)):
        credit.taken(delivered)
        assert credit.grant(6, delivered)[1] == WINDOW - held


@pytest.mark.parametrize("more", [0, 5])
def test_reader_with_a_full_window_gets_no_further_credit(more: int) -> None:
    credit = granted()
    credit.arrived(1, WINDOW + more)
    assert credit.grant(1, 0) == (9, 0)


def test_received_bytes_are_reported_with_the_next_grant() -> None:
    assert Credit(10).unreported_bytes == 0
    credit = granted()
    credit.arrived(1, 100)
    credit.arrived(2, 20)
    assert credit.unreported_bytes == 120
    credit.grant(2, 0)
    assert credit.unreported_bytes == 0


def test_dropped_messages_use_no_credit() -> None:
    """SVC-3: the messages will be delivered again."""
    credit = granted()
    credit.arrived(3, 100)
    credit.forget()
    assert credit.grant(0, 0) == (10, WINDOW)
    credit.taken(3)
    assert credit.grant(3, 3) == (10, WINDOW)


@pytest.mark.parametrize(("expected", "low"), [(4, False), (5, True)])
def test_credit_is_low_when_half_of_the_messages_have_arrived(expected: int, low: bool) -> None:
    assert granted().low(expected) == low


@pytest.mark.parametrize(("size", "low"), [(WINDOW // 2 - 1, False), (WINDOW // 2, True)])
def test_credit_is_low_when_half_of_the_bytes_have_arrived(size: int, low: bool) -> None:
    credit = granted()
    credit.arrived(1, size)
    assert credit.low(1) == low


@pytest.mark.parametrize(("delivered", "worth"), [(4, False), (5, True)])
def test_grant_is_sent_when_half_of_the_messages_are_taken(delivered: int, worth: bool) -> None:
    assert granted().renewable(delivered) == worth


@pytest.mark.parametrize(("size", "worth"), [(WINDOW // 2 - 1, False), (WINDOW // 2, True)])
def test_grant_is_sent_when_half_of_the_bytes_are_taken(size: int, worth: bool) -> None:
    credit = granted()
    credit.arrived(1, size)
    assert not credit.renewable(0)
    credit.taken(1)
    assert credit.renewable(1) == worth
