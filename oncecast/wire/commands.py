"""What can be done to the pub/sub machine. A command lies in the log once; its place names it.

`at` is the time in microseconds at whoever proposed the command: the machine has no other clock. A
`life` is text that no other process will ever choose; it tells a repetition from a newcomer.

`expected` makes a take-over conditional: it is the epoch that the client believes to be current, 0
if it believes that no process holds the name. If another epoch is current, the command is refused
as `Fenced` with that epoch and changes nothing. So a command of a dead process that arrives late
takes nothing away from the process that holds the name by then. `PublishStaged` has the same
condition.

`token` is text that no other call will ever have, and the same in all copies of a call. The machine
remembers the results of the last calls that have one (`answered`). A copy that is decided later
gets that result, marked `already`, and changes nothing. Older clients send no token.
"""

from __future__ import annotations

from typing import get_args

from oncecast.kernel.protocol import Value
from oncecast.wire.limits import Limits
from oncecast.wire.retention import DEFAULT, Policy

ANY_EPOCH = -1  # a take-over without a condition, as older clients ask for it

# Where reading begins. All but an offset that is kept are moved to the nearest one that is.


class FromNew(Value, tag="FromNew"):
    """What is put from now on."""


class FromEarliest(Value, tag="FromEarliest"):
    """The first that is kept."""


class FromOffset(Value, tag="FromOffset"):
    offset: int


class FromTime(Value, tag="FromTime"):
    """The first batch that came at `at` or later, whatever its messages say of themselves."""

    at: int


Start = FromNew | FromEarliest | FromOffset | FromTime


# Topics.


class CreateTopic(Value, tag="CreateTopic"):
    topic: str
    at: int
    policy: Policy = DEFAULT
    token: str = ""


class SetPolicy(Value, tag="SetPolicy"):
    topic: str
    at: int
    policy: Policy
    token: str = ""


class DeleteTopic(Value, tag="DeleteTopic"):
    topic: str
    at: int
    token: str = ""


class SetLimits(Value):
    """From here on these are the limits."""

    limits: Limits


class Tick(Value):
    """Time passes: what is kept for an age is looked through.

    `elapsed` is how long the leader has itself watched time pass since the last stamp. With
    `producers`, records of producers and sources that were idle for too long are deleted.
    """

    at: int
    elapsed: int = 0
    producers: bool = False


# Producers.


class OpenProducer(Value, tag="OpenProducer"):
    """`producer` lives as `life` from now on; an older life of the same name is fenced.

    `books` names who counts its sequences, over all its lives: another one counts for itself.
    """

    topic: str
    producer: str
    incarnation: str
    at: int
    create: bool = True  # the topic, should it be missing
    books: str = ""
    expected: int = ANY_EPOCH


class Put(Value, tag="Put"):
    """`count` messages of which the first has number `sequence`, in `size` bytes of `batch`."""

    topic: str
    producer: str
    epoch: int
    sequence: int
    count: int
    size: int
    at: int
    batch: bytes


class CloseProducer(Value, tag="CloseProducer"):
    """The producer will never come back: what is known of it can go."""

    topic: str
    producer: str
    epoch: int


# Subscriptions.


class Subscribe(Value, tag="Subscribe"):
    topic: str
    subscription: str
    start: Start
    at: int
    token: str = ""


class Unsubscribe(Value, tag="Unsubscribe"):
    topic: str
    subscription: str
    at: int
    token: str = ""


class Attach(Value, tag="Attach"):
    """`life` reads for the subscription from now on; an older life is fenced."""

    topic: str
    subscription: str
    incarnation: str
    expected: int = ANY_EPOCH


class Detach(Value, tag="Detach"):
    """A life ends in order: it has handed out what is before `handed`, and no more."""

    topic: str
    subscription: str
    epoch: int
    handed: int


class Ack(Value, tag="Ack"):
    """All before `upto` is acknowledged."""

    topic: str
    subscription: str
    epoch: int
    upto: int


class Acks(Value):
    """Acks of several subscriptions that share a place in the log."""

    acks: tuple[Ack, ...]
    at: int


class Seek(Value, tag="Seek"):
    """Read on from `start`. With an `epoch` only its holder may; `token` tells a repetition."""

    topic: str
    subscription: str
    start: Start
    at: int
    token: str
    epoch: int = 0


# Staged puts.


class Stage(Value, tag="Stage"):
    """Messages that nobody sees before `source` publishes its `number` with this `part`."""

    source: str
    number: int
    part: str
    topic: str
    count: int
    size: int
    at: int
    batch: bytes


class PublishStaged(Value, tag="PublishStaged"):
    """The parts are appended to their topics in this order, all or none, once a number.

    On a ring a source is one for each topic, which is then named; elsewhere that says nothing.

    A refusal gives the source a new epoch. `expected` is the epoch that the client believes to be
    current, so a copy of a refused command that arrives late changes nothing.
    """

    source: str
    number: int
    parts: tuple[str, ...]
    at: int
    topic: str = ""
    expected: int = ANY_EPOCH


class DropStaged(Value, tag="DropStaged"):
    source: str
    number: int
    topic: str = ""
    token: str = ""


class CloseSource(Value, tag="CloseSource"):
    """The source will never come back: its parts and what is known of it can go."""

    source: str
    at: int
    topic: str = ""
    token: str = ""


# The log.


class Carry(Value):
    """`command`, copied from place `old`, so that the log can be cut off behind it.

    `offset` is where its entry in the topic's index begins; -1 for a part still staged.
    """

    old: int
    offset: int
    command: Put | Stage


Command = (
    CreateTopic
    | SetPolicy
    | DeleteTopic
    | SetLimits
    | Tick
    | OpenProducer
    | Put
    | CloseProducer
    | Subscribe
    | Unsubscribe
    | Attach
    | Detach
    | Ack
    | Acks
    | Seek
    | Stage
    | PublishStaged
    | DropStaged
    | CloseSource
    | Carry
)

# Commands that are done once by their tokens.
Once = CreateTopic | SetPolicy | DeleteTopic | Subscribe | Unsubscribe | DropStaged | CloseSource
ONCE: frozenset[type] = frozenset(get_args(Once))
