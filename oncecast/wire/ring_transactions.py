"""Transactions across the groups of a ring: two phases, and one decision (TXN-2).

    client → node      Call(PrepareTransaction), Call(DecideTransaction), Call(ResolveTransaction)
    leader's log       ResolveTransaction, ExpireTransaction, ConfirmTransactions

A transaction has one share for each tag, because a tag always belongs to one group. The first tag
is the coordinator. All other tags are participants.

1. `PrepareTransaction` checks a share as a commit does. Then the group holds the share: it keeps
   the messages, and no other client can get or acknowledge what the transaction consumed.
2. `DecideTransaction` commits the coordinator's own share, as `EndTransaction` does. The same
   command records the decision for all participants.
3. `ResolveTransaction` publishes or drops a held share, as decided.

The client sends these commands. If the client fails, the leaders of the groups finish the
transaction: see the module `ring.resolver`. `ExpireTransaction` aborts an undecided transaction.
`ConfirmTransactions` deletes a decision once all participants have published their shares.

These commands need feature level 5.
"""

from __future__ import annotations

from typing import ClassVar

from oncecast.kernel.protocol import Value
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire.limits import is_name
from oncecast.wire.transactions import EndTransaction, repeated

RING_TRANSACTION_LEVEL = 5

# Never change these limits: all replicas must compute the same result for the same command.
PARTICIPANTS_MAX = 100  # maximum number of tags besides the coordinator's
DECISIONS_MAX = 100_000  # maximum number of decisions that a group keeps
HELD_MAX = 200  # maximum number of shares of one source that a group holds
RESULTS_MAX = 1000  # maximum number of results of one source

HOLD_US = 10 * 1_000_000  # microseconds; an undecided share that is held longer is aborted


class Share(Value, tag=False):
    """The transaction `number` of a source in the record of a tag."""

    topic: str  # the tag
    epoch: int
    number: int

    @property
    def valid(self) -> bool:
        tagged = is_name(self.topic) and tag_of(self.topic) == self.topic
        return tagged and self.epoch > 0 and self.number >= 0


NO_SHARE = Share("", 0, 0)


class PrepareTransaction(EndTransaction, tag="PrepareTransaction"):
    """Check the share of a participant and hold it, until the transaction is decided."""

    feature_level: ClassVar[int] = RING_TRANSACTION_LEVEL

    coordinator: Share = NO_SHARE

    @property
    def fault(self) -> str:
        if not self.commit:
            return "a transaction that is aborted cannot be prepared; use EndTransaction"
        if not self.coordinator.valid:
            return "the coordinator has no valid tag, epoch and number; begin the transaction there"
        if self.coordinator.topic == tag_of(self.topic):
            return "the coordinator has this tag itself; use DecideTransaction"
        return super().fault


class DecideTransaction(EndTransaction, tag="DecideTransaction"):
    """Commit the coordinator's share, and decide that all participants commit theirs."""

    feature_level: ClassVar[int] = RING_TRANSACTION_LEVEL

    participants: tuple[Share, ...] = ()

    @property
    def fault(self) -> str:
        count = len(self.participants)
        if count > PARTICIPANTS_MAX:
            limit = f"limit {PARTICIPANTS_MAX + 1}"
            return f"the transaction has {count + 1} tags ({limit}); use several transactions"
        if not all(each.valid for each in self.participants):
            return "a participant has no valid tag, epoch and number; prepare it first"
        tags = (tag_of(self.topic), *(each.topic for each in self.participants))
        if (tag := repeated(tags)) is not None:
            return f"the tag {tag!r} has two shares; combine them"
        return super().fault


class ResolveTransaction(Value, tag="ResolveTransaction"):
    """Publish a held share if the transaction is committed, or else drop it."""

    feature_level: ClassVar[int] = RING_TRANSACTION_LEVEL

    source: str
    topic: str
    epoch: int
    number: int
    at: int
    commit: bool


class ExpireTransaction(Value, tag="ExpireTransaction"):
    """Abort a transaction that its coordinator has not decided. Only the leader proposes it."""

    feature_level: ClassVar[int] = RING_TRANSACTION_LEVEL

    source: str
    topic: str
    epoch: int
    number: int
    at: int


class Confirmed(Value, tag=False):
    """Participants of a decision that have published, by tag."""

    epoch: int
    number: int
    participants: tuple[str, ...]


class ConfirmTransactions(Value, tag="ConfirmTransactions"):
    """Forget confirmed participants of a source's decisions. Only the leader proposes it."""

    feature_level: ClassVar[int] = RING_TRANSACTION_LEVEL

    source: str
    topic: str
    confirmed: tuple[Confirmed, ...]
