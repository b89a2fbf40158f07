"""Refusals by a node or a client session, as sent over the wire.

A refused command changes nothing but the clock. Each refusal names the exception that a client
raises for it. The exception declares the code, message, remedy and exit status.
"""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from typing import ClassVar, get_args

import msgspec

from oncecast import errors
from oncecast.errors import DISK as DISK
from oncecast.errors import RULES as RULES
from oncecast.errors import UNDECIDED as UNDECIDED
from oncecast.errors import OncecastError
from oncecast.kernel.protocol import Value


class Refusal(Value):
    """Base class for refusals. The fields are the arguments of `error`, in the same order."""

    error: ClassVar[type[OncecastError]]

    def raised(self) -> OncecastError:
        """Return the exception that a client raises for this refusal."""
        return self.error(*msgspec.structs.astuple(self))

    def __str__(self) -> str:
        return str(self.raised())


# Refusals by the state machine


class InvalidTopic(Refusal, tag="InvalidTopic"):
    error = errors.InvalidTopic


class InvalidName(Refusal, tag="InvalidName"):
    error = errors.InvalidName

    what: str


class InvalidArgument(Refusal, tag="InvalidArgument"):
    error = errors.InvalidArgument

    fact: str


class TooLarge(Refusal, tag="TooLarge"):
    error = errors.PayloadTooLarge

    what: str
    max: int


class TooMany(Refusal, tag="TooMany"):
    error = errors.TooMany

    what: str
    max: int


class NoSuchTopic(Refusal, tag="NoSuchTopic"):
    error = errors.NoSuchTopic

    topic: str


class TopicExists(Refusal, tag="TopicExists"):
    error = errors.TopicExists

    topic: str


class Partitioned(Refusal, tag="Partitioned"):
    error = errors.Partitioned

    topic: str
    partitions: int


class NotAssigned(Refusal, tag="NotAssigned"):
    error = errors.NotAssigned

    topic: str
    subscription: str


class NameInUse(Refusal, tag="NameInUse"):
    error = errors.NameInUse

    topic: str
    name: str


class Unopened(Refusal, tag="Unopened"):
    error = errors.Unopened

    topic: str
    producer: str


class Gap(Refusal, tag="Gap"):
    error = errors.Gap

    expected: int


class NotSubscribed(Refusal, tag="NotSubscribed"):
    error = errors.NotSubscribed

    topic: str
    subscription: str


class WrongKind(Refusal, tag="WrongKind"):
    error = errors.WrongKind

    topic: str
    subscription: str
    kind: str


class OutOfRange(Refusal, tag="OutOfRange"):
    error = errors.OutOfRange

    next: int


class Fenced(Refusal, tag="Fenced"):
    error = errors.Fenced

    epoch: int


class Repositioned(Refusal, tag="Repositioned"):
    error = errors.Repositioned

    epoch: int
    cursor: int


class NotStaged(Refusal, tag="NotStaged"):
    error = errors.NotStaged

    source: str
    number: int
    part: str


class OldNumber(Refusal, tag="OldNumber"):
    error = errors.OldNumber

    source: str
    number: int
    last: int


class OtherContent(Refusal, tag="OtherContent"):
    error = errors.OtherContent

    source: str
    number: int


class TakenOver(Refusal, tag="TakenOver"):
    error = errors.TakenOver

    source: str


class NotKept(Refusal, tag="NotKept"):
    error = errors.NotKept

    topic: str


class NotAcknowledged(Refusal, tag="NotAcknowledged"):
    error = errors.NotAcknowledged

    topic: str
    subscription: str
    offset: int
    fact: str


class NotDecided(Refusal, tag="NotDecided"):
    error = errors.NotDecided

    source: str


# Refusals by the node, before the state machine sees the command


class Overloaded(Refusal, tag="Overloaded"):
    error = errors.Overloaded

    what: str


class BadBatch(Refusal, tag="BadBatch"):
    error = errors.BadBatch

    fact: str


class NotHere(Refusal, tag="NotHere"):
    error = errors.NotHere

    topic: str


class Denied(Refusal, tag="Denied"):
    """The client lacks permission. The refusal reveals nothing about the topic."""

    error = errors.Denied


class LevelTooLow(Refusal, tag="LevelTooLow"):
    error = errors.LevelTooLow

    needed: int
    level: int


# Refusals by the client session


class Forgotten(Refusal, tag="Forgotten"):
    error = errors.Forgotten

    topic: str
    producer: str


MachineRefusal = (
    InvalidTopic
    | InvalidName
    | InvalidArgument
    | TooLarge
    | TooMany
    | NoSuchTopic
    | TopicExists
    | Partitioned
    | NotAssigned
    | NameInUse
    | Unopened
    | Gap
    | NotSubscribed
    | WrongKind
    | OutOfRange
    | Fenced
    | Repositioned
    | NotStaged
    | OldNumber
    | OtherContent
    | TakenOver
    | NotKept
    | NotAcknowledged
    | NotDecided
)
AnyRefusal = MachineRefusal | Overloaded | BadBatch | NotHere | Denied | LevelTooLow | Forgotten
REFUSALS: tuple[type[Refusal], ...] = get_args(MachineRefusal)
