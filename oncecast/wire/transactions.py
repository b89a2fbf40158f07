"""Transactions: put, and acknowledge what was consumed, in one command or not at all (TXN-1).

    client → node    Call(OpenSource), Call(Stage), Call(EndTransaction)
    node → client    Answer

A process opens its source and gets an epoch. A newer process with the same source gets a higher
epoch. The machine then refuses the older process as `Fenced`, and drops the parts that it has
staged.

A process numbers its transactions. `EndTransaction` commits or aborts one of them. It contains the
messages of a small transaction. A large transaction first stages parts with `Stage`, under the
epoch and the number. A commit checks everything before it changes anything:

1. The epoch of the source is current.
2. All parts are staged, and all topics accept the messages.
3. All messages that the transaction consumed are still unacknowledged: each exclusive reader still
   has its epoch and its cursor, and each worker still has its leases.

Then it appends the messages and acknowledges what was consumed. Otherwise the transaction is
aborted. The machine keeps the result of each number, also of a refused one, until the client says
that it has the result (`finished`). So a copy gets the result of the original.

On a ring, all topics of a transaction have the same tag in braces, so they always belong to the
same group. The record of the source belongs to the tag.

These commands need feature level 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from oncecast.kernel.protocol import Value
from oncecast.wire.limits import PARTS_MAX
from oncecast.wire.sharing import Run

TRANSACTION_LEVEL = 3  # the feature level of all commands and rules of this module

# Never change these limits: all replicas must compute the same result for the same command.
# A command at all of these limits has fewer items than a frame may have.
UNFINISHED_MAX = 100  # maximum number of transactions of one source whose results are kept
TOPICS_MAX = 500  # maximum number of topics with messages in one command
STAGED_MAX = 5000  # maximum number of staged parts of one transaction
SUBSCRIPTIONS_MAX = 500
JOBS_MAX = 2000  # maximum number of acknowledged messages of shared subscriptions

assert STAGED_MAX <= PARTS_MAX


class Output(Value, tag=False):
    """The messages of a transaction for one topic. They follow its staged parts."""

    topic: str
    count: int
    size: int
    batch: bytes


class Consumed(Value, tag=False):
    """Messages of an exclusive subscription, from `first` up to but excluding `upto`.

    `epoch` is the epoch of the reader. Another reader, or a seek, ends it.
    """

    topic: str
    subscription: str
    epoch: int
    first: int
    upto: int


class Accepted(Value, tag=False):
    """Messages of a shared subscription that `worker` holds."""

    topic: str
    subscription: str
    worker: str
    runs: tuple[Run, ...]


class EndTransaction(Value, tag="EndTransaction"):
    """Commit or abort the transaction `number` of a source, and drop its other staged parts.

    The client has the results of all numbers before `finished`, so the machine forgets them. On a
    ring, `topic` decides the owner. Its tag is the tag of all topics of the transaction.
    """

    feature_level: ClassVar[int] = TRANSACTION_LEVEL

    source: str
    topic: str
    epoch: int
    number: int
    finished: int
    at: int
    commit: bool = True
    parts: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    consumed: tuple[Consumed, ...] = ()
    accepted: tuple[Accepted, ...] = ()

    @property
    def inputs(self) -> tuple[Consumed | Accepted, ...]:
        """Return what the transaction acknowledges."""
        return (*self.consumed, *self.accepted)

    @property
    def fault(self) -> str:
        """Return what is wrong with the command, or "" if it is valid."""
        if not 0 <= self.finished <= self.number:
            return (
                f"the transaction has number {self.number} and finished {self.finished}; "
                "use a number of at least 0, and a finished number from 0 to that number"
            )
        if self.number - self.finished >= UNFINISHED_MAX:
            return (
                f"the source has {self.number - self.finished + 1} unfinished transactions "
                f"(limit {UNFINISHED_MAX}); wait for the results of earlier ones"
            )
        return self._count_fault or self._repeated_fault or self._range_fault

    @property
    def _count_fault(self) -> str:
        jobs = sum([max(count, 0) for each in self.accepted for _, _, count in each.runs])
        counts = (
            ("staged parts", len(self.parts), STAGED_MAX),
            ("topics", len(self.outputs), TOPICS_MAX),
            ("subscriptions", len(self.inputs), SUBSCRIPTIONS_MAX),
            ("acknowledged jobs", jobs, JOBS_MAX),
        )
        for what, count, limit in counts:
            if count > limit:
                return f"the transaction has {count:,} {what} (limit {limit:,}); use several"
        return ""

    @property
    def _repeated_fault(self) -> str:
        if (part := repeated(self.parts)) is not None:
            return f"the part {part!r} is listed twice; list each part once"
        if (topic := repeated(each.topic for each in self.outputs)) is not None:
            return f"topic {topic!r} has two batches; combine them"
        where = repeated((each.topic, each.subscription) for each in self.inputs)
        if where is not None:
            return f"subscription {where[1]!r} of topic {where[0]!r} is listed twice; list it once"
        return ""

    @property
    def _range_fault(self) -> str:
        for each in self.consumed:
            if not 0 <= each.first < each.upto:
                return (
                    f"the range {each.first} to {each.upto} of topic {each.topic!r} is empty; "
                    "acknowledge only delivered messages"
                )
        for job in self.accepted:
            if not job.runs or any(first < 0 or count < 1 for _, first, count in job.runs):
                return f"a run of topic {job.topic!r} is empty; acknowledge only delivered messages"
            offsets = (o for _, first, count in job.runs for o in range(first, first + count))
            if (offset := repeated(offsets)) is not None:
                return f"offset {offset} of topic {job.topic!r} is listed twice; list it once"
        return ""


Item = TypeVar("Item")


def repeated(items: Iterable[Item]) -> Item | None:
    """Return the first item that occurs for the second time, or None."""
    seen: set[Item] = set()
    for each in items:
        if each in seen:
            return each
        seen.add(each)
    return None


def across_groups(one: str, other: str) -> str:
    """Return why two topics cannot be in one transaction on a ring."""
    return (
        f"topics {one!r} and {other!r} can be in different groups of the ring; to use both in one "
        "transaction, give them the same tag in braces, as in '{shop}.orders' and '{shop}.bills'"
    )
