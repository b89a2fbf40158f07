"""What a replica is, whichever role it plays: what it has promised, stored and applied.

Rules
- Ballots only grow, and nothing is answered before it is on disk: the kernel sees to that.
- The accept is the store: a value is appended once, where it is accepted or learned, and a slot
  finds it by the number of its record.
- Slots are applied in order, without a gap, each once.
- What a damaged log may have held is not guessed: those slots are `lost` to a vote, and what was
  chosen for them comes from the others.
"""

from __future__ import annotations

from collections import deque
from random import Random

import google_crc32c
import msgspec

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.events import Added, Crippled, Decided, Learner, Missing, Removed
from oncecast.replication.events import Compare as CompareNow
from oncecast.replication.messages import (
    CHECK,
    COMMAND,
    CONFIG,
    Again,
    Born,
    Checkpoint,
    Entry,
    Item,
    Learned,
    Promised,
    Reborn,
    Stored,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.places import Places
from oncecast.replication.quorum import NOBODY, Config, Member, Memberships
from oncecast.storage.errors import Corrupt, NoSuchRecord

decode_config = msgspec.msgpack.Decoder(Config).decode
encode_config = msgspec.msgpack.Encoder().encode


class Core(Protocol):
    name = "paxos"
    heals = True
    Message = m.Message
    Record = m.Record
    State = Checkpoint
    Timer = m.Timer

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        options: GroupOptions | None = None,
        contacts: tuple[NodeId, ...] = (),  # replicas of a group to join; nobody: found one
        founders: Config = NOBODY,  # for a group that is founded by several at once
        life: int = 0,
    ) -> None:
        super().__init__(me, rng)
        self.options = options or GroupOptions()
        self.contacts, self.founders, self.life = contacts, founders, life
        self.learner: Learner | None = None
        self.born = self.started = False
        # accepting
        self.promised = BOTTOM
        self.votes: dict[int, Ballot] = {}  # by slot, of what is not applied
        self.lost: list[tuple[int, int]] = []
        self.damage = ""  # what the log could not give back
        self.forgetful = False  # a promise may be among it
        self.places = Places()
        self.items: dict[int, Item] = {}  # not applied, or not yet on disk
        self.stored = 0  # the last record that is on disk
        self.storing: deque[tuple[int, int, Ballot]] = deque()  # record, slot, ballot
        # learning
        self.applied = 0
        self.certain = 0  # the log itself says that all up to here is chosen
        self.told: dict[int, None] = {}  # slots that others said are chosen, not applied
        self.chain = 0  # checksum of all that was applied
        self.chains: deque[tuple[int, int]] = deque(maxlen=2 * self.options.window_slots)
        self.memberships = Memberships()
        self.tokens: dict[int, int] = {}  # of own proposals, by slot
        # following
        self.ballot = BOTTOM  # of the leader that was heard last
        self.leader = NodeId("")
        self.heard = 0.0

    @property
    def config(self) -> Config:
        return self.memberships.last

    @property
    def self_as_member(self) -> Member:
        return Member(self.me, self.life)

    @property
    def seated(self) -> bool:
        return self.self_as_member in self.config.members

    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(self.config.nodes()) or self.contacts

    def others(self) -> list[NodeId]:
        return [node for node in self.config.nodes() if node != self.me]

    # -- an earlier life --

    def restore(self, record: m.Record | Checkpoint) -> None:
        number = self._records.last
        self.forgetful &= isinstance(record, Learned)  # all others say what was promised then
        match record:
            case Entry(slot, ballot, kind, data, applied):
                self.promised = max(self.promised, ballot)
                self._found(slot, number, Item(kind, data))
                if slot > self.applied:
                    self.votes[slot] = ballot
                    self.lost = without(self.lost, slot)
                self.certain = max(self.certain, applied)
            case Learned(slot, kind, data):
                self._found(slot, number, Item(kind, data))
                if slot > self.applied:
                    self.told[slot] = None
            case Again(first, last, ballot):
                self.promised = max(self.promised, ballot)
                for slot in range(max(first, self.applied + 1), last + 1):
                    if slot in self.votes:
                        self.votes[slot] = ballot
            case Promised(ballot):
                self.promised = max(self.promised, ballot)
            case Reborn(life):
                self.life = life
            case Born(life, config):
                self.life, self.born = life, True
                self.memberships.start(0, config)
            case Checkpoint():
                self._restore_state(record)
        self.apply_known()

    def _found(self, slot: int, number: int, item: Item) -> None:
        self.places.put(slot, number)
        # Behind a hole nothing is applied yet, and all may be too much to hold.
        if self.applied < slot and len(self.items) < 2 * self.options.window_slots:
            self.items[slot] = item

    def _restore_state(self, state: Checkpoint) -> None:
        assert self.learner is not None, "a state to learn from, and nobody to learn it"
        self.life, self.born = state.life, True
        self.promised = max(self.promised, state.promised)
        self.applied = self.certain = state.place
        self.chain = state.chain
        self.chains.append((state.place, state.chain))
        self.memberships.start(state.place, state.config)
        self.places.restore(state.runs)
        self.lost = list(state.lost)
        self.learner.install(state.place, state.chunks)

    def damaged(self, first: int, last: int) -> None:
        """So many records cannot be read. Whatever they said of slots that were not yet chosen then
        is lost, and also what stood there before may have been replaced by it."""
        self.damage = f"records {first} to {last} of its log cannot be read"
        if not self.born:
            raise Crippled(
                f"replica {self.me}: {self.damage}, and they said who it is; move its data "
                "directory away and let it join anew"
            )
        self.forgetful = True
        behind = max(self.applied, self.certain)
        end = max(self.places.end, behind + 1) + last - first
        self.lost.append((behind + 1, end))
        self.places.cut(behind + 1)
        self.votes.clear()
        for slot in [slot for slot in self.items if slot > behind]:
            del self.items[slot]

    # -- storing --

    def store(self, slot: int, ballot: Ballot, item: Item) -> None:
        """Accept, and keep: if the same stands there already, not the value again."""
        before = self.votes.get(slot)
        self.votes[slot] = ballot
        if before is not None and self.item(slot) == item:
            number = self.append(Again(slot, slot, ballot))
        else:
            number = self.append(Entry(slot, ballot, item.kind, item.data, self.applied))
            self.places.put(slot, number)
            self.items[slot] = item
        self.storing.append((number, slot, ballot))

    def keep_learned(self, slot: int, item: Item) -> None:
        """Another replica says that this was chosen."""
        if slot > self.applied:
            self.told[slot] = None
        if self.places.get(slot) is not None and self.readable(slot) == item:
            return
        number = self.append(Learned(slot, item.kind, item.data))
        self.places.put(slot, number)
        self.items[slot] = item
        self.storing.append((number, slot, BOTTOM))

    def say_stored(self) -> None:
        """Hear of it when all that was appended is on disk."""
        self.send(self.me, Stored(self._records.last))

    def on_disk(self, record: int) -> list[tuple[int, Ballot]]:
        """The slots, with their ballots, that are on disk now."""
        self.stored = max(self.stored, record)
        done: list[tuple[int, Ballot]] = []
        while self.storing and self.storing[0][0] <= record:
            _, slot, ballot = self.storing.popleft()
            if slot <= self.applied or slot in self.told:
                self.items.pop(slot, None)
            if ballot != BOTTOM:
                done.append((slot, ballot))
        return done

    # -- reading --

    def item(self, slot: int) -> Item:
        held = self.items.get(slot)
        if held is not None:
            return held
        number = self.places.get(slot)
        if number is None:
            raise NoSuchRecord(f"slot {slot} is not in this replica's log")
        record = self.recall(number)
        assert isinstance(record, Entry | Learned)
        return Item(record.kind, record.data)

    def readable(self, slot: int) -> Item | None:
        """The item, or None where it is damaged or gone."""
        try:
            return self.item(slot)
        except (Corrupt, NoSuchRecord):
            return None

    def entry(self, place: int) -> bytes:
        if not self.others():
            return self.item(place).data
        item = self.readable(place)
        if item is None:
            self.missed(place)
            raise Missing(place)
        return item.data

    def missed(self, slot: int) -> None:
        """Somebody wants a slot that cannot be read."""

    # -- applying --

    def apply_known(self) -> None:
        """What the log itself, or another replica, says to be chosen."""
        while self.applied < self.certain or self.applied + 1 in self.told:
            slot = self.applied + 1
            item = self.items.get(slot)
            if item is None:
                break
            self.apply(slot, item)

    def apply(self, slot: int, item: Item) -> None:
        self.applied = slot
        self.chain = google_crc32c.extend(self.chain, b"%d %d " % (slot, item.kind))
        self.chain = google_crc32c.extend(self.chain, item.data)
        self.chains.append((slot, self.chain))
        self.votes.pop(slot, None)
        self.told.pop(slot, None)
        if not self.storing or self.storing[0][0] > (self.places.get(slot) or 0):
            self.items.pop(slot, None)
        token = self.tokens.pop(slot, -1) if self.tokens else -1
        if item.kind == COMMAND:
            if self.started:
                self.emit(Decided(slot, item.data, token), after=0)
            else:
                assert self.learner is not None, "a log to learn from, and nobody to learn it"
                self.learner.learn(slot, item.data)
        elif item.kind == CONFIG:
            self._reconfigure(slot, decode_config(item.data))
        elif item.kind == CHECK and self.started:
            self.emit(CompareNow(slot), after=0)

    def _reconfigure(self, slot: int, config: Config) -> None:
        before = self.config
        self.memberships.decided(slot, config)
        if not self.started:
            return
        for node in config.nodes():
            if node not in before.nodes():
                self.emit(Added(node), after=0)
        for node in before.nodes():
            if node not in config.nodes():
                self.emit(Removed(node), after=0)
        self.reconfigured(before)

    def reconfigured(self, before: Config) -> None:
        """Another membership is in force from here on."""

    def chain_at(self, slot: int) -> int:
        """The checksum as it was when `slot` had been applied."""
        return next((chain for at, chain in reversed(self.chains) if at <= slot), 0)


def without(ranges: list[tuple[int, int]], slot: int) -> list[tuple[int, int]]:
    """The ranges, less one slot."""
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        if first <= slot <= last:
            left += [part for part in ((first, slot - 1), (slot + 1, last)) if part[0] <= part[1]]
        else:
            left.append((first, last))
    return left


def within(ranges: list[tuple[int, int]] | tuple[tuple[int, int], ...], slot: int) -> bool:
    return any(first <= slot <= last for first, last in ranges)
