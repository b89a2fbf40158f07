"""The rules of a replica group, one checker each, after every event.

Rules of van Renesse and Altinbuken, "Paxos Made Moderately Complex" (2015), and what a lease, a
membership and a lost disk add to them. What is true is looked up in the books.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Append, Emit, NodeId, Send, Value
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.core import within
from oncecast.replication.events import Decided, Installed
from oncecast.replication.messages import (
    COMMAND,
    CONFIG,
    Accepted,
    Again,
    Entry,
    Promise,
    Promised,
)
from oncecast.replication.paxos import Paxos
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.paxos_books import Books


def replica(sim: Simulation, node: NodeId) -> Paxos | None:
    """The group's protocol of a node that is up."""
    state = sim.nodes.get(node)
    if state is None or state.stack is None:
        return None
    lowest = state.stack.protocols[0]
    assert isinstance(lowest, Paxos)
    return lowest


class Ruled(Checker):
    """Looks at the replica that a step was taken by."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def after(self, sim: Simulation, step: Step) -> None:
        paxos = replica(sim, step.node)
        if paxos is not None:
            self.look(sim, step, paxos)

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None: ...


class Memory(Ruled):
    """Ballots only grow; a restart forgets no promise and no vote, or is another life."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.promised: dict[NodeId, Ballot] = {}

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        if step.kind == "start":
            self.promised[step.node] = BOTTOM
            self._restarted(step.node, paxos)
        if paxos.promised < self.promised[step.node]:
            raise Violation(f"{step.node} went back to ballot {paxos.promised}")
        self.promised[step.node] = paxos.promised

    def _restarted(self, node: NodeId, paxos: Paxos) -> None:
        disk = self.books.disks[node]
        if paxos.life != disk.life:
            return  # whoever promised that is no more
        if paxos.promised < disk.promised:
            raise Violation(f"{node} forgot in a crash that it promised {disk.promised}")
        known = max(paxos.applied, paxos.certain)
        for slot, ballot in disk.votes.items():
            vote = paxos.votes.get(slot, BOTTOM)
            if slot > known and vote < ballot and not within(paxos.lost, slot):
                raise Violation(f"{node} forgot in a crash that it accepted {slot} at {ballot}")


class Honesty(Ruled):
    """What is said of a promise or a vote waits until it is on disk, and all of it is said."""

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Promise):
                self._promise(step.node, effect.message, effect.after)
            elif isinstance(effect, Send) and isinstance(effect.message, Accepted):
                self._accepted(step.node, effect.message, effect.after)

    def _promise(self, node: NodeId, message: Promise, after: int) -> None:
        disk = self.books.disks[node]
        written = [ballot_of(each.record) for each in disk.waiting if each.number <= after]
        if message.ballot > max(disk.promised, *written, BOTTOM):
            raise Violation(f"{node} promises {message.ballot} before that is on disk")
        if message.life != disk.life:
            return
        told = {vote.slot: vote.ballot for vote in message.votes}
        asked = max(message.known + 1, message.first)
        for slot, ballot in disk.votes.items():
            said = told.get(slot, BOTTOM) >= ballot or within(message.lost, slot)
            if slot >= asked and not said:
                raise Violation(f"{node} keeps silent of what it accepted for slot {slot}")

    def _accepted(self, node: NodeId, message: Accepted, after: int) -> None:
        disk = self.books.disks[node]
        votes = {
            each.record.slot: each.record.ballot
            for each in disk.waiting
            if each.number <= after and isinstance(each.record, Entry | Again)
        }
        for slot in range(max(message.first, self.books.last + 1), message.last + 1):
            if votes.get(slot, disk.votes.get(slot)) != message.ballot:
                raise Violation(f"{node} says that it accepted {slot} before that is on disk")


def ballot_of(record: Value) -> Ballot:
    return record.ballot if isinstance(record, Entry | Again | Promised) else BOTTOM


