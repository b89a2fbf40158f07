"""Retention policies as Kafka configuration."""

from __future__ import annotations

from oncecast.wire.kafka_records import MILLISECOND
from oncecast.wire.retention import Policy

RETENTION_MS, RETENTION_BYTES, CLEANUP = "retention.ms", "retention.bytes", "cleanup.policy"
UNLIMITED = -1
INT64_MAX = (1 << 63) - 1  # the largest value of a Kafka configuration
AGE_MS_MAX = INT64_MAX // MILLISECOND  # a longer time means no limit


def hard_limit(age_us: int, bytes_max: int) -> Policy:
    """Return a policy that deletes read and unread messages by age and size."""
    if age_us <= 0 and bytes_max <= 0:
        return Policy(keep_all=True)
    return Policy(age_us=max(age_us, 0), bytes_max=max(bytes_max, 0), drop_unread=True)


def configuration(policy: Policy) -> dict[str, str]:
    """Return the policy as Kafka configuration."""
    age = policy.age_us // MILLISECOND if policy.age_us else UNLIMITED
    size = policy.bytes_max or UNLIMITED
    return {RETENTION_MS: str(age), RETENTION_BYTES: str(size), CLEANUP: "delete"}


def changed(policy: Policy, wanted: dict[str, str | None]) -> Policy:
    """Return the policy with this configuration. Raise ValueError if it is not supported."""
    age, size = policy.age_us, policy.bytes_max
    for name, value in wanted.items():
        if name == RETENTION_MS and value is not None:
            milliseconds = max(integer(name, value), 0)
            age = milliseconds * MILLISECOND if milliseconds <= AGE_MS_MAX else 0
        elif name == RETENTION_BYTES and value is not None:
            size = max(integer(name, value), 0)
        elif name == CLEANUP and value not in (None, "delete"):
            raise ValueError(f"cleanup.policy={value} is not supported; use delete")
    return hard_limit(age, size)


def integer(name: str, value: str) -> int:
    try:
        found = int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r} is not an integer") from None
    if abs(found) > INT64_MAX:
        raise ValueError(f"{name}={value!r} has more than 64 bits")
    return found
