"""Limits of the pub/sub machine.

Limits affect results, so they are part of the machine's state and only a command changes them. A
replay therefore refuses the same commands. The defaults apply to logs that set no limits, and must
never change. A node that needs other limits proposes them.

A limit that enables a newer rule defaults to 0, so that older logs keep the old rule. `LIMITS`
holds the values that a node proposes by default.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value

NAME_BYTES_MAX = 255
PARTS_MAX = 10_000  # maximum number of staged parts in one publish
DIGEST_BYTES_MAX = 64  # maximum size of a content digest

# Limits for users, tokens and rules.
# Never change these limits: all replicas must compute the same result for the same command.
USERS_MAX = 10_000
TOKENS_MAX = 10_000
RULES_MAX = 10_000
RULES_OF_PRINCIPAL_MAX = 1000


class Limits(Value, tag="Limits"):
    topics_max: int = 100_000
    subscriptions_max: int = 10_000  # per topic
    producers_max: int = 100_000  # per topic
    sources_max: int = 10_000
    staged_parts_max: int = 100_000
    staged_bytes_max: int = 16 << 30
    # Staged parts that are never published would prevent log truncation.
    staged_age_us: int = 7 * 24 * 3600 * 1_000_000
    batch_messages_max: int = 1_000_000
    batch_bytes_max: int = 64 << 20
    directories_max: int = 0  # maximum state directories per producer name; 0 to keep the last 4
    # Maximum step of the trusted time per stamp, in microseconds; 0 for no limit.
    clock_step_us: int = 0
    # Idle time after which the record of a producer is deleted; 0 for never.
    producer_idle_us: int = 0
    source_idle_us: int = 0  # idle time after which the record of a source is deleted; 0 for never
    # Maximum number of subscriptions over all topics; 0 for no limit.
    subscriptions_total_max: int = 0
    producers_total_max: int = 0  # maximum number of producers over all topics; 0 for no limit


LIMITS = Limits(
    directories_max=1000,
    clock_step_us=10 * 60 * 1_000_000,
    producer_idle_us=7 * 24 * 3600 * 1_000_000,
    source_idle_us=7 * 24 * 3600 * 1_000_000,
    subscriptions_total_max=100_000,
    producers_total_max=200_000,
)


def is_name(text: object) -> bool:
    """Return whether `text` is a str of 1 to 255 bytes in UTF-8."""
    if not isinstance(text, str):
        return False
    try:
        return 0 < len(text.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:  # a lone surrogate
        return False
