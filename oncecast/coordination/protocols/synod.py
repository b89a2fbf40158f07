"""Synod: all nodes agree on one value for each number of each series.

The value is usually the one that was requested first. This is Lamport, "The Part-Time Parliament",
TOCS 1998, with one instance per number. Names follow the paper where possible: requesters petition,
a leader proposes, acceptors promise and vote.

Needs ViewChanged: the leader is the lowest acceptor in the view. Serves Decide. Emits CaughtUp, and
Settled once for each number that this node learns. A majority of the acceptors must be running.

    requester → leader      Petition, repeated until the number is settled
    leader → acceptors      Prepare, once for a ballot; Accept, once for a petition
    acceptors → leader      Promised, Accepted, or Refused
    leader → all            Chosen; Minuted, in answer to Inquire

Only the requester repeats messages, so a lost message costs one `resend` time. Safety does not
depend on clocks or correct suspicions. Of two leaders, the one with the higher ballot wins.

An acceptor sends promises and votes only when they are on disk. An acceptor without a disk must not
restart under its old name.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, assert_never

from oncecast.coordination.protocols.election import lowest
from oncecast.coordination.protocols.events import NO_NODE, CaughtUp, Decide, Settled, ViewChanged
from oncecast.coordination.protocols.synod_messages import (
    NUMBER_MAX,
    Accept,
    Accepted,
    Behind,
    Chosen,
    Column,
    Inquire,
    Minuted,
    Minutes,
    Petition,
    Prepare,
    Promise,
    Promised,
    Refused,
    SynodMessage,
    Unanswered,
    Vote,
    possible,
)
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.overlay.memory import Numbers
from oncecast.replication.ballot import BOTTOM, Ballot, above

Key = tuple[str, int]  # series and number


class Leadership:
    """Promises, votes and proposals under one ballot."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.promises: dict[NodeId, None] = {}
        self.votes: dict[Key, Vote] = {}  # votes that the promises contain
        # Petitions that arrived before a majority had promised: value and requester.
        self.pending: dict[Key, tuple[str, NodeId]] = {}
        self.proposals: dict[Key, Proposal] = {}

    def note_promise(self, node: NodeId, votes: tuple[Vote, ...]) -> None:
        """Count a promise. Keep the vote with the highest ballot for each number."""
        self.promises[node] = None
        for vote in votes:
            key = vote.series, vote.number
            if key not in self.votes or self.votes[key].ballot < vote.ballot:
                self.votes[key] = vote


class Proposal:
    """The only value that a leader proposes for a key under its ballot."""

    __slots__ = ("askers", "value", "voters")

    def __init__(self, value: str) -> None:
        self.value = value
        self.voters: dict[NodeId, None] = {}
        self.askers: dict[NodeId, None] = {}


