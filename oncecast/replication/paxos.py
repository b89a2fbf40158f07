"""A replica of a Multi-Paxos group (REP-1, REP-2): its parts and their inputs.

    Acceptor           acceptor.py         promises, accepts, follows the leader
    Learner            learner.py          counts votes, applies slots in order
    Leader             leader.py           gets promises, proposes, holds the lease
    CatchUp            catchup.py          fetches slots that are missing here
    Supplier           supply.py           saves snapshots, sends slots and snapshots to peers
    Transfer           supply.py           fetches a snapshot
    Reconfiguration    reconfiguration.py  changes the membership
    Joining            reconfiguration.py  offers this node to a group
    Retirement         retirement.py       hands over before a shutdown
    Comparison         comparing.py        compares the states of the replicas
    Gate               gate.py             drops messages from nonmembers
    OtherGroup         other_group.py      detects that another group includes this node
    Recovery           recovery.py         restores the log and starts

The parts share the state in state.py, values.py, votes.py, quorum.py and roster.py. Each part's
constructor lists the state and the other parts that it uses.

Needs links to the other replicas, and a log. docs/protocols/multipaxos.md describes the differences
from the papers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.acceptor import Acceptor
from oncecast.replication.catchup import CatchUp
from oncecast.replication.comparing import Comparison
from oncecast.replication.events import (
    Change,
    Compact,
    Digest,
    HandOver,
    Propose,
    Retire,
    StateMachine,
)
from oncecast.replication.gate import Gate
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.options import GroupOptions
from oncecast.replication.other_group import OtherGroup
from oncecast.replication.quorum import NO_MEMBERS, Config, Tallies
from oncecast.replication.reconfiguration import Joining, Reconfiguration
from oncecast.replication.recovery import Recovery
from oncecast.replication.retirement import Retirement
from oncecast.replication.roster import Roster
from oncecast.replication.state import Fetching, Following, Membership, Progress
from oncecast.replication.status import Status
from oncecast.replication.supply import Supplier, Transfer
from oncecast.replication.values import Values
from oncecast.replication.votes import Votes

SENDERS_MAX = 256  # maximum number of nodes whose last message time is kept


class ReplicaState:
    """All state shared by the components of a replica."""

    def __init__(self, io: Protocol, options: GroupOptions, membership: Membership) -> None:
        self.membership = membership
        self.progress = Progress(options)
        self.following = Following(io, options)
        self.values = Values(io, options, self.progress)
        self.votes = Votes(io, options, membership, self.progress, self.values)
        self.tallies = Tallies()
        self.fetching = Fetching(io, options, membership, self.progress, self.following)
        self.roster = Roster(io, options, membership)


class Paxos(Protocol):
    name = "paxos"
    heals = True
    Request: ClassVar = Propose | Compact | Digest | Change | HandOver | Retire
    Message = m.Message
    Record = m.Record
    State = m.Checkpoint
    Timer = m.Timer

    # Long, because it shows in one place which other parts each part may use.
    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        options: GroupOptions | None = None,
        contacts: tuple[NodeId, ...] = (),  # replicas of the group to join; empty to found a group
        founders: Config = NO_MEMBERS,  # founders of a group that starts with several replicas
        incarnation: int = 0,
        level: int = 1,  # the highest entry level that the state machine can read
    ) -> None:
        super().__init__(me, rng)
        self.options = options = options or GroupOptions()
        self.last_message: dict[NodeId, float] = {}  # time of the last message from each other node
        membership = Membership(me, incarnation, contacts, level)
        self.state = state = ReplicaState(self, options, membership)
        progress, following = state.progress, state.following
        values, votes, tallies = state.values, state.votes, state.tallies
        fetching, roster = state.fetching, state.roster
        common = (self, options, membership, progress)
        log = (values, votes)
        self.leader = leader = Leader(*common, following, *log, tallies, fetching, roster)
        self.reconfiguration = changes = Reconfiguration(*common, following, roster, leader)
        self.retirement = Retirement(self, membership, following, roster, leader)
        self.comparison = Comparison(*common, leader)
        self.joining = Joining(*common, following, fetching)
        self.learner = learner = Learner(*common, *log, tallies, fetching, leader, changes)
        self.supplier = supplier = Supplier(*common, *log, fetching, following)
        self.transfer = Transfer(*common, *log, tallies, fetching, leader, learner, supplier)
        self.catch_up = CatchUp(
            *common, *log, fetching, leader, learner, self.transfer, self.joining
        )
        self.acceptor = Acceptor(
            self, options, membership, following, *log, leader, self.retirement, learner, supplier
        )
        self.recovery = Recovery(*common, following, *log, fetching, leader, learner, founders)
        self.other_group = OtherGroup(self, options, membership, following)
        self.gate = Gate(membership, fetching, roster, self.other_group)
        self.status = Status(options, self.last_message, state, leader)
        self._history = membership.history
        self._handlers = self._message_handlers()
        self._timers = self._timer_handlers()

    def attach(self, machine: StateMachine) -> None:
        """Pass the slots of the restored log to this state machine."""
        self.learner.machine = machine

    # -- direct calls: events.Group --

    @property
    def applied(self) -> int:
        return self.state.progress.applied

    @property
    def level(self) -> int:
        return self.state.membership.config.level

    def entry(self, slot: int) -> bytes:
        return self.catch_up.entry(slot)

    def leads(self, now: float) -> bool:
        return self.leader.leads(now)

    def follows(self, now: float) -> bool:
        following, progress = self.state.following, self.state.progress
        heard = now < following.heard + following.options.suspicion
        return heard and bool(following.leader) and progress.applied >= progress.known

    def nodes(self) -> tuple[NodeId, ...]:
        return self.state.membership.nodes()

    # -- inputs --

    def restore(self, record: m.Record | m.Checkpoint) -> None:
        self.recovery.restore(record)

    def damaged(self, first: int, last: int) -> None:
        self.recovery.damaged(first, last)

    def start(self) -> None:
        self.recovery.start()

    def request(self, request: Propose | Compact | Digest | Change | HandOver | Retire) -> None:
        if isinstance(request, Propose):
            self.leader.on_propose(request)
        elif isinstance(request, Compact):
            self.supplier.on_compact(request)
        elif isinstance(request, Digest):
            self.comparison.on_digest(request)
        elif isinstance(request, Change):
            self.reconfiguration.on_change(request)
        elif isinstance(request, HandOver):
            self.leader.on_hand_over(request)
        else:
            self.retirement.begin()

    def down(self, peer: NodeId) -> None:
        self.retirement.lost(peer)

    def receive(self, sender: NodeId, message: m.Message) -> None:
        if sender not in self._history.named and not self.gate.admits(sender, message):
            return
        self.last_message[sender] = self.now
        if len(self.last_message) > SENDERS_MAX:
            self._forget_sender()
        group = getattr(message, "group", 0)
        if group and (own := self.state.membership.group) and group != own:
            if isinstance(message, m.Beat):
                self.other_group.on_beat(sender)
        else:
            self._handlers[type(message)](sender, message)

    def _forget_sender(self) -> None:
        """Drop the node that has been silent longest, preferably one that is not a replica."""
        replicas, heard = self.nodes(), self.last_message
        del heard[min(heard, key=lambda node: (node in replicas, heard[node]))]

    def _if_asked(self, take: Callable[[NodeId, Any], None]) -> Callable[[NodeId, m.Message], None]:
        """Return a handler that accepts answers only from nodes that were asked."""

        def take_if_asked(sender: NodeId, message: m.Message) -> None:
            if self.gate.asked_for(sender):
                take(sender, message)

        return take_if_asked

    def _on_guide(self, sender: NodeId, message: m.Guide) -> None:
        self.joining.on_guide(sender, message)
        self.other_group.on_guide(sender, message)

    def timeout(self, timer: m.Timer) -> None:
        self._timers[type(timer)]()

    def _beat_due(self) -> None:
        self.leader.beat()
        self.reconfiguration.look()
        self.comparison.propose_if_due()

    def _message_handlers(self) -> dict[type, Callable[[NodeId, Any], None]]:
        return {
            m.Canvass: self.acceptor.on_canvass,
            m.Prepare: self.acceptor.on_prepare,
            m.Accept: self.acceptor.on_accept,
            m.Beat: self.acceptor.on_beat,
            m.Release: self.acceptor.on_release,
            m.Accepted: self.learner.on_accepted,
            m.Stored: self.learner.on_stored,
            m.Consent: self.leader.on_consent,
            m.Promise: self.leader.on_promise,
            m.Reject: self.leader.on_reject,
            m.Heard: self.reconfiguration.on_heard,
            m.Offer: self.reconfiguration.on_offer,
            m.Guide: self._on_guide,
            m.Attest: self.other_group.on_attest,
            m.Chosen: self._if_asked(self.catch_up.on_chosen),
            m.Lacking: self._if_asked(self.catch_up.on_lacking),
            m.Recall: self.catch_up.on_recall,
            m.Recalled: self._if_asked(self.catch_up.on_recalled),
            m.Want: self.supplier.on_want,
            m.WantPiece: self.supplier.on_want_piece,
            m.Ahead: self._if_asked(self.transfer.on_ahead),
            m.Piece: self._if_asked(self.transfer.on_piece),
            m.Sum: self.comparison.on_sum,
        }

    def _timer_handlers(self) -> dict[type, Callable[[], None]]:
        return {
            m.BeatDue: self._beat_due,
            m.Silence: self.leader.on_silence,
            m.Unanswered: self.leader.on_unanswered,
            m.Flush: self.leader.on_flush,
            m.Behind: self.catch_up.on_behind,
            m.Unclaimed: self.supplier.on_unclaimed,
            m.OfferDue: self.joining.on_offer_due,
        }
