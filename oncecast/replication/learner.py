"""The learner counts votes and applies chosen slots in order, without gaps, each slot once.

It is the replica of Paxos Made Moderately Complex (van Renesse, Altinbuken, 2015). A slot is chosen
when a majority of its membership has accepted it with one ballot. The chosen value is the one
that this replica has accepted with that ballot or a higher one. The leader also reports a slot up
to which all slots are chosen. This confirms the values that were accepted with its ballot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.events import (
    Added,
    Compare,
    Decided,
    LevelRaised,
    Removed,
    StateMachine,
)
from oncecast.replication.leader import Leader
from oncecast.replication.messages import CHECK, COMMAND, CONFIG, Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import Config, Member, Tallies, decode_config
from oncecast.replication.reconfiguration import Reconfiguration
from oncecast.replication.state import Fetching, Membership, Progress
from oncecast.replication.values import Values
from oncecast.replication.votes import Votes


@dataclass(eq=False)
class Learner:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    values: Values
    votes: Votes
    tallies: Tallies
    fetching: Fetching
    leader: Leader
    reconfiguration: Reconfiguration
    machine: StateMachine | None = None  # receives the restored slots
    started: bool = False
    # The ballot of the leader, and the last slot up to which it reported all slots as chosen.
    leader_knows: tuple[Ballot, int] = (BOTTOM, 0)

    # -- votes --

    def on_accepted(self, sender: NodeId, message: m.Accepted) -> None:
        ballot, member = message.ballot, Member(sender, message.incarnation)
        if ballot.round > self.leader.reach and self.leader.too_far(ballot):
            return
        if ballot > self.votes.promised:
            self.leader.outrun(ballot)
        applied, count = self.progress.applied, self.tallies.count
        last = min(message.last, applied + self.options.ahead_slots)
        for slot in range(max(message.first, applied + 1), last + 1):
            count(slot, ballot, member)
        self.advance()

    def on_stored(self, sender: NodeId, message: m.Stored) -> None:
        if sender != self.membership.me:
            return  # only the local disk can confirm this replica's own vote
        member, applied = self.membership.self_as_member, self.progress.applied
        for slot, ballot in self.values.on_disk(message.record):
            if slot > applied:
                self.tallies.count(slot, ballot, member)
        self.advance()

    def chosen_up_to(self, ballot: Ballot, slot: int) -> None:
        """Handle a report by the leader of `ballot` that all slots up to `slot` are chosen."""
        self.leader_knows = max(self.leader_knows, (ballot, slot))
        self.progress.known = max(self.progress.known, slot)
        self.advance()

    def _is_chosen(self, slot: int) -> bool:
        mine = self.votes.ballots.get(slot, BOTTOM)
        ballot, upto = self.leader_knows
        if slot <= upto and mine == ballot:
            return True
        tally = self.tallies.get(slot)
        if tally is None or not self.membership.history.of(slot).agreed(tally.voters):
            return False
        self.progress.known = max(self.progress.known, slot)
        return mine >= tally.ballot

    # -- applying --

    def start(self) -> None:
        """Emit decided values from now on."""
        self.started = True
        self.advance()

    def advance(self) -> None:
        """Apply the chosen slots that are available here, in order, up to a limit per step."""
        progress = self.progress
        before = progress.applied
        stop = before + self.options.step_slots
        while progress.applied < stop:
            slot = progress.applied + 1
            if not (progress.sure_of(slot) or self._is_chosen(slot)):
                break
            item = self.values.readable(slot)
            if item is None:
                progress.known = max(progress.known, slot)
                break
            self.apply(slot, item)
        if progress.applied > before:
            self.fetching.progressed()
            self.reconfiguration.progressed()
        if max(progress.known, progress.certain) > progress.applied:
            if progress.applied == stop:
                self.io.later(0.0, m.Behind())
            else:
                self.fetching.await_more()

    def apply_known(self, find: Callable[[int], Item | None]) -> None:
        """Apply slots that the log itself or another replica reports as chosen."""
        progress = self.progress
        while progress.sure_of(progress.applied + 1):
            slot = progress.applied + 1
            item = find(slot)
            if item is None:
                break
            self.apply(slot, item)

    def apply(self, slot: int, item: Item) -> None:
        leader, progress, values = self.leader, self.progress, self.values
        term = leader.proves(slot, item)
        self.tallies.pop(slot, None)
        progress.apply(slot, item)
        self.votes.ballots.pop(slot, None)
        if values.settled(slot):
            values.let_go(slot)
        token = leader.tokens.pop(slot, -1) if leader.tokens else -1
        if item.kind == COMMAND:
            progress.chains.append((slot, progress.chain))
            if self.started:
                self.io.emit(Decided(slot, item.data, token), after=0)
            else:
                assert self.machine is not None, "a restored log needs a state machine"
                self.machine.learn(slot, item.data)
        elif item.kind == CONFIG:
            self._reconfigure(slot, item)
        elif item.kind == CHECK and self.started:
            progress.checks.append((slot, progress.chain))
            self.io.emit(Compare(slot), after=0)
        if term is not None:
            term.proven = self.membership.config.version

    def _reconfigure(self, slot: int, item: Item) -> None:
        before, config = self.membership.config, decode_config(item.data)
        if not config.follows(before):
            return  # this membership was proposed as the successor of an earlier one
        self.membership.decided(slot, config)
        if self.started:
            if config.level > before.level:
                self.io.emit(LevelRaised(config.level), after=0)
            self.values.append_again(slot, item)
            self.tell_members(before)

    def tell_members(self, before: Config) -> None:
        """Emit Added and Removed for the members that have changed since `before`."""
        old, new = before.nodes(), self.membership.config.nodes()
        for node in new:
            if node not in old:
                self.io.emit(Added(node), after=0)
        for node in old:
            if node not in new:
                self.io.emit(Removed(node), after=0)
        self.reconfiguration.reconfigured(before)
