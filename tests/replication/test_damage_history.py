"""REP-1: one replica goes through a random history of votes, restarts and lost records.

The rest of the group is a table: for each slot, the first ballot from which all leaders propose the
same value. The replica must apply only chosen values. Each Promise must report every vote of this
incarnation that reached the disk, or say that the slot is lost.
"""

from __future__ import annotations

from random import Random

import pytest

from oncecast.errors import Corrupt, NoSuchRecord
from oncecast.kernel.protocol import Append, Effect, Emit, Snapshot, Value
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Compact, Decided, Installed
from oncecast.replication.messages import (
    Accept,
    Again,
    Ahead,
    Behind,
    Born,
    Checkpoint,
    Chosen,
    Entry,
    Item,
    NewIncarnation,
    Piece,
    Prepare,
    Promise,
    Stored,
)
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Config, Member
from oncecast.replication.votes import within
from tests.replication.replicas import A, B, C, D, E, command, hear, sends

FIVE = Config(1, tuple(Member(node, 1) for node in (A, B, C, D, E)), 5)
SLOTS = 24
ROUNDS = 30


class World:
    """The value that each ballot proposes for a slot, and the chosen value."""

    def __init__(self, rng: Random) -> None:
        self.chosen_from = [Ballot(rng.randrange(1, ROUNDS), A) for _ in range(SLOTS + 1)]

    def value(self, slot: int, ballot: Ballot) -> Item:
        same = ballot >= self.chosen_from[slot]
        return self.chosen(slot) if same else command(b"%d at %d" % (slot, ballot.round))

    def chosen(self, slot: int) -> Item:
        return command(b"%d" % slot)


class Decisions:
    """Checks that the replica reports only chosen values, in order."""

    def __init__(self, world: World) -> None:
        self.world, self.slot, self.installed = world, 0, 0

    def install(self, slot: int, state: tuple[bytes, ...]) -> None:
        self.slot = self.installed = slot

    def learn(self, slot: int, value: bytes) -> None:
        assert slot == self.slot + 1
        assert value == self.world.chosen(slot).data, f"slot {slot}: {value!r} was never chosen"
        self.slot = slot


