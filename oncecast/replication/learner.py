"""The learner: it counts votes, applies what is chosen in order, and fetches what it lacks.

A slot is chosen when a majority of its membership has accepted it with one ballot; what this
replica has accepted with that ballot or a higher one is then the value. A leader's word that all up
to a slot is chosen serves as well, for what was accepted with just its ballot.
"""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.errors import Crippled
from oncecast.kernel.protocol import NodeId
from oncecast.replication.acceptor import Acceptor
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.core import within
from oncecast.replication.events import Mended
from oncecast.replication.messages import (
    CONFIG,
    Accepted,
    Behind,
    Chosen,
    Item,
    Lacking,
    Recall,
    Recalled,
    Stored,
    Vote,
    Want,
    highest,
)
from oncecast.replication.quorum import NOBODY, Config, Member


class Tally:
    """Who has accepted a slot with the highest ballot seen for it."""

    __slots__ = ("ballot", "voters")

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        self.voters: dict[Member, None] = {}


class Learner(Acceptor):
    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.tallies: dict[int, Tally] = {}
        self.surely = (BOTTOM, 0)  # all up to this slot is chosen, said the leader of this ballot
        self.known = 0  # some slot up to here is chosen, and perhaps not here
        self.wanting: dict[NodeId, None] = {}  # who was asked for the next one in vain
        self.stood_at = -1  # what was applied when it began to wait for more; -1: it does not
        self.bereft: dict[NodeId, None] = {}  # whose disk has lost the next one
        # Slots below `applied` that cannot be read, and whose disk has lost each of them too.
        self.holes: dict[int, dict[NodeId, None]] = {}
        self.recalled: dict[int, dict[Member, Vote | None]] = {}  # what others voted for in them

    # -- votes --

    def on_accepted(self, sender: NodeId, message: Accepted) -> None:
        member = Member(sender, message.life)
        if message.ballot > self.promised:
            self.outrun(message.ballot)
        last = min(message.last, self.applied + self.options.ahead_slots)
        for slot in range(max(message.first, self.applied + 1), last + 1):
            self._vote(slot, message.ballot, member)
        self.advance()

    def on_stored(self, sender: NodeId, message: Stored) -> None:
        if sender != self.me:
            return  # only our own disk can say so
        for slot, ballot in self.on_disk(message.record):
            if slot > self.applied:
                self._vote(slot, ballot, self.self_as_member)
        self.advance()

    def _vote(self, slot: int, ballot: Ballot, member: Member) -> None:
        tally = self.tallies.get(slot)
        if tally is None or ballot > tally.ballot:
            tally = self.tallies[slot] = Tally(ballot)
        if ballot == tally.ballot:
            tally.voters[member] = None

    # -- what is chosen --

    def chosen_up_to(self, ballot: Ballot, slot: int) -> None:
        self.surely = max(self.surely, (ballot, slot))
        self.known = max(self.known, slot)
        self.advance()

    def advance(self) -> None:
        """Apply in order all that is chosen and here; not too much in one step."""
        before = self.applied
        stop = before + self.options.step_slots
        while self.applied < stop:
            slot = self.applied + 1
            if not (self.sure_of(slot) or self._is_chosen(slot)):
                break
            item = self.readable(slot)
            if item is None:
                self.known = max(self.known, slot)
                break
            self.apply(slot, item)
        if self.applied > before:
            self.wanting.clear()
            self.bereft.clear()
            self.progressed()
        if max(self.known, self.certain) > self.applied:
            if self.applied == stop:
                self.later(0.0, Behind())
            else:
                self.await_more()

    def await_more(self) -> None:
        """Ask for what is chosen and not here, in a while that nothing which comes puts off."""
        if self.stood_at < 0:
            self.later(self.options.resend, Behind())
            self.stood_at = self.applied

    def apply(self, slot: int, item: Item) -> None:
        self.tallies.pop(slot, None)
        super().apply(slot, item)

    def _is_chosen(self, slot: int) -> bool:
        mine = self.votes.get(slot, BOTTOM)
        ballot, upto = self.surely
        if slot <= upto and mine == ballot:
            return True
        tally = self.tallies.get(slot)
        if tally is None or not self.memberships.of(slot).agreed(tally.voters):
            return False
        self.known = max(self.known, slot)
        return mine >= tally.ballot

    def progressed(self) -> None:
        """Something was applied."""

    # -- what is chosen and not here --

    def on_behind(self) -> None:
        """Ask one who may have it, then each in turn: members the leader first, newcomers last."""
        before = self.applied if self.stood_at < 0 else self.stood_at
        self.stood_at = -1
        self.advance()
        self.known = max(self.known, self.certain)
        if not self.holes and (self.applied > before or self.known <= self.applied):
            return
        sources = self.sources()
        untried = [node for node in sources if node not in self.wanting]
        if not untried:
            self.wanting.clear()
            untried = sources
        if untried:
            node = self._whom_to_ask(untried)
            self.wanting[node] = None
            self.want_from(node)
        self.later(self.options.resend, Behind())

    def _whom_to_ask(self, nodes: list[NodeId]) -> NodeId:
        """A newcomer fetches much, and should not keep the leader from its work."""
        if self.seated and self.leader in nodes:
            return self.leader
        return self.rng.choice([node for node in nodes if node != self.leader] or nodes)

    def sources(self) -> list[NodeId]:
        """Who may have what this one lacks."""
        # A leader may have a seat that we do not know of, and be the only one who has it all.
        nodes = dict.fromkeys((*self.config.nodes(), self.leader, *self.contacts))
        return [node for node in nodes if node and node != self.me]

    def want_from(self, node: NodeId) -> None:
        if self.known > self.applied:
            self.send(node, Want(self.applied + 1, self.known, self.group), after=0)
        for slot in list(self.holes)[:16]:
            self.send(node, Want(slot, slot, self.group), after=0)

    def on_chosen(self, sender: NodeId, message: Chosen) -> None:
        for slot, item in enumerate(message.items, message.first):
            if slot in self.holes:
                self._mend(slot, item)
            elif slot > self.applied:
                self.keep_learned(slot, item)
        self.known = max(self.known, message.known)
        self.say_stored()
        before = self.applied
        self.advance()
        if before < self.applied < self.known:
            self.want_from(sender)  # there is more

    def on_lacking(self, sender: NodeId, message: Lacking) -> None:
        self.wanting[sender] = None
        if not message.lost:
            if message.slot in self.holes:
                self.send(sender, Recall(message.slot, self.group), after=0)
            return
        if message.slot in self.holes:
            self.holes[message.slot][sender] = None
        elif message.slot == self.applied + 1:
            self.bereft[sender] = None
            if self.damage and self._all_of(self.bereft):
                raise Crippled(
                    f"replica {self.me}: {self.damage}, and no other replica can read slot "
                    f"{message.slot} either",
                    "restore the log of one of them",
                )

    # -- what was here, and cannot be read --

    def on_recall(self, sender: NodeId, message: Recall) -> None:
        slot = message.slot
        if slot <= self.known_to_be_chosen or slot in self.told:
            return  # it is known here by now, readable or not: the sender will ask for it
        ballot = self.votes.get(slot)
        item = None if ballot is None else self.readable(slot)
        if self.estranged or within(self.lost, slot) or (ballot is not None and item is None):
            self.send(sender, Lacking(slot, True), after=0)
            return
        vote = None if ballot is None or item is None else Vote(slot, ballot, item)
        self.send(sender, Recalled(slot, self.life, vote), after=0)

    def on_recalled(self, sender: NodeId, message: Recalled) -> None:
        """What nobody but us knew to be chosen, and we cannot read, others may have voted for. Of a
        majority the highest vote is it: one of them has voted for what was chosen, before we asked,
        and no later ballot had another value."""
        slot = message.slot
        if slot not in self.holes:
            return
        votes = self.recalled.setdefault(slot, {})
        votes[Member(sender, message.life)] = message.vote
        config = self._config_behind(slot)
        best = highest(vote for member in config.members if (vote := votes.get(member)))
        if best is not None and config.agreed(votes):
            self._mend(slot, best.item)
            self.say_stored()

    def _config_behind(self, slot: int) -> Config:
        """Return the membership that is in force behind a slot, or NOBODY if that is forgotten.

        Each of its majorities meets each one that can have chosen the slot, whatever was chosen.
        """
        behind = slot + 1
        while not self.memberships.knows(behind):
            item = self.readable(behind)
            if item is None or item.kind == CONFIG:
                return NOBODY
            behind += 1
        return self.memberships.of(behind)

    def missed(self, slot: int) -> None:
        if slot not in self.holes:
            self.holes[slot] = {}
            self.later(0.0, Behind())

    def gone_everywhere(self, slot: int) -> bool:
        return self._all_of(self.holes.get(slot, {}))

    def _all_of(self, nodes: dict[NodeId, None]) -> bool:
        """Whether these are all who could be asked."""
        return all(node in nodes for node in (self.others() if self.seated else self.sources()))

    def _mend(self, slot: int, item: Item) -> None:
        del self.holes[slot]
        self.recalled.pop(slot, None)
        self.keep_learned(slot, item)
        self.emit(Mended(slot), after=0)
