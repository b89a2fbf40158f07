"""What a client library asks of its session, and what it hears: nothing here crosses a wire.

A `ticket` is a number of the library's own choice that comes back with the outcome. A reading is
named by its topic and subscription.

    library → session    Do, Show, Survey, Group, Ring · Produce · Finish
                         Read, Want, Settle, Again, Move, Leave
    session → library    Finished, Shown · Stored, NotStored · Positioned, Arrived, Skipped, Ended
"""

from __future__ import annotations

from oncecast.errors import NoQuorum, TimedOut
from oncecast.kernel.protocol import Value
from oncecast.kernel.stack import NEVER as NEVER
from oncecast.replication.events import Change, HandOver
from oncecast.wire.batch import Message
from oncecast.wire.commands import Start
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.frames import ClientCommand, GroupView, RingView, Scan, Scanned, View
from oncecast.wire.results import Done


class NoAnswer(Value):
    """The time for a call was over before its answer came: whether it was done is not known."""

    seconds: float
    led: bool = True  # as far as is known: a group without a leader answers nobody

    def raised(self) -> TimedOut:
        """Return the exception for this outcome."""
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


class Survey(Value):
    """Scan a topic; the id is given on the way."""

    ticket: int
    scan: Scan
    timeout: float = NEVER


class Group(Value):
    """Show the replica group, or have a wish come true and show it then."""

    ticket: int
    wish: Change | HandOver | None = None
    timeout: float = NEVER


class Ring(Value):
    """Show the ring, and the part of a process in the tree of a topic; or have it leave."""

    ticket: int
    tree: str = ""
    leave: bool = False
    timeout: float = NEVER


class Finished(Value):
    ticket: int
    outcome: Outcome


class Shown(Value):
    ticket: int
    view: View | Scanned | GroupView | RingView


# Putting.


class Produce(Value):
    """Put `count` messages. They keep the order in which they were asked for, topic by topic."""

    ticket: int
    topic: str
    count: int
    batch: bytes


class Stored(Value):
    """In the topic, once, from `offset` on; -1 and None if the node no longer knows."""

    ticket: int
    offset: int
    kept: bool | None


class NotStored(Value):
    """Nothing of it is in the topic, unless `why` is Fenced or Forgotten: then it may be stored.

    Do not put a batch again after Fenced or Forgotten without a look at the topic. A durable client
    keeps a batch that was Fenced in its outbox, and its next process puts it if it is not stored.
    """

    ticket: int
    why: AnyRefusal


# Reading.


class Read(Value):
    """Begin; with `start_at`, from that offset and not from the subscription's cursor (E3).

    With `push`, on a ring, by way of the process that the client is at.
    """

    topic: str
    subscription: str
    start_at: int = -1
    push: bool = False


class Want(Value):
    """The application has taken all before `handed` and is through with all before `ack`."""

    topic: str
    subscription: str
    handed: int
    ack: int


class Settle(Value):
    """As Want, and confirm that the node knows: Finished, with Acked."""

    ticket: int
    topic: str
    subscription: str
    handed: int
    ack: int


class Again(Value):
    """Hand out once more from `offset` on: what was taken, before `handed`, is redelivered."""

    topic: str
    subscription: str
    offset: int
    handed: int


class Move(Value):
    """Read on from `start`: Positioned, and Finished with Sought."""

    ticket: int
    topic: str
    subscription: str
    start: Start
    timeout: float = NEVER


class Leave(Value):
    """Stop reading, acknowledge all before `ack`, and say what was handed out: Finished."""

    ticket: int
    topic: str
    subscription: str
    handed: int
    ack: int
    timeout: float = NEVER


class Positioned(Value):
    """What comes next begins at `offset`, what was not taken is void; the topic ends at `next`."""

    topic: str
    subscription: str
    offset: int
    next: int


class Arrived(Value):
    """The next messages, in order. The topic ends at `next`.

    With `low` credit a Want is welcome as soon as some of them are taken; otherwise in a while.
    """

    topic: str
    subscription: str
    messages: list[Message]
    next: int
    low: bool


class Skipped(Value):
    """Messages from `first` to before `next` went unread: the topic's policy let them go."""

    topic: str
    subscription: str
    first: int
    next: int


class Ended(Value):
    """There will be no more."""

    topic: str
    subscription: str
    why: AnyRefusal


# The end.


class Finish(Value):
    """Nothing more will be asked. `forget`: this producer's name will never be used again."""

    ticket: int
    forget: bool
    timeout: float = NEVER


class AllDone(Value):
    ticket: int


Call = Do | Show | Survey | Group | Ring
Request = Call | Produce | Read | Want | Settle | Again | Move | Leave | Finish
