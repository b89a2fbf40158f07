"""The acceptor: it promises, it stores, it votes. It never forgets, and never goes back.

Paxos Made Moderately Complex (van Renesse, Altinbuken, 2015), acceptor; with the leader's lease:
who has heard of a leader promises nobody else anything until the suspicion time has passed on its
own clock, also after a restart, when it no longer knows whom it had heard.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId
from oncecast.replication.ballot import Ballot
from oncecast.replication.core import Core, behind, within, without
from oncecast.replication.events import LeaderChanged
from oncecast.replication.messages import (
    Accept,
    Accepted,
    Beat,
    Canvass,
    Consent,
    Heard,
    Prepare,
    Promise,
    Reject,
    Release,
    Silence,
    Vote,
)

FOR_EVER = float("inf")


class Acceptor(Core):
    # -- phase 1 --

    def on_canvass(self, sender: NodeId, message: Canvass) -> None:
        if not self.leased(sender):
            self.send(sender, Consent(self.life), after=0)
        elif self.config.member(sender) is None:
            self.tell_since(sender, message.first)

    def on_prepare(self, sender: NodeId, message: Prepare) -> None:
        ballot = message.ballot
        if ballot.node != sender:
            return
        if ballot < self.promised:
            self.send(sender, Reject(self.promised))
            return
        if ballot > self.promised:
            if self.leased(sender):
                return
            self.store_promise(ballot)
            self.outrun(ballot)
            # Let it try: who stands as soon as it has promised ends a reign that has just begun.
            self.later(self.recess(), Silence())
        self.send(sender, self._promise(ballot, message.first, self.options.promise_bytes))

    def recess(self) -> float:
        """Return how long to let another candidate try, and count its ballot.

        Each ballot without a leader is given twice the time of the one before. An election takes a
        round trip and two writes: candidates that wait for less end each other's elections.
        """
        options = self.options
        self.vain += 1
        return min(2.0 ** min(self.vain, 64) * 2 * options.resend, options.suspicion)

    def leased(self, candidate: NodeId) -> bool:
        """Whether somebody else may still rely on our answer to its Beat."""
        return candidate != self.leader and self.now < self.heard + self.options.suspicion

    def _promise(self, ballot: Ballot, first: int, room: float = FOR_EVER) -> Promise:
        """Report all votes, or as many as there is room for: the rest counts as lost, until the
        candidate has decided these and asks again."""
        known = self.known_to_be_chosen
        # Up to `applied` only: after a restart a replica may know of fewer slots to be chosen.
        self.lost = behind(self.applied, self.lost)
        votes: list[Vote] = []
        lost = behind(known, self.lost)
        reported = self.votes | dict.fromkeys(self.told, ballot)  # what is chosen beats any vote
        slots = sorted(slot for slot in reported if slot >= first and slot > known)
        for slot in slots:
            if room <= 0:
                lost.append((slot, slots[-1]))
                break
            item = self.readable(slot)
            if item is not None:
                votes.append(Vote(slot, reported[slot], item))
                lost = without(lost, slot)
                room -= len(item.data)
            elif not within(lost, slot):
                lost.append((slot, slot))
        return Promise(ballot, self.life, first, known, tuple(votes), tuple(lost))

    # -- phase 2 --

    def on_accept(self, sender: NodeId, message: Accept) -> None:
        ballot = message.ballot
        if ballot.node != sender:
            return
        if ballot < self.promised:
            self.send(sender, Reject(self.promised))
            return
        self.follow(ballot)
        last = self.accept(message)
        if last >= message.slot:
            # A newcomer votes for the leader only: there it counts from its seat on.
            others = self.others() if self.seated else []
            if sender not in others:
                others.append(sender)  # who leads may have a seat that we do not know of
            for node in others:
                self.send(node, Accepted(ballot, message.slot, last, self.life))
            self.say_stored()
        self.chosen_up_to(ballot, message.known)

    def accept(self, message: Accept) -> int:
        """Store what is new, and return the last slot that may be answered: a replica that is too
        far behind must catch up first.

        The value of a slot that is known to be chosen stays, even if it cannot be read here. An
        older leader may propose another one, which no majority will accept.
        """
        ballot, before = message.ballot, self._records.last
        known, reach = self.known_to_be_chosen, self.applied + self.options.ahead_slots
        for slot, item in enumerate(message.items, message.slot):
            if known < slot <= reach and slot not in self.told and self.votes.get(slot) != ballot:
                self.store(slot, ballot, item)
        if ballot > self.promised:
            if self._records.last == before:  # nothing that was stored says it
                self.store_promise(ballot)
            self.promised, self.promised_in = ballot, before + 1
        return min(message.slot + len(message.items) - 1, reach)

    # -- following --

    def on_beat(self, sender: NodeId, message: Beat) -> None:
        if message.ballot.node != sender:
            return
        if message.ballot < self.promised:
            self.send(sender, Reject(self.promised))
            return
        self.follow(message.ballot)
        if message.ballot > self.promised:
            # Or a restart would forget whom it has answered, and listen to an earlier one.
            self.store_promise(message.ballot)
        self.adopted = self.adopted or message.group
        self.chosen_up_to(message.ballot, message.known)
        bound = self.options.suspicion
        heard = Heard(message.ballot, message.stamp, self.life, self.durable, bound)
        self.send(sender, heard, after=self.promised_in)

    def follow(self, ballot: Ballot) -> None:
        """The leader has spoken."""
        self.heard, self.vain = self.now, 0
        self.later(self.patience(), Silence())
        if ballot > self.ballot:
            self.outrun(ballot)
            self.ballot = ballot
        if self.leader != ballot.node:
            self.leader = ballot.node
            self.emit(LeaderChanged(ballot.node), after=0)

    def patience(self) -> float:
        """How long to wait for a leader; not all the same, lest all stand at once."""
        return self.options.suspicion * (1 + self.rng.random() / 4)

    def on_release(self, sender: NodeId, message: Release) -> None:
        if message.ballot.node != sender or message.ballot < self.promised:
            return
        self.heard = self.now - self.options.suspicion
        if message.heir == self.me:
            self.stand()
        elif message.heir:
            self.later(4 * self.options.resend, Silence())  # if that one does not stand

    # -- hooks for the other roles --

    def outrun(self, ballot: Ballot) -> None:
        """A higher ballot is about: whoever leads or stands with a lower one ceases to."""

    def stand(self) -> None:
        """Try to lead."""

    def tell_since(self, node: NodeId, first: int) -> None:
        """It would stand and has no seat any more: what was decided since says so."""

    def chosen_up_to(self, ballot: Ballot, slot: int) -> None:
        """All up to `slot` is chosen, says the leader of `ballot`."""
