"""What is true of a replica group, told by its disks: who promised, who accepted, what is chosen.

The books are kept from the records that nodes append and that reach their disks, and from nothing
else; majorities are counted here a second time, so that a rule bent in the protocol does not bend
what it is measured by.
"""

from __future__ import annotations

from typing import NamedTuple

import google_crc32c
import msgspec

from oncecast.kernel.protocol import Append, NodeId, Value
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.messages import (
    CONFIG,
    Again,
    Born,
    Entry,
    Item,
    Learned,
    Promised,
    Reborn,
)
from oncecast.replication.quorum import Config, Member
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Step

CLIENT = "client/"  # so begins the name of who is no replica

KEPT_SLOTS = 20_000  # behind the last chosen one; older slots are forgotten
FORGET_EVERY = 1_000  # slots

decode_config = msgspec.msgpack.Decoder(Config).decode


class Choice(NamedTuple):
    """What was chosen for a slot, with which ballot first; and the checksum of all up to it."""

    item: Item
    ballot: Ballot
    chain: int


FORGOTTEN = Item(-1, b"")  # stands for an item that was chosen long ago


class Disk:
    """One disk, in one life."""

    def __init__(self) -> None:
        self.life = 0
        self.promised = BOTTOM
        self.votes: dict[int, Ballot] = {}
        self.values: dict[int, Item] = {}  # what stands at a slot, accepted or learned
        self.waiting: list[Append] = []  # not synced

    def forget_below(self, slot: int) -> None:
        self.votes = {each: vote for each, vote in self.votes.items() if each >= slot}
        self.values = {each: value for each, value in self.values.items() if each >= slot}


