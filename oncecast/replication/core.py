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

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from random import Random

import google_crc32c
import msgspec

from oncecast.errors import Corrupt, Crippled, NoSuchRecord
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.events import Added, Decided, Learner, Missing, Removed
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
    Skipped,
    Stored,
    Vouch,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.places import Places
from oncecast.replication.quorum import NOBODY, Config, Member, Memberships

FAR = 1 << 62  # behind every slot
# A replica that forgets votes on purpose counts so many replaced ones. No single vote counts as
# many, so a later restart that finds more damage cannot take the count for its own.
FORGOT = 2

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
        self.rebirths = 0  # lives that this disk has lost before
        # accepting
        self.promised = BOTTOM
        self.promised_in = 0  # record that says so
        self.votes: dict[int, Ballot] = {}  # by slot, of what is not applied
        self.top = 0  # the highest slot ever accepted
        self.replaced = 0  # votes that took the place of others
        self.counted: int | None = None  # as the last record said
        self.lost: list[tuple[int, int]] = []  # slots whose votes the log could not give back
        self.damage = ""
        self.estranged = False  # it has lost who it was
        self.places = Places()
        self.items: dict[int, Item] = {}  # not applied, or not yet on disk
        self.held_bytes = 0  # of `items`
        self.stored = 0  # the last record that is on disk
        self.storing: deque[tuple[int, int, Ballot]] = deque()  # record, slot, ballot
        # learning
        self.applied = 0
        self.certain = 0  # the log itself says that all up to here is chosen
        self.kept = 1  # the first slot that is still here
        self.skipped = 0  # but what it says of slots up to here may be something else
        self.told: dict[int, None] = {}  # slots that others said are chosen, not applied
        self.chain = 0  # checksum of all that was applied
        # As it was at the last commands and states, for who looks back; and at checks.
        self.chains: deque[tuple[int, int]] = deque(maxlen=2 * self.options.step_slots)
        self.checks: deque[tuple[int, int]] = deque(maxlen=8)
        self.memberships = Memberships()
        self.rumour = NOBODY  # the last membership that the log tells of, applied or not
        self.adopted = 0  # group that an outsider learns from
        self.tokens: dict[int, int] = {}  # of own proposals, by slot
        # following
        self.ballot = BOTTOM  # of the leader that was heard last
        self.leader = NodeId("")
        self.heard = 0.0
        self.vain = 0  # ballots since then that have brought no leader

    @property
    def known_to_be_chosen(self) -> int:
        """All slots up to this one are chosen, even if not all of them can be read here."""
        return max(self.applied, self.certain)

    @property
    def config(self) -> Config:
        return self.memberships.last

    @property
    def group(self) -> int:
        return self.memberships.last.group or self.adopted

    @property
    def self_as_member(self) -> Member:
        return Member(self.me, self.life)

    @property
    def seated(self) -> bool:
        return self.self_as_member in self.config.members

    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(self.config.nodes()) or self.contacts

    def others(self) -> list[NodeId]:
        return [node for node, _ in self.memberships.last.members if node != self.me]

    # -- an earlier life --

    def restore(self, record: m.Record | Checkpoint) -> None:
        number = self._records.last
        match record:
            case Entry(slot, ballot, kind, data, applied, vouch):
                self._vouched(ballot, vouch, slot)
                item = Item(kind, data)
                self._heard_of(item)
                # What is known to be chosen stays, whatever was voted for later.
                if slot > self.applied and slot not in self.told:
                    self._found(slot, number, item)
                    self._voted(slot, ballot)
                self.certain = max(self.certain, applied)
            case Learned(slot, kind, data):
                item = Item(kind, data)
                self._heard_of(item)
                # A snapshot may know of a later record.
                if slot > self.applied or number > (self.places.get(slot) or 0):
                    self._found(slot, number, item)
                if slot in self.votes:
                    self.replaced += 1
                    self.counted = None  # it may have been applied by then, and no vote
                if slot > self.applied:
                    self.told[slot] = None
            case Again(slot, ballot, vouch):
                self._vouched(ballot, vouch, slot)
                if slot in self.votes:
                    self._voted(slot, ballot)
            case Promised(ballot, vouch):
                self._vouched(ballot, vouch)
            case Skipped(place):
                self.skipped, self.certain = max(self.skipped, place), max(self.certain, place)
                self.replaced += FORGOT
                self.counted = None
            case Reborn(life, rebirths):
                self.live_anew(life, rebirths or self.rebirths + 1)
            case Born(life, config):
                self.life, self.born = life, True
                self.memberships.start(0, config)
            case Checkpoint():
                self._restore_state(record)
        self._apply_known(self.items.get)

    def finish_restore(self) -> None:
        """Apply what is chosen and was not held in memory: now the log can be read."""
        self._apply_known(self.readable)

    def _vouched(self, ballot: Ballot, vouch: Vouch, slot: int = 0) -> None:
        """Take in what a record says of all that was promised and accepted before it."""
        top, rebirths, replaced = vouch
        self.promised, self.top = max(self.promised, ballot), max(self.top, top)
        counted = self.counted
        self.counted, self.replaced = replaced, max(self.replaced, replaced)
        # A snapshot is newer than the first records behind it: these may be of an earlier life.
        reborn = rebirths > self.rebirths
        self.estranged |= reborn
        self.rebirths = max(self.rebirths, rebirths)
        first = self._first_lost()
        if first < FAR:
            if reborn or counted is None or replaced != counted + (slot in self.votes):
                self._doubt(first)
            self.lost = [(low, top if high == FAR else high) for low, high in self.lost]
            self.lost = [(low, high) for low, high in self.lost if low <= high]
            for voted in self.votes:
                self.lost = without(self.lost, voted)

    def _first_lost(self) -> int:
        """Return the first slot that damage may concern of which no later record has said more."""
        return min((low for low, high in self.lost if high == FAR), default=FAR)

    def _doubt(self, first: int) -> None:
        """Forget votes and values from this slot on: lost records may have replaced them."""
        first = max(first, self.applied + 1)
        self.places.cut(first)
        self.votes.clear()
        for slot in [slot for slot in self.items if slot >= first]:
            self.let_go(slot)
        self.replaced += FORGOT

    @property
    def vouch(self) -> Vouch:
        return Vouch(self.top, self.rebirths, self.replaced)

    def _voted(self, slot: int, ballot: Ballot) -> None:
        self.votes[slot] = ballot
        if self.lost:
            self.lost = without(self.lost, slot)

    def live_anew(self, life: int, rebirths: int) -> None:
        """Begin another life: drop all votes, and values that are not known to be chosen."""
        self._doubt(min(self._first_lost(), self.known_to_be_chosen + 1))
        self.counted = self.replaced
        self.life, self.rebirths = life, max(self.rebirths, rebirths)
        self.estranged = False
        self.lost.clear()

    def _heard_of(self, item: Item) -> None:
        if item.kind == CONFIG:
            self.rumour = max(self.rumour, decode_config(item.data), key=lambda each: each.version)

    def _found(self, slot: int, number: int, item: Item) -> None:
        self.places.put(slot, number)
        self.let_go(slot)
        if self.applied < slot and self._may_hold_more():
            self.hold(slot, item)

    def _may_hold_more(self) -> bool:
        """Behind a hole nothing is applied yet, and the tail of the log may not fit in memory."""
        return len(self.items) < 2 * self.options.window_slots and not self._holds_much()

    def _holds_much(self) -> bool:
        return self.held_bytes >= 2 * self.options.window_bytes

    def hold(self, slot: int, item: Item) -> None:
        self.let_go(slot)
        self.items[slot] = item
        self.held_bytes += len(item.data)

    def let_go(self, slot: int) -> None:
        item = self.items.pop(slot, None)
        if item is not None:
            self.held_bytes -= len(item.data)

    def _restore_state(self, state: Checkpoint) -> None:
        assert self.learner is not None, "a state to learn from, and nobody to learn it"
        self.life, self.born = state.life, True
        self.promised = state.promised
        self.top, self.rebirths, self.replaced = state.vouch
        self.applied = self.certain = state.place
        self.chain = state.chain
        self.chains.append((state.place, state.chain))
        self.memberships.start(state.place, state.config)
        self.kept = state.kept
        self.places.restore(state.runs)
        self.lost = list(state.lost)
        self.learner.install(state.place, state.chunks)

    def damaged(self, first: int, last: int) -> None:
        """These records cannot be read. Whatever they said of slots that were not yet chosen then
        is lost. Up to which slot that may be, and whether it took the place of what can be read,
        the next vote says; if there is none, nobody knows what was promised."""
        self.damage = f"records {first} to {last} of its log cannot be read"
        if not self.born:
            raise Crippled(
                f"replica {self.me}: {self.damage}, which had its identity",
                "move its data directory away and let it join again",
            )
        self.lost.append((self.known_to_be_chosen + 1, FAR))

    @property
    def forgetful(self) -> bool:
        """A promise may be lost, or a life."""
        return self.estranged or any(high == FAR for _, high in self.lost)

    # -- storing --

    def store(self, slot: int, ballot: Ballot, item: Item) -> None:
        """Accept, and keep: if the same stands there already, not the value again."""
        again = slot in self.votes
        self._voted(slot, ballot)
        self.top = max(self.top, slot)
        self.replaced += again
        if again and self.readable(slot) == item:
            number = self.append(Again(slot, ballot, self.vouch))
        else:
            kind, data = item
            number = self.append(Entry(slot, ballot, kind, data, self.applied, self.vouch))
            self.places.put(slot, number)
            self.hold(slot, item)
        self.storing.append((number, slot, ballot))

    def store_promise(self, ballot: Ballot) -> None:
        self.promised = ballot
        self.promised_in = self.append(Promised(ballot, self.vouch))

    def keep_learned(self, slot: int, item: Item) -> None:
        """Another replica says that this was chosen."""
        if slot > self.applied:
            self.told[slot] = None
        if self.places.get(slot) is not None and self.readable(slot) == item:
            return
        self.replaced += slot in self.votes
        number = self.append(Learned(slot, item.kind, item.data))
        self.places.put(slot, number)
        self.hold(slot, item)
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
            done_with = slot <= self.applied or slot in self.told or self._holds_much()
            if done_with and self.settled(slot):
                self.let_go(slot)
            if ballot != BOTTOM:
                done.append((slot, ballot))
        return done

    @property
    def durable(self) -> int:
        """All slots up to this one are applied, and on disk here."""
        return min(
            (slot - 1 for _, slot, _ in self.storing if slot <= self.applied), default=self.applied
        )

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
        item = self.readable(place)
        if item is None:
            if self.gone_everywhere(place):
                return self.item(place).data  # which raises what names the damage
            self.missed(place)
            raise Missing(place)
        return item.data

    @abstractmethod
    def gone_everywhere(self, slot: int) -> bool:
        """Return whether all the others have lost this slot too, or there are none."""

    def missed(self, slot: int) -> None:
        """Somebody wants a slot that cannot be read."""

    # -- applying --

    def _apply_known(self, find: Callable[[int], Item | None]) -> None:
        """Apply what the log itself, or another replica, says to be chosen."""
        while self.sure_of(self.applied + 1):
            slot = self.applied + 1
            item = find(slot)
            if item is None:
                break
            self.apply(slot, item)

    def sure_of(self, slot: int) -> bool:
        """Whether what stands at this slot, if anything does, was chosen."""
        return self.skipped < slot <= self.certain or slot in self.told

    def apply(self, slot: int, item: Item) -> None:
        self.applied = slot
        self.chain = google_crc32c.extend(self.chain, b"%d %d " % (slot, item.kind))
        self.chain = google_crc32c.extend(self.chain, item.data)
        self.votes.pop(slot, None)
        self.told.pop(slot, None)
        if self.settled(slot):
            self.let_go(slot)
        token = self.tokens.pop(slot, -1) if self.tokens else -1
        if item.kind == COMMAND:
            self.chains.append((slot, self.chain))
            if self.started:
                self.emit(Decided(slot, item.data, token), after=0)
            else:
                assert self.learner is not None, "a log to learn from, and nobody to learn it"
                self.learner.learn(slot, item.data)
        elif item.kind == CONFIG:
            self._reconfigure(slot, item)
        elif item.kind == CHECK and self.started:
            self.checks.append((slot, self.chain))
            self.emit(CompareNow(slot), after=0)

    def settled(self, slot: int) -> bool:
        """Whether the record of this slot is on disk, and can be read from there."""
        return not self.storing or self.storing[0][0] > (self.places.get(slot) or 0)

    def _reconfigure(self, slot: int, item: Item) -> None:
        before, config = self.config, decode_config(item.data)
        if before != NOBODY and config.version != before.version + 1:
            return  # made for a membership that is no more
        self.memberships.decided(slot, config)
        if self.started:
            self.write_again(slot, item)
            self.tell_members(before)

    def write_again(self, slot: int, item: Item) -> None:
        """A replica that can read neither copy would not know whom to ask for what it has lost."""
        self.append(Learned(slot, item.kind, item.data))

    def tell_members(self, before: Config) -> None:
        old, new = before.nodes(), self.config.nodes()
        for node in new:
            if node not in old:
                self.emit(Added(node), after=0)
        for node in old:
            if node not in new:
                self.emit(Removed(node), after=0)
        self.reconfigured(before)

    def reconfigured(self, before: Config) -> None:
        """Another membership is in force from here on."""

    def chain_at(self, place: int) -> int:
        """The checksum as it was when the command at `place`, or no command yet, was applied."""
        chain = next((chain for at, chain in reversed(self.chains) if at == place), None)
        assert chain is not None or not place, f"who looks back to {place} comes too late"
        return chain or 0


def without(ranges: list[tuple[int, int]], slot: int) -> list[tuple[int, int]]:
    """The ranges, less one slot."""
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        if first <= slot <= last:
            left += [part for part in ((first, slot - 1), (slot + 1, last)) if part[0] <= part[1]]
        else:
            left.append((first, last))
    return left


def behind(slot: int, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, less all slots up to this one."""
    return [(max(first, slot + 1), last) for first, last in ranges if last > slot]


def within(ranges: list[tuple[int, int]] | tuple[tuple[int, int], ...], slot: int) -> bool:
    return any(first <= slot <= last for first, last in ranges)