class History:
    """A disk, and the replica that runs on it."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.world = rng, World(rng)
        self.options = GroupOptions(compare_every=0.0, window_slots=rng.choice((1, 2, 8)))
        self.careless = rng.random() < 0.3  # the replica restarts often
        self.records: dict[int, Value] = {}
        self.bad: dict[int, None] = {}
        self.synced = 0
        self.state: Snapshot | None = None
        self.unsaved: list[Snapshot] = []
        self.votes: dict[int, Ballot] = {}  # votes of this incarnation that are on disk
        self.begin()

    def read(self, number: int) -> Value:
        if number in self.bad:
            raise Corrupt("00000001.log", 0, number, number, "checksum mismatch")
        if number not in self.records:
            raise NoSuchRecord(f"record {number}")
        return self.records[number]

    def begin(self) -> None:
        self.decisions = Decisions(self.world)
        self.group = group = Paxos(B, self.rng, founders=FIVE, incarnation=1, options=self.options)
        group.attach(self.decisions)
        covered = 0
        if self.state is not None:
            assert isinstance(self.state.state, Checkpoint)
            covered = group._records.last = self.state.number
            group.restore(self.state.state)
        for number in sorted(self.records):
            if number > covered:
                group._records.last = number
                if number in self.bad:
                    group.damaged(number, number)
                else:
                    group.restore(self.records[number])  # type: ignore[arg-type]
        group._records.last = max(self.records, default=0)
        group._records.read = self.read
        group.start()
        self.take(group.drain())
        self.sync()

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.records[effect.number] = effect.record
            elif isinstance(effect, Snapshot):
                self.unsaved.append(effect)
            elif isinstance(effect, Emit) and isinstance(effect.event, Decided):
                self.decisions.learn(effect.event.slot, effect.event.value)
            elif isinstance(effect, Emit) and isinstance(effect.event, Installed):
                self.decisions.install(effect.event.slot, ())
        for _, message in sends(effects):
            if isinstance(message, Promise):
                self.check(message)

    def check(self, promise: Promise) -> None:
        reported = {vote.slot: vote for vote in promise.votes}
        for slot, vote in reported.items():
            proposed = self.world.value(slot, vote.ballot)
            assert vote.item in (proposed, self.world.chosen(slot)), f"{vote} was never proposed"
        for slot, ballot in self.votes.items():
            if slot > promise.known and not within(promise.lost, slot):
                assert slot in reported, f"slot {slot}: the vote at {ballot} is not reported"
                assert reported[slot].ballot >= ballot, (
                    f"slot {slot}: voted at {ballot}, {reported[slot]}"
                )

    def sync(self) -> None:
        last = max(self.records, default=0)
        for number in range(self.synced + 1, last + 1):
            match self.records[number]:
                case Entry(slot, ballot) | Again(slot, ballot):
                    self.votes[slot] = ballot
                case NewIncarnation() | Born():
                    self.votes.clear()
                case _:
                    pass
        self.synced = last
        if self.unsaved and self.rng.random() < 0.7:  # a full disk saves no snapshot
            self.state = self.unsaved[-1]
        self.unsaved.clear()
        self.group.receive(B, Stored(last))
        self.take(self.group.drain())

    def hear(self, sender: Ballot, message: Value) -> None:
        """Deliver a message. An answer counts as requested, so that the replica accepts it."""
        self.take(hear(self.group, sender.node, message))
        assert not self.group.gate.refused, f"the history does not test {message}"

    def near(self) -> int:
        """Return a round close to the promised one."""
        return max(1, self.group.state.votes.promised.round + self.rng.randrange(-1, 2))

    # -- steps --

    def accept(self) -> None:
        ballot = Ballot(self.near(), A)
        first = self.group.applied + self.rng.randrange(1, 5)
        slots = range(first, min(first + self.rng.randrange(1, 4), SLOTS + 1))
        known = 0
        while known + 1 < min(first, SLOTS) and self.world.chosen_from[known + 1] <= ballot:
            known += 1
        items = tuple(self.world.value(slot, ballot) for slot in slots)
        if items:
            self.hear(ballot, Accept(ballot, first, items, self.rng.randrange(known + 1)))

    def prepare(self) -> None:
        ballot = Ballot(self.near(), self.rng.choice((C, D)))
        self.group.now += 100.0
        self.hear(ballot, Prepare(ballot, self.rng.randrange(1, self.group.applied + 2)))

    def learn(self) -> None:
        first = self.group.applied + self.rng.choice((1, 1, 2, 3))
        slots = range(first, min(first + self.rng.randrange(1, 6), SLOTS + 1))
        if slots:
            self.hear(Ballot(1, C), Chosen(first, tuple(map(self.world.chosen, slots))))

    def skip(self) -> None:
        slot = self.group.applied + self.rng.randrange(1, 6)
        if slot <= SLOTS:
            self.hear(Ballot(1, D), Ahead(slot, slot + 1, 7, FIVE, 1))
            self.hear(Ballot(1, D), Piece(slot, 0, b"", True))

    def compact(self) -> None:
        chains = [
            slot
            for slot, _ in self.group.state.progress.chains
            if slot >= max(1, self.decisions.installed)
        ]
        if chains:
            slot = self.decisions.installed = self.rng.choice(chains)
            self.group.request(Compact(slot, self.rng.randrange(1, slot + 2), (b"",)))
            self.take(self.group.drain())

    def on_behind(self) -> None:
        self.group.timeout(Behind())
        self.take(self.group.drain())

    def restart(self) -> None:
        for number in [number for number in self.records if number > self.synced]:
            del self.records[number]
        self.unsaved.clear()
        for _ in range(self.rng.choice((0, 1, 1, 2, 3))):
            first = self.rng.randrange(2, max(3, self.synced + 1))  # the Born record is never lost
            block = range(first, first + self.rng.choice((1, 1, 2, 4)))
            self.bad.update(dict.fromkeys(number for number in block if number <= self.synced))
        self.begin()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            kinds = [self.accept] * 6 + [
                self.prepare,
                self.learn,
                self.on_behind,
                self.sync,
                self.sync,
            ]
            kinds += [self.compact] + [self.restart] * (1 + 3 * self.careless)
            if self.rng.random() < 0.2:
                kinds.append(self.skip)
            self.rng.choice(kinds)()


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_replica_with_lost_records_reports_every_vote_and_applies_only_chosen_values(
    first: int,
) -> None:
    """REP-1 REP-2"""
    for seed in range(first, first + 50):
        History(Random(seed)).run(60)