class Applied(Ruled):
    """Only what is chosen is applied: all of it, in order, each slot once a life."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.applied: dict[NodeId, int] = {}
        self.told: dict[NodeId, int] = {}  # the last place that was told upwards

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        node, books = step.node, self.books
        if step.kind == "start":
            self.applied[node] = 0
            self.told.pop(node, None)
        for effect in step.effects:
            if isinstance(effect, Emit) and isinstance(effect.event, Decided):
                self._decided(node, effect.event)
            elif isinstance(effect, Emit) and isinstance(effect.event, Installed):
                self.told[node] = effect.event.place
        applied = paxos.applied
        if applied == self.applied[node]:
            return
        if applied < self.applied[node]:
            raise Violation(f"{node} applied {self.applied[node]}, and now only {applied}")
        if applied > books.last:
            raise Violation(f"{node} applied {applied}: only {books.last} are chosen")
        if paxos.chain != books.chosen[applied].chain:
            raise Violation(f"{node} has applied something else up to slot {applied}")
        self.applied[node] = applied

    def _decided(self, node: NodeId, decided: Decided) -> None:
        place, books = decided.place, self.books
        if place > books.last or books.chosen[place].item != (COMMAND, decided.value):
            raise Violation(f"{node} says that {decided} is decided: it is not chosen")
        before = self.told.get(node, place - 1)
        between = [slot for slot in range(before + 1, place) if self._is_command(slot)]
        if place <= before or between:
            raise Violation(f"{node} told {before}, then {place}; it left out {between}")
        self.told[node] = place

    def _is_command(self, slot: int) -> bool:
        return self.books.chosen[slot].item.kind == COMMAND


class Elected(Ruled):
    """Who leads has the promise of a majority, each on disk, in the life that has the seat."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.elected: dict[Ballot, None] = {}

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        reign = paxos.reign
        if reign is None or not reign.elected or reign.ballot in self.elected:
            return
        self.elected[reign.ballot] = None
        if paxos.config.nodes() == [step.node]:
            return  # it asks nobody
        members = self.books.config(paxos.applied).members
        promised = [
            member for member in members if self.books.promises.get(member, BOTTOM) >= reign.ballot
        ]
        if 2 * len(promised) <= len(members):
            raise Violation(f"{step.node} leads by the word of {promised} of {members}")


class Turns(Ruled):
    """A leader proposes nothing behind a membership that is still on its way."""

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        for effect in step.effects:
            record = effect.record if isinstance(effect, Append) else None
            if isinstance(record, Entry | Again) and record.ballot.node == step.node:
                self._proposed(record, paxos.applied)

    def _proposed(self, record: Entry | Again, applied: int) -> None:
        for slot in range(applied + 1, record.slot):
            item = self.books.proposed.get(slot, {}).get(record.ballot)
            if item is not None and item.kind == CONFIG:
                raise Violation(f"{record} is proposed behind the membership at slot {slot}")


class Leases(Ruled):
    """At any time at most one leader acts on its lease; and it knows all that was ever told."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.told = 0

    def after(self, sim: Simulation, step: Step) -> None:
        for effect in step.effects:
            if (
                isinstance(effect, Emit)
                and isinstance(effect.event, Decided)
                and effect.event.token >= 0
            ):
                self.told = max(self.told, effect.event.place)
        leaders: list[NodeId] = []
        for node in sim.nodes:
            paxos = replica(sim, node)
            if paxos is None or paxos.reign is None:
                continue
            if paxos.leads(sim.nodes[node].clock.local(sim.now)):
                leaders.append(node)
                if paxos.applied < self.told:
                    raise Violation(f"{node} leads, and does not know of slot {self.told}")
        if len(leaders) > 1:
            raise Violation(f"{' and '.join(leaders)} have a lease at the same time")


class Memberships(Ruled):
    """All who have applied the same have the same membership, each the successor of the last."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.seen: dict[NodeId, int] = {}

    def look(self, sim: Simulation, step: Step, paxos: Paxos) -> None:
        version = paxos.config.version
        if version == self.seen.get(step.node) or not version:
            return
        self.seen[step.node] = version
        config = self.books.config(paxos.applied)
        if paxos.config != config:
            raise Violation(f"{step.node} is of {paxos.config}: it is {config}")


def rules(books: Books) -> list[Checker]:
    """All of them, in the order in which they must look."""
    kinds = (Memory, Honesty, Applied, Elected, Turns, Leases, Memberships)
    return [books, *(kind(books) for kind in kinds)]