class Synod(Protocol):
    name = "synod"
    Request = Decide
    Message = SynodMessage
    Observed = ViewChanged
    Timer: ClassVar = Unanswered | Behind
    Record: ClassVar = Promise | Vote | Settled
    State = Minutes

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        acceptors: Iterable[NodeId],
        resend: float = 0.5,
        inquire_every: float = 2.0,
        values_max: int = 100_000,
        snapshot_every: int = 10_000,
    ) -> None:
        super().__init__(me, rng)
        self.acceptors = tuple(sorted(dict.fromkeys(acceptors)))
        self.majority = len(self.acceptors) // 2 + 1
        self.resend, self.inquire_every = resend, inquire_every
        self.values_max = values_max
        self.snapshot_every = snapshot_every
        self.promised = BOTTOM
        self.highest = BOTTOM  # the highest ballot seen
        self.votes: dict[Key, Vote] = {}  # votes on numbers not known to be settled
        self.settled: dict[str, Numbers] = {}
        self.values: dict[Key, str] = {}  # the last settled values
        self.petitions: dict[Key, str] = {}  # this node's petitions
        self.leadership = Leadership(BOTTOM)
        self.leader = NO_NODE
        self.audience: tuple[NodeId, ...] = self.acceptors
        self.unsaved = 0  # number of records since the last snapshot
        self.dropped = 0  # invalid messages

    def is_settled(self, series: str, number: int) -> bool:
        return series in self.settled and number in self.settled[series]

    # -- storage --

    def restore(self, record: Promise | Vote | Settled | Minutes) -> None:
        self.unsaved += 1
        match record:
            case Promise(ballot):
                self.promised = ballot
            case Vote():
                self.promised = record.ballot
                self.votes[record.series, record.number] = record
            case Settled(series, number, value):
                self._note(series, number, value)
            case Minutes():
                self.promised = record.promised
                self.votes = {(vote.series, vote.number): vote for vote in record.votes}
                self.settled = {
                    each.series: Numbers(each.top, each.gaps) for each in record.settled
                }
                self.values = {(each.series, each.number): each.value for each in record.values}
            case _:
                assert_never(record)

    def _save(self, record: Promise | Vote | Settled) -> None:
        if self.me not in self.acceptors:
            return
        self.append(record)
        self.unsaved += 1
        if self.unsaved >= self.snapshot_every:
            values = (Settled(*key, value) for key, value in self.values.items())
            votes = tuple(self.votes.values())
            self.snapshot(Minutes(self.promised, votes, self._columns(), tuple(values)))
            self.trim(self.after + 1)
            self.unsaved = 0

    def _columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(series, numbers.top, tuple(numbers.gaps))
            for series, numbers in self.settled.items()
        )

    # -- requesters --

    def request(self, request: Decide) -> None:
        key = request.series, request.number
        assert 1 <= request.number <= NUMBER_MAX, f"{key}: numbers start at 1"
        if key in self.values:
            self._emit_known(request.series, request.number)
            return
        self.petitions[key] = request.value
        self._petition(key, [self.leader])

    def _emit_known(self, series: str, number: int) -> None:
        for each in self._relevant(series, number):
            self.emit(Settled(series, each, self.values[series, each]), after=0)

    def observe(self, event: ViewChanged) -> None:
        self.audience = tuple(dict.fromkeys((*self.acceptors, *event.view)))
        leader = lowest(event.view, self.acceptors)
        if leader != self.leader:
            self.leader = leader
            self._inquire()
            for key in self.petitions:
                self._petition(key, [leader])

    def timeout(self, timer: Unanswered | Behind) -> None:
        match timer:
            case Unanswered(series, number):
                # The leader may not know the value, but another acceptor may.
                self._petition((series, number), self.acceptors)
            case Behind():
                self._inquire()
            case _:
                assert_never(timer)

    def _inquire(self) -> None:
        if self.leader not in (NO_NODE, self.me):
            self.send(self.leader, Inquire())
        self.later(self.inquire_every * self.rng.uniform(0.75, 1.25), Behind())

    def _petition(self, key: Key, to: Iterable[NodeId]) -> None:
        for node in to:
            if node != NO_NODE:
                self.send(node, Petition(*key, self.petitions[key]))
        self.later(self.resend * self.rng.uniform(0.75, 1.25), Unanswered(*key))

    # -- every node --

    def receive(self, sender: NodeId, message: SynodMessage) -> None:
        if not possible(message):
            self.dropped += 1
            return
        match message:
            case Petition():
                self._receive_petition(sender, message)
            case Prepare() | Accept():
                self._obey(sender, message)
            case Promised() | Accepted() | Refused():
                if sender in self.acceptors:
                    self._count(sender, message)
                else:
                    self.dropped += 1
            case Chosen(series, number, value):
                self._learn(series, number, value)
            case Inquire():
                self.send(sender, Minuted(self._columns()))
            case Minuted(columns):
                self._catch_up(columns)
            case _:
                assert_never(message)

    def _learn(self, series: str, number: int, value: str) -> None:
        known = (series, number) in self.values
        self._note(series, number, value)
        self.leadership.proposals.pop((series, number), None)
        if self.petitions.pop((series, number), None) is not None:
            self.cancel(Unanswered(series, number))
        if not known:
            self._save(Settled(series, number, value))
            self.emit(Settled(series, number, value), after=0)  # a majority has it on disk

    def _note(self, series: str, number: int, value: str) -> None:
        self.settled.setdefault(series, Numbers()).add(number)
        self.values[series, number] = value
        self.votes.pop((series, number), None)
        if len(self.values) > self.values_max:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Drop the oldest value. Keep the last value of each series, because requesters need it."""
        for _ in self.settled:
            key = next(iter(self.values))
            value = self.values.pop(key)
            if key[1] != self.settled[key[0]].top:
                return
            self.values[key] = value

    def _catch_up(self, columns: tuple[Column, ...]) -> None:
        new = False
        for column in columns:
            numbers = Numbers(column.top, column.gaps)
            known = self.settled.setdefault(column.series, Numbers())
            if known.lacks_of(numbers):
                known.add_all_of(numbers)
                new = True
        if new:
            self.emit(CaughtUp(), after=0)

    # -- acceptors --

    def _obey(self, sender: NodeId, message: Prepare | Accept) -> None:
        """Answer a leader. Refuse if a higher ballot was promised."""
        if self.me not in self.acceptors:
            self.dropped += 1
            return
        self.highest = max(self.highest, message.ballot)
        if message.ballot < self.promised:
            self.send(sender, Refused(self.promised))
        elif isinstance(message, Prepare):
            self._promise(message.ballot)
            votes = tuple(self.votes.values())
            self.send(sender, Promised(message.ballot, votes, self._columns()))
        elif self.is_settled(message.series, message.number):
            self._send_chosen(sender, message.series, message.number)
        else:
            self._vote(message)
            self.send(sender, Accepted(message.ballot, message.series, message.number))

    def _promise(self, ballot: Ballot) -> None:
        if ballot != self.promised:
            self.promised = ballot
            self._save(Promise(ballot))

    def _vote(self, accept: Accept) -> None:
        vote = Vote(accept.series, accept.number, accept.value, accept.ballot)
        if self.votes.get((vote.series, vote.number)) != vote:
            self.promised = vote.ballot
            self.votes[vote.series, vote.number] = vote
            self._save(vote)

    def _send_chosen(self, node: NodeId, series: str, number: int) -> None:
        for each in self._relevant(series, number):
            self.send(node, Chosen(series, each, self.values[series, each]))

    def _relevant(self, series: str, number: int) -> list[int]:
        """Return this number and the last number of the series, if their values are known.

        The requester may be far behind the last number.
        """
        both = dict.fromkeys((self.settled[series].top, number))
        return [each for each in both if (series, each) in self.values]

    # -- the leader --

    def _receive_petition(self, sender: NodeId, petition: Petition) -> None:
        key = petition.series, petition.number
        if self.is_settled(*key):
            self._send_chosen(sender, *key)
        elif self.leader == self.me:
            if self.leadership.ballot == BOTTOM or self.leadership.ballot < self.highest:
                self._start_leadership()
            if len(self.leadership.promises) < self.majority:
                self.leadership.pending.setdefault(key, (petition.value, sender))
                self._prepare()
            else:
                self._propose(key, petition.value, sender)

    def _start_leadership(self) -> None:
        self.highest = above(max(self.highest, self.promised), self.me)
        self.leadership = Leadership(self.highest)
        # The ballot is on disk before it is sent, so that no later incarnation uses it again.
        self._promise(self.highest)

    def _prepare(self) -> None:
        for node in self.acceptors:
            if node not in self.leadership.promises:
                self.send(node, Prepare(self.leadership.ballot))

    def _propose(self, key: Key, value: str, asker: NodeId) -> None:
        leadership = self.leadership
        proposal = leadership.proposals.get(key)
        if proposal is None:
            # A value that may already be settled must not be replaced.
            bound = leadership.votes.get(key)
            proposal = leadership.proposals[key] = Proposal(bound.value if bound else value)
        elif asker not in proposal.askers:
            proposal.askers[asker] = None
            return  # the proposal is in flight
        proposal.askers[asker] = None
        for node in self.acceptors:
            if node not in proposal.voters:
                self.send(node, Accept(leadership.ballot, *key, proposal.value))

    def _count(self, sender: NodeId, message: Promised | Accepted | Refused) -> None:
        leadership = self.leadership
        match message:
            case Refused(ballot):
                self.highest = max(self.highest, ballot)  # the next petition starts a higher ballot
            case Promised(ballot, votes, columns):
                if ballot == leadership.ballot and len(leadership.promises) < self.majority:
                    self._count_promise(sender, votes, columns)
            case Accepted(ballot, series, number):
                proposal = leadership.proposals.get((series, number))
                if ballot == leadership.ballot and proposal is not None:
                    proposal.voters[sender] = None
                    if len(proposal.voters) == self.majority:
                        self._announce(Chosen(series, number, proposal.value))
            case _:
                assert_never(message)

    def _count_promise(
        self, sender: NodeId, votes: tuple[Vote, ...], columns: tuple[Column, ...]
    ) -> None:
        leadership = self.leadership
        leadership.note_promise(sender, votes)
        self._catch_up(columns)
        if len(leadership.promises) == self.majority:
            pending, leadership.pending = leadership.pending, {}
            for key, (value, asker) in pending.items():
                if not self.is_settled(*key):
                    self._propose(key, value, asker)

    def _announce(self, chosen: Chosen) -> None:
        for node in self.audience:
            self.send(node, chosen)
