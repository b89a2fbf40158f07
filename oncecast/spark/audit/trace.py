"""The format of a trace, and its writer. A trace is a file of JSON lines with a header and an end.

Each line has its number in the file (from 1), a time and a kind. docs/audit.md explains the kinds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import IO, Annotated, Any

import msgspec

FORMAT = 1
Natural = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Small = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
LineNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]


class Entry(msgspec.Struct, kw_only=True, tag_field="kind"):
    """A line of any kind. A subclass redeclares its required fields without a default."""

    line: LineNumber
    time: Seconds
    topic: str = ""
    generation: Small = 0  # number of earlier topics with this name
    producer: str = ""
    sequence: int = -1
    subscription: str = ""
    session: int = -1
    offset: int = -1
    until: int = -1


# -- the file --


class Begin(Entry, kw_only=True, tag="begin"):
    format: Small
    run: str
    writer: str
    incarnation: str
    part: Small
    writers: list[str] = []


class End(Entry, kw_only=True, tag="end"):
    more: bool  # whether another part of the trace follows
    complete: bool  # whether the outcome of all calls is known


class Killed(Entry, kw_only=True, tag="killed"):
    """A node or the writer of another trace was killed."""

    node: str = ""
    writer: str = ""
    incarnation: str = ""


class Started(Entry, kw_only=True, tag="started"):
    node: str


# -- producers --


class Create(Entry, kw_only=True, tag="create"):
    topic: str
    drop_unread: bool


class Put(Entry, kw_only=True, tag="put"):
    topic: str
    producer: str
    sequence: Natural


class Stored(Put, kw_only=True, tag="stored"):
    offset: Natural


class Failed(Put, kw_only=True, tag="failed"):
    unknown: bool  # whether the message may be stored although the call failed


# -- subscriptions --


class Unsubscribe(Entry, kw_only=True, tag="unsubscribe"):
    topic: str
    subscription: str


class Subscribe(Unsubscribe, kw_only=True, tag="subscribe"):
    offset: Natural


class Seek(Subscribe, kw_only=True, tag="seek"):
    """A session that starts with a seek, or a seek by a client that does not read."""


class Fenced(Unsubscribe, kw_only=True, tag="fenced"):
    session: Small


class Attach(Fenced, kw_only=True, tag="attach"):
    offset: Natural


class Delivery(Attach, kw_only=True, tag="delivery"):
    producer: str
    sequence: Natural
    redelivered: bool


class Ack(Attach, kw_only=True, tag="ack"):
    pass


class Flushed(Attach, kw_only=True, tag="flushed"):
    pass


class Nack(Attach, kw_only=True, tag="nack"):
    pass


class Skip(Attach, kw_only=True, tag="skip"):
    until: Natural


class Leave(Attach, kw_only=True, tag="leave"):
    pass


# -- shared subscriptions --


class Share(Subscribe, kw_only=True, tag="share"):
    """A shared subscription starts at `offset`."""

    deliveries_max: Small  # 0 for no limit
    effects: bool  # whether the run has a line for each effect of a job


class Settled(Subscribe, kw_only=True, tag="settled"):
    """The node has reported that all messages before `offset` are settled."""


class Held(Attach, kw_only=True):
    """A line about a message that a worker holds."""

    token: Natural


class Lease(Held, kw_only=True, tag="lease"):
    producer: str
    sequence: Natural
    deliveries: Small


class Accept(Held, kw_only=True, tag="accept"):
    """The worker acknowledges the message."""


class Accepted(Held, kw_only=True, tag="accepted"):
    """The node has stored the acknowledgement."""


class Effect(Subscribe, kw_only=True, tag="effect"):
    """The effect of a job was stored."""

    token: Natural


class Letter(Subscribe, kw_only=True, tag="letter"):
    """A dead letter of the message at `offset` is in the dead-letter topic."""

    producer: str
    sequence: Natural


AnyLine = (
    Begin | End | Killed | Started | Create | Put | Stored | Failed | Unsubscribe | Subscribe
    | Seek | Fenced | Attach | Delivery | Ack | Flushed | Nack | Skip | Leave
    | Share | Settled | Lease | Accept | Accepted | Effect | Letter
)  # fmt: skip


class Trace:
    """The writer of one trace file. It starts with the header, and `end` writes the last line."""

    def __init__(
        self, file: IO[str], run: str, writer: str, *, part: int = 0, writers: Sequence[str] = ()
    ) -> None:
        self._file, self._lines, self._time = file, 0, 0.0
        incarnation = secrets.token_hex(8)
        who = {"run": run, "writer": writer, "incarnation": incarnation, "part": part}
        self.write("begin", format=FORMAT, **who, writers=list(writers))

    def write(self, kind: str, **fields: Any) -> None:
        self._lines += 1
        self._time = max(self._time, time.time())  # never decreases, even if the clock is set back
        line = {"line": self._lines, "time": self._time, "kind": kind, **fields}
        self._file.write(msgspec.json.encode(line).decode() + "\n")

    def end(self, *, complete: bool) -> None:
        """Write the last line. Without `complete`, the outcome of the last calls is unknown."""
        self.write("end", more=False, complete=complete)
        self._file.flush()
