"""The true history of a replica group, computed from its disks: promises, votes, chosen values.

It uses only records that nodes append and that reach their disks. It counts majorities itself, so
that the checkers detect a fault in the protocol.
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
    NewIncarnation,
    Promised,
)
from oncecast.replication.quorum import Config, Member
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step

CLIENT = "client/"  # name prefix of nodes that are not replicas

KEPT_SLOTS = 20_000  # number of slots kept before the last chosen slot
FORGET_EVERY = 1_000  # number of slots between two cleanups

decode_config = msgspec.msgpack.Decoder(Config).decode


class Choice(NamedTuple):
    """The value chosen for a slot, its first ballot, and the checksum of all values up to it."""

    item: Item
    ballot: Ballot
    chain: int


FORGOTTEN = Item(-1, b"")  # stands for an item that the history no longer keeps


class Disk:
    """The records of one disk since it was last wiped."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.promised = BOTTOM
        self.votes: dict[int, Ballot] = {}
        self.values: dict[int, Item] = {}  # the accepted or learned value of each slot
        self.waiting: list[Append] = []  # records that are not synced yet

    def forget_below(self, slot: int) -> None:
        self.votes = {each: vote for each, vote in self.votes.items() if each >= slot}
        self.values = {each: value for each, value in self.values.items() if each >= slot}


class GroupHistory(Checker):
    """Records the history of a group. It must run before the checkers that read the history."""

    def __init__(self, founders: Config) -> None:
        self.disks: dict[NodeId, Disk] = {}
        self.proposed: dict[int, dict[Ballot, Item]] = {}  # slot -> proposed items by ballot
        self.accepted: dict[int, dict[Ballot, dict[Member, None]]] = {}
        self.promises: dict[Member, Ballot] = {}
        self.incarnations: dict[Member, None] = {}
        self.chosen: list[Choice] = [Choice(Item(0, b""), BOTTOM, 0)]
        self.ballots: dict[Ballot, None] = {}  # ballots that have chosen a value
        self._forgotten = 0  # all slots below this one are forgotten
        self.configs: list[tuple[int, Config]] = [(0, founders)]  # each one applies after its slot

    @property
    def last(self) -> int:
        """Return the last slot of the chosen prefix."""
        return len(self.chosen) - 1

    def is_chosen(self, slot: int, item: Item) -> bool:
        """Return whether this item is chosen. For a forgotten slot, return True for any item."""
        return slot <= self.last and self.chosen[slot].item in (item, FORGOTTEN)

    def config(self, applied: int) -> Config:
        """Return the membership that votes on the slot after `applied`."""
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

    # -- proposals --

    def _written(self, node: NodeId, record: Value) -> None:
        if isinstance(record, Entry):
            self.propose(node, record.slot, record.ballot, Item(record.kind, record.data))
        elif isinstance(record, Learned):
            item = Item(record.kind, record.data)
            if not self.is_chosen(record.slot, item):
                raise Violation(
                    f"{node} learned {item} for slot {record.slot}, but it is not the chosen value"
                )

    def propose(self, node: NodeId, slot: int, ballot: Ballot, item: Item) -> None:
        before = self.proposed.setdefault(slot, {}).setdefault(ballot, item)
        if before != item:
            raise Violation(
                f"{node} has {item} for slot {slot} at ballot {ballot}, but {before} was proposed"
            )
        if self._forgotten <= slot <= self.last:
            self._keeps(slot, ballot, item)

    def _crashed(self, disk: Disk, node: NodeId) -> None:
        """Drop records that were not synced.

        If the node is the only voter, it asked no peer to store the value, so the same ballot may
        propose another value.
        """
        for append in disk.waiting:
            record = append.record
            if isinstance(record, Entry) and self.config(record.slot - 1).nodes() == [node]:
                self.proposed[record.slot].pop(record.ballot, None)
        disk.waiting.clear()

    def _keeps(self, slot: int, ballot: Ballot, item: Item) -> None:
        choice = self.chosen[slot]
        if ballot > choice.ballot and item != choice.item:
            raise Violation(
                f"slot {slot}: {item} is proposed at ballot {ballot}, but {choice.item} was chosen "
                f"at ballot {choice.ballot}"
            )

    # -- records on disk --

    def _synced(self, disk: Disk, node: NodeId, number: int) -> None:
        while disk.waiting and disk.waiting[0].number <= number:
            self._on_disk(disk, node, disk.waiting.pop(0).record)

    def _on_disk(self, disk: Disk, node: NodeId, record: Value) -> None:
        match record:
            case Born(incarnation, _):
                member = Member(node, incarnation)
                if member in self.incarnations:
                    raise Violation(f"{node} reuses incarnation {incarnation} from a lost disk")
                disk.incarnation = incarnation
                self.incarnations[member] = None
            case NewIncarnation(incarnation):
                disk.incarnation, disk.promised = incarnation, BOTTOM
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
                pass  # this record is not a vote

    def _promise(self, disk: Disk, node: NodeId, ballot: Ballot) -> None:
        if ballot < disk.promised:
            raise Violation(f"{node} went back from ballot {disk.promised} to {ballot}")
        disk.promised = self.promises[Member(node, disk.incarnation)] = ballot

    def _accept(self, disk: Disk, node: NodeId, slot: int, ballot: Ballot) -> None:
        disk.votes[slot] = ballot
        voters = self.accepted.setdefault(slot, {}).setdefault(ballot, {})
        voters[Member(node, disk.incarnation)] = None
        if slot == self.last + 1:
            self._choose()

    # -- chosen values, in order, because only the voters of the next slot are known --

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
        """Forget slots below `floor` to bound the memory of a long run.

        A forgotten slot keeps its checksum, so that a replica that was offline is still checked.
        """
        for slot in range(self._forgotten, floor):
            self.chosen[slot] = Choice(FORGOTTEN, BOTTOM, self.chosen[slot].chain)
            self.proposed.pop(slot, None)
            self.accepted.pop(slot, None)
        if floor > self._forgotten:
            self._forgotten = floor
            for disk in self.disks.values():
                disk.forget_below(floor)

    def _majority(self, slot: int) -> Ballot | None:
        """Return the lowest ballot at which a majority accepted a value for this slot, or None."""
        members = self.config(slot - 1).members
        for ballot in sorted(self.accepted.get(slot, {})):
            voters = self.accepted[slot][ballot]
            if 2 * sum(member in voters for member in members) > len(members):
                return ballot
        return None

    def _reconfigure(self, slot: int, config: Config) -> None:
        before = self.configs[-1][1]
        if config.version != before.version + 1:
            return  # proposed for an older membership, so it has no effect
        changed = [each for each in config.members if each not in before.members]
        changed += [each for each in before.members if each not in config.members]
        if len(changed) > 1:
            raise Violation(f"slot {slot}: {config} differs from {before} by more than one member")
        self.configs.append((slot, config))
