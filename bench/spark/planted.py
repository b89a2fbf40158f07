"""Write a trace of any length with three planted faults: a loss, a duplicate and a swap."""

from __future__ import annotations

from typing import IO

from oncecast.spark.audit.trace import Trace

TOPICS, SUBSCRIPTIONS, PRODUCERS = 3, 2, 4
ACK_EVERY = 10  # number of messages per ack
LINES = 2 + SUBSCRIPTIONS * (1 + 1 / ACK_EVERY)  # number of trace lines per message
# The faults that the audit must report: fault, topic, subscription, offset.
LOST = ("lost", "topic0", "sub0", 100)
AGAIN = ("duplicated", "topic1", "sub1", 200)
SWAPPED = ("out of order", "topic2", "sub0", 300)
FAULTS = {LOST, AGAIN, SWAPPED}


def write_planted(file: IO[str], messages: int) -> None:
    """Write a trace with this many messages in each topic."""
    trace = Trace(file, "planted", "bench")
    readers = [
        (f"topic{number // SUBSCRIPTIONS}", f"sub{number % SUBSCRIPTIONS}", number)
        for number in range(TOPICS * SUBSCRIPTIONS)
    ]
    topics = [f"topic{number}" for number in range(TOPICS)]
    for topic, name, session in readers:
        trace.write("subscribe", topic=topic, subscription=name, offset=0)
        trace.write("attach", topic=topic, subscription=name, session=session, offset=0)
    for offset in range(messages):
        message = {"producer": f"p{offset % PRODUCERS}", "sequence": offset // PRODUCERS}
        for topic in topics:
            trace.write("put", topic=topic, **message)
            trace.write("stored", topic=topic, **message, offset=offset)
        for topic, name, session in readers:
            reader = {"topic": topic, "subscription": name, "session": session}
            for at in offsets(topic, name, offset):
                who = {"producer": f"p{at % PRODUCERS}", "sequence": at // PRODUCERS}
                trace.write("delivery", **reader, **who, offset=at, redelivered=False)
            if offset % ACK_EVERY == ACK_EVERY - 1:
                trace.write("ack", **reader, offset=offset)
    trace.end(complete=True)


def offsets(topic: str, name: str, offset: int) -> tuple[int, ...]:
    """Return the messages that a reader gets in one turn."""
    if (topic, name, offset) == LOST[1:]:
        return ()
    if (topic, name, offset) == AGAIN[1:]:
        return offset, offset
    if (topic, name) == SWAPPED[1:3]:
        first = SWAPPED[3]
        return {first: (), first + 1: (first + 1, first)}.get(offset, (offset,))
    return (offset,)
