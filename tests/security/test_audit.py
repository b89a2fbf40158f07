"""Check that the audit limits failures per source and in total (SEC-4).

Administrative acts are always recorded.
"""

from __future__ import annotations

from oncecast.security.audit import (
    DENIED,
    FAILED,
    LOGIN,
    OK,
    REQUEST,
    SOURCES_MAX,
    TEXT_MAX,
    Event,
    Limit,
)


def denied(principal: str = "bob", address: str = "10.0.0.1:5000") -> Event:
    return Event(REQUEST, principal, "put", "news", DENIED, address, "Put")


def test_event_omits_empty_optional_fields() -> None:
    assert denied("").fields() == {
        "kind": "request",
        "principal": "",
        "verb": "put",
        "object": "news",
        "result": "denied",
        "address": "10.0.0.1:5000",
        "request": "Put",
    }


def test_client_text_is_truncated() -> None:
    event = Event(LOGIN, "x" * 10_000, "password", "y" * 10_000, FAILED, "", reason="z" * 10_000)
    assert {len(event.fields()[name]) for name in ("principal", "object", "reason")} == {TEXT_MAX}


def test_repeated_denials_are_counted_and_not_recorded() -> None:
    limit = Limit(0.0, burst=3, every=10.0)
    assert [limit.admit(denied(), 0.0) for _ in range(5)] == [0, 0, 0, None, None]
    assert limit.admit(denied("ann"), 0.0) == 2  # another source, which reports the count
    assert limit.admit(denied(), 9.0) is None
    assert limit.admit(denied(), 11.0) == 1


def test_new_port_on_the_same_host_gets_no_new_budget() -> None:
    limit = Limit(0.0, burst=1)
    assert limit.admit(denied(address="10.0.0.1:5000"), 0.0) == 0
    assert limit.admit(denied(address="10.0.0.1:5001"), 0.0) is None
    assert limit.admit(denied(address="10.0.0.2:5000"), 0.0) == 1


def test_all_sources_share_a_total_budget() -> None:
    limit = Limit(0.0, total_burst=100, total_every=1.0)
    names = [denied(f"user{number}") for number in range(10 * SOURCES_MAX)]
    assert sum(limit.admit(each, 0.0) is not None for each in names) == 100
    assert limit.suppressed == len(names) - 100
    assert sum(limit.admit(each, 60.0) is not None for each in names) == 60


def test_administrative_acts_are_always_recorded() -> None:
    limit = Limit(0.0, burst=1, total_burst=1)
    act = Event(REQUEST, "ann", "admin", "user bob", OK, "10.0.0.1:5000", "AddUser")
    assert [limit.admit(denied(), 0.0) for _ in range(2)] == [0, None]
    assert [limit.admit(act, 0.0) for _ in range(3)] == [1, 0, 0]


def test_backward_clock_jump_gives_no_extra_budget() -> None:
    limit = Limit(100.0, burst=1, every=10.0)
    assert limit.admit(denied(), 100.0) == 0
    assert limit.admit(denied(), 0.0) is None
