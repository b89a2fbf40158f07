"""Requests from the client library to its session, and events in return, within one process.

A `ticket` is a number that the library chooses and that the outcome repeats. A topic and a
subscription identify a reader.

    library → session    Do, Show, ShowAccess, ShowBroker, Survey, Group, Ring · Produce · Finish
                         Read, Want, Settle, Again, Move, Leave
                         Join, Window, Handle, Confirm, Part · Begin, End, EndAll
    session → library    Finished, Shown · Stored, NotStored · Positioned, Arrived, Skipped, Ended ·
                         Given, Expired, Lost · Begun
"""

from __future__ import annotations

from oncecast.errors import NoQuorum, Revoked, TimedOut
from oncecast.kernel.protocol import Value
from oncecast.kernel.stack import NEVER as NEVER
from oncecast.replication.events import Change, HandOver
from oncecast.wire.commands import Start
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.frames import (
    AccessView,
    ArcView,
    BrokerView,
    ClientCommand,
    GroupView,
    RingView,
    Scan,
    Scanned,
    View,
)
from oncecast.wire.message import Message
from oncecast.wire.results import Done
from oncecast.wire.timing import Timing
from oncecast.wire.transactions import EndTransaction


class NoAnswer(Value):
    """A call timed out, or a repeated copy of it was denied. The node may have executed it."""

    seconds: float
    led: bool = True  # False if the group has no known leader, so it cannot answer calls
    denied: bool = False  # whether the node denied a repeated copy

    def raised(self) -> TimedOut | Revoked:
        """Return the exception for this outcome."""
        if self.denied:
            return Revoked()
        kind = TimedOut if self.led else NoQuorum
        return kind(f"no answer within {self.seconds:g} s")


Outcome = Done | AnyRefusal | NoAnswer


# Calls.


class Do(Value):
    ticket: int
    command: ClientCommand
    timeout: float = NEVER


class Show(Value):
    ticket: int
    topic: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1000
    subscriptions: bool = True
    timeout: float = NEVER
    arc: ArcView | None = None  # the group of a ring to ask; by default, the owner of the topic


class ShowAccess(Value):
    """Show one page of users, tokens and rules, from entry number `first` on."""

    ticket: int
    first: int = 0
    timeout: float = NEVER


class ShowBroker(Value):
    """Show the leader of the group that owns a topic, or of the group of an arc."""

    ticket: int
    topic: str
    timeout: float = NEVER
    arc: ArcView | None = None


class Survey(Value):
    """Scan a topic. The session sets the id of the scan."""

    ticket: int
    scan: Scan
    timeout: float = NEVER


class Group(Value):
    """Show the replica group. If `wish` is set, change the group first."""

    ticket: int
    wish: Change | HandOver | None = None
    timeout: float = NEVER


class Ring(Value):
    """Show the ring, and the multicast tree of the topic `tree`. With `leave`, leave the ring."""

    ticket: int
    tree: str = ""
    leave: bool = False
    timeout: float = NEVER


class Finished(Value):
    ticket: int
    outcome: Outcome


class Shown(Value):
    ticket: int
    view: View | Scanned | GroupView | RingView | AccessView | BrokerView


# Putting.


class Produce(Value):
    """Put a batch of `count` messages. Batches to the same topic keep their order."""

    ticket: int
    topic: str
    count: int
    batch: bytes
    timing: Timing | None = None
    create: bool = True  # whether to create a missing topic


class Stored(Value):
    """The batch is stored once, from `offset` on.

    If the node no longer knows the offset, `offset` is -1 and `kept` is None. The offset of delayed
    messages is not known yet, and is -1.
    """

    ticket: int
    offset: int
    kept: bool | None


class NotStored(Value):
    """The batch is not stored. If `why` is Fenced or Forgotten, the outcome is unknown instead.

    After Fenced or Forgotten, check the topic before putting the batch again. A durable client
    keeps a Fenced batch in its outbox, and its next process puts the batch if it is not stored.
    """

    ticket: int
    why: AnyRefusal
    # If the topic has partitions, the batch and its timing, to put its messages to them.
    batch: bytes = b""
    timing: Timing | None = None


# Reading.


class Read(Value):
    """Start reading at the subscription's cursor, or at offset `start_at` (E3).

    With `push`, on a ring, messages arrive through the process that the client is connected to.
    """

    topic: str
    subscription: str
    start_at: int = -1
    push: bool = False
    # A member of a consumer group: the name of the topic and the partition, for its messages, and
    # the term of its assignment.
    partition_of: str = ""
    partition: int = -1
    term: int = 0


class Want(Value):
    """The application has taken all messages before `delivered` and acknowledged up to `ack`."""

    topic: str
    subscription: str
    delivered: int
    ack: int


class Settle(Value):
    """Like Want, but answered: Finished with Acked follows once the node has confirmed the ack."""

    ticket: int
    topic: str
    subscription: str
    delivered: int
    ack: int


