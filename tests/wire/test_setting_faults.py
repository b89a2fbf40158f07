"""Test the texts that refuse invalid policies, shared subscriptions and settlements (SVC-7)."""

from __future__ import annotations

import pytest

from oncecast.wire.retention import Policy
from oncecast.wire.sharing import DURATION_MAX_US, REASON_BYTES_MAX, Settle, Shared

LONG = "x" * (REASON_BYTES_MAX + 1)

FAULTS: list[tuple[Policy | Shared | Settle, str]] = [
    (Policy(age_us=-1_000_000), "the retention age is -1 s (minimum 0); use 0 for no limit"),
    (Policy(bytes_max=-1), "the retention size is -1 bytes (minimum 0); use 0 for no limit"),
    (
        Policy(keep_all=True, age_us=1),
        "keep_all cannot be combined with an age or size limit; set only one of them",
    ),
    (
        Policy(keep_all=True, drop_unread=True),
        "keep_all cannot be combined with drop_unread; set only one of them",
    ),
    (Policy(drop_unread=True), "drop_unread needs an age or size limit; set one"),
    (
        Shared(lease_us=0),
        "the lease is 0 s (limits 0.001 s and one year); choose a lease within the limits",
    ),
    (
        Shared(backoff_min_us=5_000_000, backoff_max_us=1_000_000),
        "the backoff is 5 to 1 s; use a minimum of at least 0 s, and a maximum that is not below "
        "it",
    ),
    (
        Shared(backoff_max_us=2 * DURATION_MAX_US),
        "the maximum backoff is 6.3072e+07 s (limit one year); choose a shorter backoff",
    ),
    (
        Shared(deliveries_max=-1),
        "the maximum of deliveries is -1 (limits 0 and 1,000,000); use 0 for no limit",
    ),
    (
        Shared(in_flight_max=0),
        "the in-flight maximum is 0 (limits 1 and 1,000,000); choose a number within the limits",
    ),
    (
        Settle("t", "s", "w", 1, accept=((1, 5, 0),)),
        "a run has 0 messages (minimum 1), starting at offset 5 (minimum 0); "
        "settle only delivered messages",
    ),
    (
        Settle("t", "s", "w", 1, release=((1, 0, 1, -5_000_000, ""),)),
        "the delay is -5 s (limits 0 and one year); choose a delay within the limits",
    ),
    (
        Settle("t", "s", "w", 1, reject=((1, 0, 1, LONG),)),
        f"a reason is {len(LONG):,} bytes long (limit {REASON_BYTES_MAX:,}); use a shorter reason",
    ),
    (
        Settle("t", "s", "w", 0),
        "the settlement number is 0 (minimum 1); count settlements from 1",
    ),
]


@pytest.mark.parametrize(("value", "text"), FAULTS, ids=[text[:50] for _, text in FAULTS])
def test_fault_names_the_value_the_limit_and_the_remedy(
    value: Policy | Shared | Settle, text: str
) -> None:
    """SVC-7"""
    assert value.fault == text