class Books(Checker):
    """Must be the first of the checkers: the others look things up here."""

    def __init__(self, founders: Config) -> None:
        self.disks: dict[NodeId, Disk] = {}
        self.proposed: dict[int, dict[Ballot, Item]] = {}  # by slot
        self.accepted: dict[int, dict[Ballot, dict[Member, None]]] = {}
        self.promises: dict[Member, Ballot] = {}
        self.lives: dict[Member, None] = {}
        self.chosen: list[Choice] = [Choice(Item(0, b""), BOTTOM, 0)]
        self.ballots: dict[Ballot, None] = {}  # with which something was chosen
        self._forgotten = 0  # all slots below this one
        self.configs: list[tuple[int, Config]] = [(0, founders)]  # in force behind the slot

    @property
    def last(self) -> int:
        """All slots up to this one are chosen."""
        return len(self.chosen) - 1

    def is_chosen(self, slot: int, item: Item) -> bool:
        """Return whether this item is chosen. Of a forgotten slot any item may be."""
        return slot <= self.last and self.chosen[slot].item in (item, FORGOTTEN)

    def config(self, applied: int) -> Config:
        """Who votes on the slot behind `applied`."""
        return next(config for slot, config in reversed(self.configs) if slot <= applied)

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node.startswith(CLIENT):
            return
        if step.kind == "synced":
            self._synced(self.disks[step.node], step.node, step.subject)
        elif step.kind == "wipe":
            self.disks[step.node] = Disk()
        elif step.kind == "start":
            disk = self.disks.setdefault(step.node, Disk())
            journal = sim.nodes[step.node].journal
            assert journal is not None
            self._synced(disk, step.node, journal.synced)
            self._crashed(disk, step.node)
        for effect in step.effects:
            if type(effect) is Append:
                self.disks[step.node].waiting.append(effect)
                self._written(step.node, effect.record)

    # -- what is proposed --

    def _written(self, node: NodeId, record: Value) -> None:
        if isinstance(record, Entry):
            self.propose(node, record.slot, record.ballot, Item(record.kind, record.data))
        elif isinstance(record, Learned):
            item = Item(record.kind, record.data)
            if not self.is_chosen(record.slot, item):
                raise Violation(f"{node} learned {item} for slot {record.slot}: it is not chosen")

    def propose(self, node: NodeId, slot: int, ballot: Ballot, item: Item) -> None:
        before = self.proposed.setdefault(slot, {}).setdefault(ballot, item)
        if before != item:
            raise Violation(f"{node} has {item} for slot {slot} at {ballot}: it is {before}")
        if self._forgotten <= slot <= self.last:
            self._keeps(slot, ballot, item)

    def _crashed(self, disk: Disk, node: NodeId) -> None:
        """What was not synced is gone; and if nobody else votes, nobody else was asked to store it:
        then the same ballot may propose another value."""
        for append in disk.waiting:
            record = append.record
            if isinstance(record, Entry) and self.config(record.slot - 1).nodes() == [node]:
                self.proposed[record.slot].pop(record.ballot, None)
        disk.waiting.clear()

    def _keeps(self, slot: int, ballot: Ballot, item: Item) -> None:
        choice = self.chosen[slot]
        if ballot > choice.ballot and item != choice.item:
            raise Violation(
                f"slot {slot}: {item} proposed at {ballot}, though {choice.item} "
                f"was chosen at {choice.ballot}"
            )

    # -- what is on disk --

    def _synced(self, disk: Disk, node: NodeId, number: int) -> None:
        while disk.waiting and disk.waiting[0].number <= number:
            self._on_disk(disk, node, disk.waiting.pop(0).record)

    def _on_disk(self, disk: Disk, node: NodeId, record: Value) -> None:
        match record:
            case Born(life, _):
                if Member(node, life) in self.lives:
                    raise Violation(f"{node} lives again as {life}, though its disk was lost")
                disk.life = life
                self.lives[Member(node, life)] = None
            case Reborn(life):
                disk.life, disk.promised = life, BOTTOM
                disk.votes.clear()
            case Promised(ballot):
                self._promise(disk, node, ballot)
            case Entry(slot, ballot, kind, data):
                self._promise(disk, node, ballot)
                disk.values[slot] = Item(kind, data)
                self._accept(disk, node, slot, ballot)
            case Again(slot, ballot):
                self._promise(disk, node, ballot)
                self.propose(node, slot, ballot, disk.values[slot])
                self._accept(disk, node, slot, ballot)
            case Learned(slot, kind, data):
                disk.values[slot] = Item(kind, data)
            case _:
                pass  # of no vote

    def _promise(self, disk: Disk, node: NodeId, ballot: Ballot) -> None:
        if ballot < disk.promised:
            raise Violation(f"{node} went back from ballot {disk.promised} to {ballot}")
        disk.promised = self.promises[Member(node, disk.life)] = ballot

    def _accept(self, disk: Disk, node: NodeId, slot: int, ballot: Ballot) -> None:
        disk.votes[slot] = ballot
        voters = self.accepted.setdefault(slot, {}).setdefault(ballot, {})
        voters[Member(node, disk.life)] = None
        if slot == self.last + 1:
            self._choose()

    # -- what is chosen: only of the next slot is it known who votes on it --

    def _choose(self) -> None:
        while (ballot := self._majority(self.last + 1)) is not None:
            slot = self.last + 1
            item = self.proposed[slot][ballot]
            chain = google_crc32c.extend(self.chosen[-1].chain, b"%d %d " % (slot, item.kind))
            self.chosen.append(Choice(item, ballot, google_crc32c.extend(chain, item.data)))
            self.ballots[ballot] = None
            for other, proposed in self.proposed[slot].items():
                self._keeps(slot, other, proposed)
            if item.kind == CONFIG:
                self._reconfigure(slot, decode_config(item.data))
            if slot % FORGET_EVERY == 0:
                self._forget_below(slot - KEPT_SLOTS)

    def _forget_below(self, floor: int) -> None:
        """Bound the memory of a long run. Of such a slot only the checksum is known: a replica
        that was away for long is still measured by it."""
        for slot in range(self._forgotten, floor):
            self.chosen[slot] = Choice(FORGOTTEN, BOTTOM, self.chosen[slot].chain)
            self.proposed.pop(slot, None)
            self.accepted.pop(slot, None)
        if floor > self._forgotten:
            self._forgotten = floor
            for disk in self.disks.values():
                disk.forget_below(floor)

    def _majority(self, slot: int) -> Ballot | None:
        """The lowest ballot with which a majority has accepted something for this slot."""
        members = self.config(slot - 1).members
        for ballot in sorted(self.accepted.get(slot, {})):
            voters = self.accepted[slot][ballot]
            if 2 * sum(member in voters for member in members) > len(members):
                return ballot
        return None

    def _reconfigure(self, slot: int, config: Config) -> None:
        before = self.configs[-1][1]
        if config.version != before.version + 1:
            return  # made for a membership that is no more: it changes nothing
        changed = [each for each in config.members if each not in before.members]
        changed += [each for each in before.members if each not in config.members]
        if len(changed) > 1:
            raise Violation(f"slot {slot}: {config} differs from {before} by more than one")
        self.configs.append((slot, config))
