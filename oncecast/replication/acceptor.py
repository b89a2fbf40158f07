"""The acceptor promises, accepts and follows. It never loses a promise or a vote.

It is the acceptor of Paxos Made Moderately Complex (van Renesse, Altinbuken, 2015), extended with
leader leases. A replica that has heard from a leader makes no promise to another candidate until
the suspicion time has passed on its own clock. The rule also holds after a restart, when the
replica no longer knows which leader it heard from. The suspicion time is on disk, because a restart
may change it.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import LeaderChanged
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.options import GroupOptions
from oncecast.replication.retirement import Retirement
from oncecast.replication.state import Following, Membership
from oncecast.replication.supply import Supplier
from oncecast.replication.values import Values
from oncecast.replication.votes import Votes


@dataclass(eq=False)
class Acceptor:
    io: Protocol
    options: GroupOptions
    membership: Membership
    following: Following
    values: Values
    votes: Votes
    leader: Leader
    retirement: Retirement
    learner: Learner
    supplier: Supplier

    # -- phase 1 --

    def on_canvass(self, sender: NodeId, message: m.Canvass) -> None:
        if not self.following.leased(sender):
            self.io.send(sender, m.Consent(self.membership.incarnation), after=0)
        elif self.membership.config.member(sender) is None:
            self.supplier.give_since(sender, message.first)

    def on_prepare(self, sender: NodeId, message: m.Prepare) -> None:
        ballot, votes = message.ballot, self.votes
        if ballot.node != sender or self._too_far(ballot):
            return
        if ballot < votes.promised:
            self.io.send(sender, m.Reject(votes.promised))
            return
        if ballot > votes.promised:
            if self.following.leased(sender):
                return
            votes.store_promise(ballot)
            self.leader.outrun(ballot)
            # Give the candidate time, because a second candidate would end a term that has just
            # begun.
            self.io.later(self.following.recess(), m.Silence())
        self.io.send(sender, votes.report(ballot, message.first, self.options.promise_bytes))

    def _too_far(self, ballot: Ballot) -> bool:
        return ballot.round > self.leader.reach and self.leader.too_far(ballot)

    # -- phase 2 --

    def on_accept(self, sender: NodeId, message: m.Accept) -> None:
        ballot, votes, membership = message.ballot, self.votes, self.membership
        if ballot.node != sender or self._too_far(ballot):
            return
        if ballot < votes.promised:
            self.io.send(sender, m.Reject(votes.promised))
            return
        self._follow(ballot)
        last = votes.accept(ballot, message.slot, message.items)
        if last >= message.slot:
            # A newcomer sends its vote only to the leader. The vote counts once the newcomer is a
            # member.
            others = membership.others() if membership.is_member else []
            if sender not in others:
                others.append(sender)  # the leader may be a member that this replica does not know
            for node in others:
                self.io.send(node, m.Accepted(ballot, message.slot, last, membership.incarnation))
            self.values.say_stored()
        self.learner.chosen_up_to(ballot, message.known)

    # -- following --

    def on_beat(self, sender: NodeId, message: m.Beat) -> None:
        ballot, votes, membership = message.ballot, self.votes, self.membership
        if ballot.node != sender or self._too_far(ballot):
            return
        if ballot < votes.promised:
            self.io.send(sender, m.Reject(votes.promised))
            return
        self._follow(ballot)
        if ballot > votes.promised:
            # Without this record, a restarted replica could follow an earlier leader again.
            votes.store_promise(ballot)
        membership.adopted = membership.adopted or message.group
        self.learner.chosen_up_to(ballot, message.known)
        incarnation, durable = membership.incarnation, self.values.durable
        facts = (incarnation, durable, self.options.suspicion, membership.known_level)
        heard = m.Heard(ballot, message.stamp, *facts)
        self.io.send(sender, heard, after=max(votes.promised_in, self.following.bound_in))

    def _follow(self, ballot: Ballot) -> None:
        """Follow the leader of this ballot, which has just sent a message."""
        following = self.following
        following.heard_leader()
        self.io.later(following.patience(), m.Silence())
        if ballot > following.ballot:
            self.leader.outrun(ballot)
            following.ballot = ballot
        if following.leader != ballot.node:
            following.leader = ballot.node
            self.io.emit(LeaderChanged(ballot.node), after=0)
        if self.leader.retired:
            self.retirement.followed()

    def on_release(self, sender: NodeId, message: m.Release) -> None:
        ballot = message.ballot
        if ballot.node != sender or ballot < self.votes.promised or self._too_far(ballot):
            return
        self.following.release()
        if message.successor == self.membership.me:
            self.leader.stand()
        elif message.successor:
            # The successor may fail to become a candidate.
            self.io.later(4 * self.options.resend, m.Silence())
