"""The leader wins a ballot, completes the proposals of earlier leaders and proposes new values.

It is the leader of Paxos Made Moderately Complex (van Renesse, Altinbuken, 2015), with scout and
commanders. One Prepare serves all slots. Slots are pipelined within a window. Values proposed in
one turn while others are in flight share an Accept. A slot is proposed only when its membership is
known: while a membership change is in flight, later slots wait. A leader proposes the next
membership only after it has decided a slot under the current membership with its own ballot. No
leader with a lower ballot can then decide a later slot.

A leader answers reads locally while it holds a lease: a majority has agreed to promise nothing to
other candidates. The lease starts when the Beat is sent.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import BOTTOM, ROUND_MAX, STEP, Ballot, above
from oncecast.replication.events import HandOver, LeaderChanged, Propose
from oncecast.replication.messages import COMMAND, CONFIG, Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.promises import Promises
from oncecast.replication.quorum import Config, Member, Tallies, decode_config
from oncecast.replication.roster import Roster
from oncecast.replication.state import Fetching, Following, Membership, Progress
from oncecast.replication.values import Values
from oncecast.replication.votes import UNLIMITED, Votes

SLOWEST = 8 << 20  # minimum throughput assumed for links and disks, in bytes per second


class Term:
    """One ballot of this replica, from its Prepare until it steps down."""

    def __init__(self, ballot: Ballot, now: float) -> None:
        self.ballot, self.since = ballot, now
        self.audible = now  # no voter could answer a Beat before this time
        self.promises = Promises()
        self.elected = False  # whether a majority has promised
        self.acting = False  # whether all slots that earlier leaders may have chosen are applied
        self.next = 0  # the next slot to propose
        self.queue: deque[tuple[int, Item]] = deque()
        self.in_flight: deque[tuple[int, int]] = deque()  # slot and size of unapplied proposals
        self.in_flight_bytes = 0
        self.changing: tuple[int, Config] | None = None  # the membership in flight, with its slot
        self.removing = 0  # the slot of a removal that waits for the remaining members, or 0
        self.removing_since = now  # when that removal began to wait
        self.proven = 0  # version of the membership under which this ballot has decided a slot
        self.answered = 0  # the last applied slot at the time of the last check of the answers
        # The time from which each member may promise to another candidate.
        self.ends: dict[Member, float] = {}
        self.waiting = self.flushing = False  # whether Unanswered and Flush are set

    @property
    def idle(self) -> bool:
        """Return whether there is nothing to propose."""
        return self.acting and not self.queue and self.next > self.promises.horizon

    @property
    def changes_membership(self) -> bool:
        return self.changing is not None or any(item.kind == CONFIG for _, item in self.queue)

    def withdraw_membership(self) -> None:
        """Drop a membership that waits to be proposed."""
        if self.queue and self.queue[0][1].kind == CONFIG:
            self.queue.popleft()


@dataclass(eq=False)
class Leader:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    following: Following
    values: Values
    votes: Votes
    tallies: Tallies
    fetching: Fetching
    roster: Roster
    term: Term | None = None
    seen: Ballot = BOTTOM  # the highest ballot seen
    reach: int = STEP  # the highest round that this replica accepts
    consents: dict[Member, None] = field(default_factory=dict)  # members that have no leader
    tokens: dict[int, int] = field(default_factory=dict)  # tokens of its own proposals, by slot
    retired: bool = False  # whether this replica is about to stop, so that it never leads again

    # -- phase 1 --

    def on_silence(self) -> None:
        if self.term is not None or not self.membership.is_member or self.retired:
            return
        left = self.following.lease_end - self.io.now
        if left > 0:
            self.io.later(left, m.Silence())
        elif self.membership.others():
            self._canvass()
        elif all(last <= self.progress.applied for _, last in self.votes.lost):
            self.stand()  # this replica is the only member, and its lost votes do not matter

    def _canvass(self) -> None:
        """Ask the other members for a leader, and become a candidate if a majority has none.

        A new ballot ends every lower term. Otherwise, a replica that was offline or partly isolated
        would end a term in which all other members make progress.
        """
        membership = self.membership
        self.following.lose_leader()
        self.consents = {membership.self_as_member: None}
        for node in membership.others():
            self.fetching.ask(node)  # the node may answer that this replica was removed
            self.io.send(node, m.Canvass(self.progress.applied + 1, membership.group), after=0)
        self.io.later(self.options.resend * (1 + self.io.rng.random()), m.Silence())

    def on_consent(self, sender: NodeId, message: m.Consent) -> None:
        if self.term is not None or self.following.leased(self.membership.me):
            return  # meanwhile, there is a leader
        self.consents[Member(sender, message.incarnation)] = None
        if self.membership.config.agreed(self.consents):
            self.stand()

    def stand(self) -> None:
        """Become a candidate: prepare a ballot above all ballots seen so far."""
        self.roster.begin_term()
        membership = self.membership
        if not membership.is_member or self.retired:
            return
        if max(self.seen, self.votes.promised).round >= ROUND_MAX:
            return  # no ballot is left; only an older version can have promised such a high ballot
        ballot = self._next_ballot()
        self.following.lose_leader()
        self.term = Term(ballot, self.io.now)
        self.votes.store_promise(ballot)
        first = self.progress.applied + 1
        self.io.send(membership.me, self.votes.report(ballot, first))
        for node in membership.others():
            # Prepare waits until the promise is on disk: a restart must not reuse the ballot.
            self.io.send(node, m.Prepare(ballot, first, membership.group))
        self._await_answers(self.term)

    def _next_ballot(self) -> Ballot:
        self.seen = above(max(self.seen, self.votes.promised), self.membership.me)
        return self.seen

    def lead_alone(self) -> None:
        """Lead a group of one, which needs no promises from other replicas."""
        ballot = self.votes.promised = self._next_ballot()
        self.term = Term(ballot, self.io.now)
        promise = self.votes.report(ballot, self.progress.applied + 1)
        self.term.promises.add(self.membership.self_as_member, promise)
        self.proceed()

    def on_promise(self, sender: NodeId, message: m.Promise) -> None:
        term, progress = self.term, self.progress
        if term is None or message.ballot != term.ballot:
            return
        if message.first > progress.applied + 1:
            return  # the answer is for an earlier incarnation, which requested fewer slots
        term.promises.add(Member(sender, message.incarnation), message)
        if message.known > progress.applied:
            progress.known = max(progress.known, message.known)
            self.fetching.want_from(sender)
            self.fetching.await_more()
        self.proceed()

    def too_far(self, ballot: Ballot) -> bool:
        """Return whether a ballot is too high to result from elections.

        Accepting it would force the next candidate even higher, and ballots are finite. The limit
        therefore rises by one step at a time, and a replica still reaches any real ballot after a
        few messages.
        """
        seen = max(self.seen, self.votes.promised)
        self.reach = seen.round + STEP
        if ballot.round <= self.reach:
            return False
        if ballot.round < ROUND_MAX:
            self.seen = Ballot(self.reach, NodeId(""))
        return True

    def on_reject(self, sender: NodeId, message: m.Reject) -> None:
        if message.ballot.round > self.reach and self.too_far(message.ballot):
            return
        self.seen = max(self.seen, message.ballot)
        if self.term is not None and message.ballot > self.term.ballot:
            if self.term.elected:  # this replica was the last leader and now steps down
                self.following.release()
            self.step_down()
            pause = self.following.recess() * (1 + 3 * self.io.rng.random()) / 4
            self.io.later(pause, m.Silence())

    # -- the end of a term --

    def outrun(self, ballot: Ballot) -> None:
        """Step down if `ballot` is higher than the ballot of the term."""
        self.seen = max(self.seen, ballot)
        if self.term is not None and self.term.ballot < ballot:
            self.step_down()

    def hear_chosen(self, slot: int, item: Item) -> None:
        """Step down if the chosen value differs from the value that this leader proposed.

        Otherwise it would report the chosen value as its own, and tell its followers that the value
        they accepted was chosen.
        """
        own = self.term.in_flight if self.term is not None else ()
        if own and own[0][0] <= slot <= own[-1][0] and self.values.readable(slot) != item:
            self.step_down()

    def overtaken(self) -> None:
        """Step down if slots are in flight, because other replicas have already decided them."""
        if self.term is not None and self.term.in_flight:
            self.step_down()

    def step_down(self) -> None:
        self.term = None
        self.tokens.clear()
        self.following.lose_leader()
        self.io.later(self.following.patience(), m.Silence())

    def on_hand_over(self, request: HandOver) -> None:
        term = self.term
        if term is not None and term.acting and request.successor in self.membership.others():
            self.resign(term, request.successor)

    def resign(self, term: Term, successor: NodeId) -> None:
        self.step_down()
        if term.acting:  # otherwise another leader may hold leases from other members
            self.following.release()
            for node in self.membership.others():
                self.io.send(node, m.Release(term.ballot, successor), after=0)

    # -- phase 2 --

    def on_propose(self, request: Propose) -> None:
        term = self.term
        if term is None or not term.acting:
            return  # the caller learns of the next leader, and proposes there
        item, now = Item(COMMAND, request.value), not term.in_flight or self.membership.is_single
        if now and self._may_propose_next(term):
            self.tokens[term.next] = request.token
            self._propose(term, [item])
            return
        term.queue.append((request.token, item))
        if now:
            self.proceed()
        elif not term.flushing:
            term.flushing = True
            self.io.later(0.0, m.Flush())

    def _may_propose_next(self, term: Term) -> bool:
        """Return whether a new value may be proposed now, with no other value before it."""
        term.next = max(term.next, self.progress.applied + 1)
        return (
            term.idle
            and term.changing is None
            and len(term.in_flight) < self.options.window_slots
            and term.in_flight_bytes < self.options.window_bytes
            and term.promises.cover(term.next, self.membership.config)
            and not self._beaten(term.next, None)
        )

    def on_flush(self) -> None:
        if self.term is not None:
            self.term.flushing = False
            self.proceed()

    def proves(self, slot: int, item: Item) -> Term | None:
        """Return the term if this slot is the first that it won under the current membership."""
        term, config = self.term, self.membership.config
        if term is None or not (term.proven < config.version or item.kind == CONFIG):
            return None
        return term if self.tallies.won(slot, term.ballot, config) else None

    def progressed(self) -> None:
        """Propose more values now that slots have been applied."""
        term, applied = self.term, self.progress.applied
        if term is None:
            return
        while term.in_flight and term.in_flight[0][0] <= applied:
            slot, size = term.in_flight.popleft()
            term.in_flight_bytes -= size
            term.promises.forget(slot)
        if term.changing is not None and term.changing[0] <= applied:
            term.changing = None
        self.proceed()

    def proceed(self) -> None:
        """Propose all values that may be proposed now; values from earlier ballots come first."""
        term = self.term
        while term is not None and self._holds(term) and not term.idle:
            term.next = max(term.next, self.progress.applied + 1)
            if term.changing is not None:
                return
            items = self._next_items(term)
            if not self._holds(term):
                return
            self._become_leader(term)
            if not items:
                if not term.idle:
                    self._await_answers(term)  # wait for members that can report more votes
                return
            self._propose(term, items)

    def _holds(self, term: Term) -> bool:
        """Return whether this term has not ended."""
        return term is self.term

    def _next_items(self, term: Term) -> list[Item]:
        config, promises, options = self.membership.config, term.promises, self.options
        items: list[Item] = []
        bytes_left = min(options.accept_bytes, options.window_bytes - term.in_flight_bytes)
        slot = term.next
        while bytes_left > 0 and len(term.in_flight) + len(items) < options.window_slots:
            begun = slot <= promises.horizon
            if not (begun or term.queue) or not promises.cover(slot, config):
                break
            value = promises.value(slot, config) if begun else None
            if self._beaten(slot, value):
                self.step_down()
                return []
            if self._must_wait(slot, value or term.queue[0][1]):
                break
            if value is not None:
                items.append(value)
            else:
                self.tokens[slot], item = term.queue.popleft()
                items.append(item)
            if items[-1].kind == CONFIG:
                break
            bytes_left -= len(items[-1].data)
            slot += 1
        return items

    def _must_wait(self, slot: int, item: Item) -> bool:
        """Return whether a membership removes a member that may still be needed.

        The remaining members must have all slots before the change. A disk may have lost a slot
        after its vote was counted, and the removed member may hold the last copy.
        """
        if item.kind != CONFIG:
            return False
        before, config = self.membership.config, decode_config(item.data)
        if not config.follows(before) or len(config.members) >= len(before.members):
            return False
        if self.progress.applied < slot - 1:
            return True
        if self.roster.have(config, slot - 1):
            return False
        term = self.term
        if term is not None and term.removing < slot:
            term.removing, term.removing_since = slot, self.io.now
            self.io.later(0.0, m.BeatDue())  # the answers report which slots the members have
        return True

    def _beaten(self, slot: int, value: Item | None) -> bool:
        """Return whether the chosen value differs from the value that this leader would propose.

        If so, a leader with a higher ballot has chosen it. `value` is None for a new command.
        """
        if slot > self.progress.certain and slot not in self.progress.learned:
            return False
        return value is None or self.values.readable(slot) not in (None, value)

    def _propose(self, term: Term, items: list[Item]) -> None:
        first, send, membership = term.next, self.io.send, self.membership
        others = membership.others()
        # A sole member sends no proposals to a newcomer. A crash could lose that member's ballot,
        # and the member could reuse the ballot for another value.
        if others:
            applied = self.progress.applied
            accept = m.Accept(term.ballot, first, tuple(items), applied, membership.group)
            for node in self.roster.followers():
                send(node, accept, after=0)
        self.votes.accept(term.ballot, first, items)
        for slot, item in enumerate(items, first):
            term.in_flight.append((slot, len(item.data)))
            term.in_flight_bytes += len(item.data)
        term.next = first + len(items)
        if items[-1].kind == CONFIG:
            term.changing = term.next - 1, decode_config(items[-1].data)
        for node in others:
            send(node, m.Accepted(term.ballot, first, term.next - 1, membership.incarnation))
        self.values.say_stored()
        if others:
            self._await_answers(term)

    def _await_answers(self, term: Term) -> None:
        if not term.waiting:
            term.waiting = True
            # A large message takes longer to send. A copy sent too early would queue behind it.
            self.io.later(self.options.resend + term.in_flight_bytes / SLOWEST, m.Unanswered())

    def on_unanswered(self) -> None:
        """Send Prepare and Accept again to members that have not answered.

        If the leader cannot read a value in flight, it cannot send that value again. It steps down,
        because only other members' votes can complete that slot.
        """
        term, applied = self.term, self.progress.applied
        if term is None:
            return
        if term.in_flight and self.values.readable(applied + 1) is None:
            self.resign(term, NodeId(""))
            return
        if self._gets_nowhere(term):
            self.step_down()
            return
        term.waiting = False
        self._prepare_again(term)
        if term.in_flight and term.answered == applied:
            self._accept_again(term)
        term.answered = applied
        if term.in_flight or not term.idle or not self.covered(term):
            self._await_answers(term)

    def _gets_nowhere(self, term: Term) -> bool:
        """Return whether a candidate should ask for a leader again.

        Members that follow a leader do not answer a Prepare. A replica that has since been removed
        learns of its removal only through a Canvass.
        """
        late = self.io.now > term.since + 2 * self.options.suspicion
        return late and not term.elected and not self.covered(term)

    def _prepare_again(self, term: Term) -> None:
        """Ask members that have not promised or could not report all their votes at once."""
        membership, applied = self.membership, self.progress.applied
        for member in membership.config.members:
            promise = term.promises.members.get(member)
            whole = promise is not None and all(high <= applied for _, high in promise.lost)
            if not whole and member.node != membership.me:
                self.io.send(member.node, m.Prepare(term.ballot, applied + 1, membership.group))

    def _accept_again(self, term: Term) -> None:
        membership, first = self.membership, self.progress.applied + 1
        items: list[Item] = []
        bytes_left = self.options.accept_bytes
        while bytes_left > 0 and first + len(items) < term.next:
            item = self.values.readable(first + len(items))
            if item is None:
                break
            items.append(item)
            bytes_left -= len(item.data)
        answered = self.tallies.voters(first, term.ballot)
        accept = m.Accept(term.ballot, first, tuple(items), first - 1, membership.group)
        for member in membership.config.members:
            if member.node != membership.me and member not in answered:
                self.io.send(member.node, accept, after=0)

    # -- leading --

    def _become_leader(self, term: Term) -> None:
        following, promises, applied = self.following, term.promises, self.progress.applied
        if term.acting or applied < promises.known:
            return  # a candidate that is behind does not know the current membership
        if not self.covered(term):
            return
        if not term.elected:
            term.elected = True
            term.audible, following.failed_ballots = self.io.now, 0
            following.ballot = term.ballot
            self.beat()
            self.roster.changes.clear()  # these changes were requested in an earlier term
        if applied >= promises.horizon:
            term.acting = True
            following.leader = self.membership.me
            self.io.emit(LeaderChanged(self.membership.me), after=0)

    def beat(self) -> None:
        """Send a Beat to all followers, or step down if a majority has been silent for too long."""
        term, now, options = self.term, self.io.now, self.options
        self.roster.beats.append((now, self.progress.applied))
        if term is None or not term.elected:
            return
        if now > max(self.lease_ends(), term.audible) + options.suspicion:
            self.step_down()  # so that callers ask another node
            return
        self.following.heard = now
        term.ends[self.membership.self_as_member] = now + options.lease(options.suspicion)
        for node in self.roster.audience():
            self.beat_to(node, term)
        self.io.later(options.heartbeat, m.BeatDue())

    def beat_to(self, node: NodeId, term: Term) -> None:
        beat = m.Beat(term.ballot, self.progress.applied, self.io.now, self.membership.group)
        self.io.send(node, beat, after=0)

    def reconfigured(self) -> None:
        """Collect promises from members that vote from now on."""
        term = self.term
        if term is None:
            return
        if not self.membership.is_member:
            self.resign(term, NodeId(""))
            return
        term.audible = self.io.now
        self.io.later(0.0, m.BeatDue())
        if not self.covered(term):
            self._prepare_again(term)
            self._await_answers(term)

    def covered(self, term: Term) -> bool:
        """Return whether a majority of the current members has promised."""
        return term.promises.cover(term.promises.horizon + 1, self.membership.config)

    # -- the lease --

    def on_heard(self, sender: NodeId, message: m.Heard) -> None:
        term = self.term
        if term is None or message.ballot != term.ballot:
            return
        member = Member(sender, message.incarnation)
        if not (0 <= message.stamp <= self.io.now and message.bound >= 0):
            return  # no Beat was sent at that time
        end = message.stamp + self.options.lease(message.bound)
        term.ends[member] = max(end, term.ends.get(member, end))

    def lease_ends(self) -> float:
        """Return the time, on this clock, before which no other leader can be elected."""
        term = self.term
        if term is None or not term.elected:
            return 0.0
        ends = self._lease(term, self.membership.config)
        return ends if term.changing is None else min(ends, self._lease(term, term.changing[1]))

    def _lease(self, term: Term, config: Config) -> float:
        if len(config.members) == 1 and config.members[0].node == self.membership.me:
            return UNLIMITED
        ends = sorted(term.ends.get(member, term.since) for member in config.members)
        return ends[len(ends) - config.majority] if ends else term.since

    def leads(self, now: float) -> bool:
        """Return whether this replica leads, and so has applied all acknowledged slots."""
        return self.term is not None and self.term.acting and now < self.lease_ends()