class Again(Value):
    """Redeliver messages from `offset` on. Mark those before `delivered` as `redelivered`."""

    topic: str
    subscription: str
    offset: int
    delivered: int


class Move(Value):
    """Continue at `start`. The answers are Positioned, and Finished with Sought."""

    ticket: int
    topic: str
    subscription: str
    start: Start
    timeout: float = NEVER


class Leave(Value):
    """Acknowledge all messages before `ack`, then detach the reader. The answer is Finished."""

    ticket: int
    topic: str
    subscription: str
    delivered: int
    ack: int
    timeout: float = NEVER


class Drop(Value):
    """Stop reading at once, because the consumer group has taken the partition away."""

    topic: str
    subscription: str
    delivered: int


class Positioned(Value):
    """The next message is at `offset`: drop all queued messages. The topic ends at `next`.

    `epoch` is the reader's epoch from now on.
    """

    topic: str
    subscription: str
    offset: int
    next: int
    epoch: int = 0


class Arrived(Value):
    """The next messages, in order. The topic ends at `next`.

    If `low` is set, credit is low: send a Want as soon as the application has taken some messages.
    """

    topic: str
    subscription: str
    messages: list[Message]
    next: int
    low: bool


class Skipped(Value):
    """The topic's policy has deleted the messages from `first` to `next` (exclusive)."""

    topic: str
    subscription: str
    first: int
    next: int


class Ended(Value):
    """The reader has ended for the reason `why`."""

    topic: str
    subscription: str
    why: AnyRefusal


# Working on a shared subscription. A lease is a token and an offset.


class Join(Value):
    """Start working: hold up to `window` messages of a shared subscription at a time."""

    topic: str
    subscription: str
    window: int


class Window(Value):
    """Change the number of messages to hold. With 0, no more messages arrive."""

    topic: str
    subscription: str
    window: int


class Handle(Value):
    """Settle messages. The delay of a release is in microseconds, or BY_BACKOFF."""

    topic: str
    subscription: str
    accept: tuple[tuple[int, int], ...] = ()
    release: tuple[tuple[int, int, int, str], ...] = ()  # each lease with a delay and a reason
    reject: tuple[tuple[int, int, str], ...] = ()  # each lease with a reason
    unused: tuple[tuple[int, int], ...] = ()
    transacted: tuple[tuple[int, int], ...] = ()  # leases that a transaction has acknowledged


class Confirm(Value):
    """Ask for Finished with Settled once the node has stored all earlier settlements."""

    ticket: int
    topic: str
    subscription: str


class Part(Value):
    """Store all settlements, then leave. The node releases all other messages of this worker."""

    ticket: int
    topic: str
    subscription: str
    timeout: float = NEVER


class Given(Value):
    """Messages that `worker` holds. `deliveries` counts the deliveries of each."""

    topic: str
    subscription: str
    token: int
    messages: list[Message]
    deliveries: list[int]
    worker: str = ""


class Expired(Value):
    """By the clock of the client, these leases have ended. The node may still know them."""

    topic: str
    subscription: str
    leases: tuple[tuple[int, int], ...]


class Lost(Value):
    """The node has refused to settle or renew these leases, because they have ended."""

    topic: str
    subscription: str
    leases: tuple[tuple[int, int], ...]


# Transactions.


class Begin(Value):
    """Open the source if necessary, and number a transaction.

    `topic` is any topic of the transaction, or any with the same tag on a ring. The answer is
    Begun, or Finished with a refusal.
    """

    ticket: int
    source: str
    topic: str
    timeout: float = NEVER


class End(Value):
    """Commit or abort a transaction that has begun. The answer is Finished.

    The session sets `finished` of the command, and repeats it until it is answered.
    """

    ticket: int
    command: EndTransaction


class EndAll(Value):
    """Commit a transaction whose topics have several tags on a ring. The answer is Finished.

    It has a share for each tag, with the numbers of Begun. The first tag decides.
    """

    ticket: int
    shares: tuple[EndTransaction, ...]


class Begun(Value):
    """The transaction has a number. `topic` decides its owner.

    On a ring, the number belongs to the tag `tag`. A transaction with several tags begins once for
    each of them.
    """

    ticket: int
    epoch: int
    number: int
    topic: str
    tag: str


# The end.


class Finish(Value):
    """End the session. With `forget`, close the producers, because the name is not reused."""

    ticket: int
    forget: bool
    timeout: float = NEVER


class AllDone(Value):
    ticket: int


Call = Do | Show | ShowAccess | ShowBroker | Survey | Group | Ring
OfWorker = Window | Handle | Confirm | Part
OfReader = Read | Want | Settle | Again | Move | Leave | Drop
Request = Call | Produce | OfReader | Join | OfWorker | Begin | End | EndAll | Finish
