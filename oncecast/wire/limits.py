"""How much of everything the pub/sub machine takes before it says no.

The limits decide results, so they are part of the machine's state and change only by a command: a
log that is read again refuses just what it refused the first time. Their defaults are what a log
says nothing of, and must never change: a node that wants others proposes them.

A limit that turns a newer rule on is 0 by default: logs of older versions are read by the older
rule. `LIMITS` is what a node proposes unless its settings say otherwise.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value

NAME_BYTES_MAX = 255


class Limits(Value, tag="Limits"):
    topics_max: int = 100_000
    subscriptions_max: int = 10_000  # a topic
    producers_max: int = 100_000  # a topic
    sources_max: int = 10_000
    staged_parts_max: int = 100_000
    staged_bytes_max: int = 16 << 30
    staged_age_us: int = 7 * 24 * 3600 * 1_000_000  # abandoned parts would pin the log for ever
    batch_messages_max: int = 1_000_000
    batch_bytes_max: int = 64 << 20
    books_max: int = 0  # state directories under one producer name; 0: only the last 4 are known
    clock_step_us: int = 0  # by which one stamp may move the trusted time; 0: by any
    producer_idle_us: int = 0  # until the record of a producer is given back; 0: never
    source_idle_us: int = 0  # until the record of a source of staged puts is deleted; 0: never


LIMITS = Limits(
    books_max=1000,
    clock_step_us=10 * 60 * 1_000_000,
    producer_idle_us=7 * 24 * 3600 * 1_000_000,
    source_idle_us=7 * 24 * 3600 * 1_000_000,
)


def is_name(text: object) -> bool:
    """Any text that UTF-8 can write in 1 to 255 bytes."""
    if not isinstance(text, str):
        return False
    try:
        return 0 < len(text.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
