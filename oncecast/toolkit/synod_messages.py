"""What the members of a Synod say to each other, and what they write down."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.overlay.memory import Range
from oncecast.replication.ballot import Ballot
from oncecast.toolkit.events import Settled


class Petition(Value):
    """I want this value; the leader may have it settled, or tell me what is."""

    series: str
    number: int
    value: str


class Prepare(Value):
    """I lead with this ballot: obey no lower one, and tell me what may have been settled before."""

    ballot: Ballot


class Vote(Value):
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


class Promised(Value):
    ballot: Ballot
    votes: tuple[Vote, ...]
    settled: tuple[Column, ...]


class Accept(Value):
    ballot: Ballot
    series: str
    number: int
    value: str


class Accepted(Value):
    ballot: Ballot
    series: str
    number: int


class Refused(Value):
    """I have promised to obey this higher ballot."""

    ballot: Ballot


class Chosen(Value):
    series: str
    number: int
    value: str


class Unanswered(Value):
    """Timer: a petition has had no answer."""

    series: str
    number: int


class Promise(Value):
    """Record: no lower ballot is obeyed."""

    ballot: Ballot


class Minutes(Value):
    """Snapshot: all that an acceptor must not forget."""

    promised: Ballot
    votes: tuple[Vote, ...]
    settled: tuple[Column, ...]
    values: tuple[Settled, ...]
