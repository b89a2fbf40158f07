"""Messages, timers and records of the Synod."""

from __future__ import annotations

from oncecast.coordination.protocols.events import Settled
from oncecast.kernel.protocol import Value
from oncecast.overlay.memory import Numbers, Range
from oncecast.replication.ballot import Ballot

NUMBER_MAX = 2**62  # leaves space for higher numbers in a 64-bit integer


class Petition(Value, tag="Petition"):
    """A request for this value. The leader proposes it, or answers with the settled value."""

    series: str
    number: int
    value: str


class Prepare(Value, tag="Prepare"):
    """A leader starts this ballot, and asks for values that lower ballots may have settled."""

    ballot: Ballot


class Vote(Value, tag="Vote"):
    """This value was accepted under this ballot. A vote is a record, and part of a promise."""

    series: str
    number: int
    value: str
    ballot: Ballot


class Column(Value, tag=False):
    """The settled numbers of one series: 1 to `top`, except the gaps."""

    series: str
    top: int
    gaps: tuple[Range, ...]


class Promised(Value, tag="Promised"):
    ballot: Ballot
    votes: tuple[Vote, ...]
    settled: tuple[Column, ...]


class Accept(Value, tag="Accept"):
    ballot: Ballot
    series: str
    number: int
    value: str


class Accepted(Value, tag="Accepted"):
    ballot: Ballot
    series: str
    number: int


class Refused(Value, tag="Refused"):
    """The acceptor has promised this higher ballot."""

    ballot: Ballot


class Chosen(Value, tag="Chosen"):
    series: str
    number: int
    value: str


class Inquire(Value, tag="Inquire"):
    """Ask which numbers are settled, because the sender may have missed some."""


class Minuted(Value, tag="Minuted"):
    """The answer to Inquire: the settled numbers. A petition returns their values."""

    settled: tuple[Column, ...]


class Behind(Value):
    """Timer: send Inquire to the leader."""


class Unanswered(Value):
    """Timer: a petition has no answer yet."""

    series: str
    number: int


class Promise(Value, tag="Promise"):
    """Record: the acceptor refuses ballots lower than this one."""

    ballot: Ballot


class Minutes(Value, tag="Minutes"):
    """Snapshot: everything that an acceptor must keep."""

    promised: Ballot
    votes: tuple[Vote, ...]
    settled: tuple[Column, ...]
    values: tuple[Settled, ...]


SynodMessage = (
    Petition | Prepare | Promised | Accept | Accepted | Refused | Chosen | Inquire | Minuted
)


def possible(message: SynodMessage) -> bool:
    """Return whether the numbers in a message are valid."""
    match message:
        case Petition() | Accept() | Accepted() | Chosen():
            return 1 <= message.number < NUMBER_MAX
        case Prepare(ballot) | Refused(ballot):
            return 0 <= ballot.round < NUMBER_MAX
        case Promised(_, votes, columns):
            return sound(columns) and all(1 <= vote.number < NUMBER_MAX for vote in votes)
        case Minuted(columns):
            return sound(columns)
        case _:
            return True


def sound(columns: tuple[Column, ...]) -> bool:
    return all(Numbers(each.top, each.gaps).well_formed for each in columns)
