"""Synod: for each number of each series, one value that all agree on; who asks first, mostly wins.

Lamport, "The Part-Time Parliament", TOCS 1998, with a synod of its own for each number. Names
follow it where they can: requesters petition, a leader proposes, acceptors promise and vote.

Needs ViewChanged: Ω is the lowest acceptor in the view. Serves Decide; gives Settled, once a life
for each number that this node hears of, and CaughtUp. A majority of the acceptors must be up.

    requester → leader      Petition, again and again until it is settled
    leader → acceptors      Prepare, once a reign; Accept, once a petition
    acceptors → leader      Promised, Accepted, or Refused
    leader → all            Chosen; Minuted, to who inquires

Nobody else than the requester ever repeats anything: a lost message costs one `resend`. Safety
needs no clock and no right suspicion; with two leaders, the one with the higher ballot wins.

An acceptor's promises and votes are on disk before they are sent. Without a disk, an acceptor that
has crashed must not come back under its old name.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import assert_never

from oncecast.coordination.protocols.election import lowest
from oncecast.coordination.protocols.events import NOBODY, CaughtUp, Decide, Settled, ViewChanged
from oncecast.coordination.protocols.reign import Key, Proposal, Reign
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


class Synod(Protocol):
    name = "synod"
    Request = Decide
    Message = SynodMessage
    Observed = ViewChanged
    Timer = Unanswered | Behind
    Record = Promise | Vote | Settled
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
        self.highest = BOTTOM  # of the ballots that this node has heard of
        self.votes: dict[Key, Vote] = {}  # for what is not known to be settled
        self.settled: dict[str, Numbers] = {}
        self.values: dict[Key, str] = {}  # of the last numbers settled
        self.petitions: dict[Key, str] = {}  # of this node
        self.reign = Reign(BOTTOM)
        self.leader = NOBODY
        self.audience: tuple[NodeId, ...] = self.acceptors
        self.unsaved = 0  # records since the last snapshot
        self.dropped = 0  # messages that make no sense

    def is_settled(self, series: str, number: int) -> bool:
        return series in self.settled and number in self.settled[series]

    # -- the disk --

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
        assert 1 <= request.number <= NUMBER_MAX, f"{key}: numbers begin with 1"
        if key in self.values:
            self._emit_known(request.series, request.number)
            return
        self.petitions[key] = request.value
        self._petition(key, [self.leader])

    def _emit_known(self, series: str, number: int) -> None:
        for each in self._worth_telling(series, number):
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
                # The leader may have forgotten the answer, or never known it: others may not.
                self._petition((series, number), self.acceptors)
            case Behind():
                self._inquire()
            case _:
                assert_never(timer)

    def _inquire(self) -> None:
        if self.leader not in (NOBODY, self.me):
            self.send(self.leader, Inquire())
        self.later(self.inquire_every * self.rng.uniform(0.75, 1.25), Behind())

    def _petition(self, key: Key, to: Iterable[NodeId]) -> None:
        for node in to:
            if node != NOBODY:
                self.send(node, Petition(*key, self.petitions[key]))
        self.later(self.resend * self.rng.uniform(0.75, 1.25), Unanswered(*key))

    # -- all --

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
        self.reign.proposals.pop((series, number), None)
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
        """But not the last of a series: whoever asks for the next must hear of it."""
        for _ in self.settled:
            key = next(iter(self.values))
            value = self.values.pop(key)
            if key[1] != self.settled[key[0]].top:
                return
            self.values[key] = value

    def _catch_up(self, columns: tuple[Column, ...]) -> None:
        news = False
        for column in columns:
            theirs = Numbers(column.top, column.gaps)
            known = self.settled.setdefault(column.series, Numbers())
            if known.lacks_of(theirs):
                known.add_all_of(theirs)
                news = True
        if news:
            self.emit(CaughtUp(), after=0)

    # -- acceptors --

    def _obey(self, sender: NodeId, message: Prepare | Accept) -> None:
        """Never obey a lower ballot than before, and never forget what was obeyed."""
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
            self._tell(sender, message.series, message.number)
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

    def _tell(self, node: NodeId, series: str, number: int) -> None:
        for each in self._worth_telling(series, number):
            self.send(node, Chosen(series, each, self.values[series, each]))

    def _worth_telling(self, series: str, number: int) -> list[int]:
        """This number, and the last one of the series: who asks may be far behind."""
        both = dict.fromkeys((self.settled[series].top, number))
        return [each for each in both if (series, each) in self.values]

    # -- the leader --

    def _receive_petition(self, sender: NodeId, petition: Petition) -> None:
        key = petition.series, petition.number
        if self.is_settled(*key):
            self._tell(sender, *key)
        elif self.leader == self.me:
            if self.reign.ballot == BOTTOM or self.reign.ballot < self.highest:
                self._begin_reign()
            if len(self.reign.promises) < self.majority:
                self.reign.wishes.setdefault(key, (petition.value, sender))
                self._prepare()
            else:
                self._propose(key, petition.value, sender)

    def _begin_reign(self) -> None:
        self.highest = above(max(self.highest, self.promised), self.me)
        self.reign = Reign(self.highest)
        # On disk before anybody hears of it: a ballot must never be used by two lives.
        self._promise(self.highest)

    def _prepare(self) -> None:
        for node in self.acceptors:
            if node not in self.reign.promises:
                self.send(node, Prepare(self.reign.ballot))

    def _propose(self, key: Key, value: str, asker: NodeId) -> None:
        reign = self.reign
        proposal = reign.proposals.get(key)
        if proposal is None:
            # What may be settled already must not be replaced.
            bound = reign.votes.get(key)
            proposal = reign.proposals[key] = Proposal(bound.value if bound else value)
        elif asker not in proposal.askers:
            proposal.askers[asker] = None
            return  # it is under way
        proposal.askers[asker] = None
        for node in self.acceptors:
            if node not in proposal.voters:
                self.send(node, Accept(reign.ballot, *key, proposal.value))

    def _count(self, sender: NodeId, message: Promised | Accepted | Refused) -> None:
        reign = self.reign
        match message:
            case Refused(ballot):
                self.highest = max(self.highest, ballot)  # the next petition begins a new reign
            case Promised(ballot, votes, columns):
                if ballot == reign.ballot and len(reign.promises) < self.majority:
                    self._count_promise(sender, votes, columns)
            case Accepted(ballot, series, number):
                proposal = reign.proposals.get((series, number))
                if ballot == reign.ballot and proposal is not None:
                    proposal.voters[sender] = None
                    if len(proposal.voters) == self.majority:
                        self._proclaim(Chosen(series, number, proposal.value))
            case _:
                assert_never(message)

    def _count_promise(
        self, sender: NodeId, votes: tuple[Vote, ...], columns: tuple[Column, ...]
    ) -> None:
        reign = self.reign
        reign.note_promise(sender, votes)
        self._catch_up(columns)
        if len(reign.promises) == self.majority:
            wishes, reign.wishes = reign.wishes, {}
            for key, (value, asker) in wishes.items():
                if not self.is_settled(*key):
                    self._propose(key, value, asker)

    def _proclaim(self, chosen: Chosen) -> None:
        for node in self.audience:
            self.send(node, chosen)
