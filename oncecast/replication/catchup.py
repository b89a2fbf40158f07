"""Catch up: fetch chosen slots that are missing or unreadable here.

If this replica cannot read a slot, and no other replica knows that it was chosen, votes decide.
The other replicas report their votes, and the highest vote of a majority is the chosen value.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.errors import Crippled
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Mended, Missing
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.messages import (
    CONFIG,
    Chosen,
    Item,
    Lacking,
    Recall,
    Recalled,
    Vote,
    highest,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, decode_config
from oncecast.replication.reconfiguration import Joining
from oncecast.replication.state import Fetching, Membership, Progress
from oncecast.replication.supply import Transfer
from oncecast.replication.values import Values
from oncecast.replication.votes import Votes, within


@dataclass(eq=False)
class CatchUp:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    values: Values
    votes: Votes
    fetching: Fetching
    leader: Leader
    learner: Learner
    transfer: Transfer
    joining: Joining

    def on_behind(self) -> None:
        """Ask a replica for missing slots, unless slots have arrived since the timer was set."""
        if self.transfer.ask_again():
            return
        progress, fetching = self.progress, self.fetching
        before = progress.applied if fetching.applied_when_set < 0 else fetching.applied_when_set
        fetching.applied_when_set = -1
        self.learner.advance()
        progress.known = max(progress.known, progress.certain)
        behind = progress.applied == before and progress.known > progress.applied
        if fetching.holes or behind:
            fetching.want_from_next()

    def on_chosen(self, sender: NodeId, message: Chosen) -> None:
        progress = self.progress
        behind = progress.known > progress.applied
        if not self.transfer.take_entries(sender, message):
            self._take(sender, message)
        if behind and progress.known <= progress.applied and not self.membership.is_member:
            self.joining.offer()  # offer now, because under load this node may fall behind again

    def _take(self, sender: NodeId, message: Chosen) -> None:
        progress = self.progress
        reach = progress.applied + self.options.ahead_slots
        for slot, item in enumerate(message.items, message.first):
            if slot in self.fetching.holes:
                self._mend(slot, item)
            elif progress.applied < slot <= reach:
                self._keep(slot, item)
        progress.known = max(progress.known, message.known)
        self.values.say_stored()
        before = progress.applied
        self.learner.advance()
        if before < progress.applied:
            self.fetching.source = sender
            if progress.applied < progress.known:
                self.fetching.want_from(sender)  # the sender has more slots

    def _keep(self, slot: int, item: Item) -> None:
        self.leader.hear_chosen(slot, item)
        self.votes.store_learned(slot, item)

    def on_lacking(self, sender: NodeId, message: Lacking) -> None:
        fetching, slot = self.fetching, message.slot
        fetching.tried[sender] = None
        if not message.lost:
            if slot in fetching.holes:
                fetching.ask(sender)
                self.io.send(sender, Recall(slot, self.membership.group), after=0)
            return
        if slot in fetching.holes:
            fetching.holes[slot][sender] = None
        elif slot == self.progress.applied + 1:
            fetching.lost_by[sender] = None
            if self.votes.damage and fetching.all_of(fetching.lost_by):
                raise Crippled(
                    f"replica {self.membership.me}: {self.votes.damage}, and no other replica can "
                    f"read slot {slot}",
                    "restore the log of one replica from a backup",
                )

    # -- slots that were stored here and cannot be read --

    def entry(self, slot: int) -> bytes:
        """Return the value of a decided slot. Raise Missing if it must be fetched first."""
        item = self.values.readable(slot)
        if item is None:
            if self.fetching.gone_everywhere(slot):
                return self.values.item(slot).data  # raises the error that describes the damage
            self.fetching.note_hole(slot)
            raise Missing(slot)
        return item.data

    def on_recall(self, sender: NodeId, message: Recall) -> None:
        slot, votes = message.slot, self.votes
        if slot <= self.progress.known_to_be_chosen or slot in self.progress.learned:
            return  # this replica now knows the slot, and the sender will ask for it
        ballot = votes.ballots.get(slot)
        item = None if ballot is None else self.values.readable(slot)
        unreadable = ballot is not None and item is None
        if votes.incarnation_lost or within(votes.lost, slot) or unreadable:
            self.io.send(sender, Lacking(slot, True), after=0)
            return
        vote = None if ballot is None or item is None else Vote(slot, ballot, item)
        self.io.send(sender, Recalled(slot, self.membership.incarnation, vote), after=0)

    def on_recalled(self, sender: NodeId, message: Recalled) -> None:
        """Count votes for a slot that only this replica knew to be chosen and cannot read.

        The highest vote of a majority is the chosen value. At least one of these members voted for
        that value before it was asked, and no later ballot had a different value.
        """
        slot = message.slot
        if slot not in self.fetching.holes:
            return
        votes = self.fetching.recalled.setdefault(slot, {})
        votes[Member(sender, message.incarnation)] = message.vote
        config = self._config_after(slot)
        best = highest(vote for member in config.members if (vote := votes.get(member)))
        if best is not None and config.agreed(votes):
            self._mend(slot, best.item)
            self.values.say_stored()

    def _config_after(self, slot: int) -> Config:
        """Return the first known membership after a slot, or NO_MEMBERS if it may be too new.

        The membership has changed at most once in between, so each of its majorities overlaps each
        majority that can have chosen the slot.
        """
        history, after = self.membership.history, slot + 1
        proposed: list[Config] = []
        while not history.knows(after):
            item = self.values.readable(after)
            if item is None:  # it may be a membership
                self.fetching.fill_first(after, slot)
                return NO_MEMBERS
            if item.kind == CONFIG:
                proposed.append(decode_config(item.data))
            after += 1
        config = history.of(after)
        return config if all(each == config for each in proposed) else NO_MEMBERS

    def _mend(self, slot: int, item: Item) -> None:
        self.fetching.fill_hole(slot)
        self._keep(slot, item)
        self.io.emit(Mended(slot), after=0)
