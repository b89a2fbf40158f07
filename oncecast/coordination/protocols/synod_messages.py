"""What the members of a Synod say to each other, and what they write down."""

from __future__ import annotations

from oncecast.coordination.protocols.events import Settled
from oncecast.kernel.protocol import Value
from oncecast.overlay.memory import Numbers, Range
from oncecast.replication.ballot import Ballot

NUMBER_MAX = 2**62  # leaves room to count on from it in 64 bits


class Petition(Value, tag="Petition"):
    """I want this value; the leader may have it settled, or tell me what is."""

    series: str
    number: int
    value: str


class Prepare(Value, tag="Prepare"):
    """I lead with this ballot: obey no lower one, and tell me what may have been settled before."""

    ballot: Ballot


class Vote(Value, tag="Vote"):
    """A record, and part of a promise: this value was accepted with this ballot."""

    series: str
    number: int
    value: str
    ballot: Ballot


class Column(Value, tag=False):
    """The numbers of one series that are settled: 1 to `top`, but for the gaps."""

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
    """I have promised to obey this higher ballot."""

    ballot: Ballot


class Chosen(Value, tag="Chosen"):
    series: str
    number: int
    value: str


class Inquire(Value, tag="Inquire"):
    """What is settled? I may have come late, or missed something."""


class Minuted(Value, tag="Minuted"):
    """That is; for whom, a petition will tell."""

    settled: tuple[Column, ...]


class Behind(Value):
    """Timer: time to inquire."""


class Unanswered(Value):
    """Timer: a petition has had no answer."""

    series: str
    number: int


class Promise(Value, tag="Promise"):
    """Record: no lower ballot is obeyed."""

    ballot: Ballot


class Minutes(Value, tag="Minutes"):
    """Snapshot: all that an acceptor must not forget."""

    promised: Ballot
    votes: tuple[Vote, ...]
    settled: tuple[Column, ...]
    values: tuple[Settled, ...]


SynodMessage = (
    Petition | Prepare | Promised | Accept | Accepted | Refused | Chosen | Inquire | Minuted
)


def possible(message: SynodMessage) -> bool:
    """Whether an honest node could have sent it, as far as numbers tell."""
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
