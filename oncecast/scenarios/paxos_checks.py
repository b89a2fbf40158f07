"""The rules of a replica group, one checker each, after every event.

Rules of van Renesse and Altinbuken, "Paxos Made Moderately Complex" (2015), and what a lease, a
membership and a lost disk add to them. What is true is looked up in the books.
"""

from __future__ import annotations

from oncecast.kernel.protocol import Append, Emit, NodeId, Send, Snapshot, Trim, Value
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.core import within
from oncecast.replication.events import Decided, Installed
from oncecast.replication.messages import (
    COMMAND,
    CONFIG,
    Accept,
    Accepted,
    Again,
    Beat,
    Checkpoint,
    Chosen,
    Entry,
    Heard,
    Item,
    Promise,
    Promised,
    Release,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Member
from oncecast.runtime.checkers import Checker, Violation
from oncecast.runtime.simulated import Simulation
from oncecast.runtime.trace import Step
from oncecast.scenarios.paxos_books import CLIENT, Books


def replica(sim: Simulation, node: NodeId) -> Paxos | None:
    """The group's protocol of a node that is up."""
    state = sim.nodes.get(node)
    if state is None or state.stack is None:
        return None
    lowest = state.stack.protocols[0]
    assert isinstance(lowest, Paxos)
    return lowest


class Rule:
    """Looks at the replica that a step was taken by."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def look(self, step: Step, paxos: Paxos) -> None: ...


class Memory(Rule):
    """Ballots only grow; a restart forgets no promise and no vote, or is another life."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.promised: dict[NodeId, Ballot] = {}

    def look(self, step: Step, paxos: Paxos) -> None:
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


class Honesty(Rule):
    """What is said of a promise or a vote, or to a leader, waits until it is on disk, and all of it
    is said."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.restored: dict[NodeId, Ballot] = {}  # what each has read from its disk, of any life

    def look(self, step: Step, paxos: Paxos) -> None:
        if step.kind == "start":
            self.restored[step.node] = paxos.promised
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Promise):
                self._promise(step.node, effect.message, effect.after, paxos.promised)
            elif isinstance(effect, Send) and isinstance(effect.message, Accepted):
                self._accepted(step.node, effect.message, effect.after)
            elif isinstance(effect, Send) and isinstance(effect.message, Heard):
                self._on_disk(step.node, effect.message.ballot, effect.after)
            elif isinstance(effect, Send) and isinstance(effect.message, Chosen):
                self._chosen(step.node, effect.message, paxos.applied)

    def _promise(self, node: NodeId, message: Promise, after: int, promised: Ballot) -> None:
        if message.ballot < promised:
            raise Violation(f"{node} promises {message.ballot}, though it promised {promised}")
        self._on_disk(node, message.ballot, after)
        disk = self.books.disks[node]
        if message.life != disk.life:
            return
        told = {vote.slot: vote.ballot for vote in message.votes}
        asked = max(message.known + 1, message.first)
        for slot, ballot in disk.votes.items():
            said = told.get(slot, BOTTOM) >= ballot or within(message.lost, slot)
            if slot >= asked and not said:
                raise Violation(f"{node} keeps silent of what it accepted for slot {slot}")

    def _on_disk(self, node: NodeId, ballot: Ballot, after: int) -> None:
        disk = self.books.disks[node]
        written = [ballot_of(each.record) for each in disk.waiting if each.number <= after]
        if ballot > max(disk.promised, *written, self.restored[node]):
            raise Violation(f"{node} promises or follows {ballot} before that is on disk")

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

    def _chosen(self, node: NodeId, message: Chosen, applied: int) -> None:
        last = message.first + len(message.items) - 1
        if last > applied:
            raise Violation(f"{node} says what was chosen for slot {last}, and cannot know it")


def ballot_of(record: Value) -> Ballot:
    return record.ballot if isinstance(record, Entry | Again | Promised) else BOTTOM


class Applied(Rule):
    """Only what is chosen is applied: all of it, in order, each slot once a life."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.applied: dict[NodeId, int] = {}
        self.told: dict[NodeId, int] = {}  # the last place that was told upwards

    def look(self, step: Step, paxos: Paxos) -> None:
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


class Elected(Rule):
    """Who leads has the promise of a majority, each on disk, in the life that has the seat; and
    all that these say to be chosen."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.elected: dict[Ballot, None] = {}

    def look(self, step: Step, paxos: Paxos) -> None:
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
        if paxos.applied < reign.promises.known:
            raise Violation(f"{step.node} leads, and may not know who votes now")
        if 2 * len(promised) <= len(members):
            raise Violation(f"{step.node} leads by the word of {promised} of {members}")


class Proposals(Rule):
    """A leader proposes only what the promises of a majority leave to it, and nothing behind a
    membership that is still on its way."""

    def look(self, step: Step, paxos: Paxos) -> None:
        for effect in step.effects:
            record = effect.record if isinstance(effect, Append) else None
            if isinstance(record, Entry | Again) and record.ballot.node == step.node:
                self._in_turn(record, paxos.applied)
                self._left_to_it(record, paxos.readable(record.slot))

    def _in_turn(self, record: Entry | Again, applied: int) -> None:
        for slot in range(applied + 1, record.slot):
            if self._is_membership(slot, record.ballot):
                raise Violation(f"{record} is proposed behind the membership at slot {slot}")

    def _is_membership(self, slot: int, ballot: Ballot) -> bool:
        item = self.books.proposed.get(slot, {}).get(ballot)
        return item is not None and item.kind == CONFIG

    def _left_to_it(self, record: Entry | Again, item: Item | None) -> None:
        """There is a majority that has promised this ballot, and of all that it has accepted with
        lower ones, what was accepted with the highest is this value."""
        slot, ballot, books = record.slot, record.ballot, self.books
        if slot <= books.last and item == books.chosen[slot].item:
            return
        config = books.config(slot - 1)
        between = range(books.last + 1, slot)
        if config.nodes() == [ballot.node] or any(
            item.kind == CONFIG
            for each in between
            for item in books.proposed.get(each, {}).values()
        ):
            return  # it asks nobody; or it is not yet known who votes
        best: list[Ballot] = []  # of each who has promised
        accepted = books.accepted.get(slot, {})
        for member in config.members:
            if books.promises.get(member, BOTTOM) >= ballot:
                votes = [each for each in accepted if each < ballot and member in accepted[each]]
                best.append(max(votes, default=BOTTOM))
        for highest in best:
            free = highest == BOTTOM or books.proposed[slot][highest] == item
            if free and sum(each <= highest for each in best) >= config.majority:
                return
        raise Violation(f"slot {slot}: {item} is proposed at {ballot}, and may not be: {best}")


class Faith(Rule):
    """Who has answered a leader promises nobody else anything until the suspicion time has passed
    on its clock, or the leader has released it; a restart does not change that."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.bound: dict[Member, tuple[Ballot, float]] = {}

    def look(self, step: Step, paxos: Paxos) -> None:
        me = paxos.self_as_member
        if step.kind == "receive" and me in self.bound:
            self._freed(me, step.subject[1])
        for effect in step.effects:
            if not isinstance(effect, Send):
                continue
            if isinstance(effect.message, Heard):
                self.bound[me] = effect.message.ballot, paxos.now
            elif isinstance(effect.message, Promise) and me in self.bound:
                self._promised(me, effect.message.ballot, paxos.now - paxos.options.suspicion)

    def _freed(self, me: Member, message: Value) -> None:
        """Also by the word of a later leader: it could not be elected before the lease was over."""
        leader, _ = self.bound[me]
        released = isinstance(message, Release) and message.ballot >= leader
        if released or (isinstance(message, Accept | Beat) and message.ballot > leader):
            del self.bound[me]

    def _promised(self, me: Member, ballot: Ballot, free: float) -> None:
        leader, heard = self.bound[me]
        # A majority has promised the leader's ballot: a lower one, promised before, elects nobody.
        if ballot > leader and ballot.node != leader.node and heard > free:
            raise Violation(f"{me} promises {ballot}, and {leader} may rely on its answer")


class Leases(Rule):
    """At any time at most one leader acts on its lease; and it knows all that was ever told."""

    def __init__(self, books: Books, faith: Faith) -> None:
        super().__init__(books)
        self.faith = faith
        self.told = 0
        self.reigning: dict[NodeId, Paxos] = {}

    def look(self, step: Step, paxos: Paxos) -> None:
        if paxos.reign is not None:
            self.reigning[step.node] = paxos
        else:
            self.reigning.pop(step.node, None)
        for effect in step.effects:
            event = effect.event if isinstance(effect, Emit) else None
            if isinstance(event, Decided) and event.token >= 0:
                self.told = max(self.told, event.place)

    def look_at_all(self, sim: Simulation, node: NodeId) -> None:
        """A lease ends by itself, so this is looked at whoever took a step."""
        reigning = self.reigning.get(node)
        now = sim.nodes[node].clock.local(sim.now) if reigning is not None else 0.0
        if reigning is not None and reigning.leads(now):
            self._is_bound(sim, reigning)
        if len(self.reigning) < 2 and all(
            paxos.applied >= self.told for paxos in self.reigning.values()
        ):
            return  # nobody to be at odds with
        leaders: list[NodeId] = []
        for node, paxos in list(self.reigning.items()):
            if replica(sim, node) is not paxos:
                del self.reigning[node]  # of an earlier life
            elif paxos.leads(sim.nodes[node].clock.local(sim.now)):
                leaders.append(node)
                if paxos.applied < self.told:
                    raise Violation(f"{node} leads, and does not know of slot {self.told}")
        if len(leaders) > 1:
            raise Violation(f"{' and '.join(leaders)} have a lease at the same time")

    def _is_bound(self, sim: Simulation, paxos: Paxos) -> None:
        """Whether a majority of those who vote keeps it, each by its own clock."""
        assert paxos.reign is not None
        ballot, bound = paxos.reign.ballot, [paxos.self_as_member]
        for member in paxos.config.members:
            leader, heard = self.faith.bound.get(member, (BOTTOM, 0.0))
            since = sim.nodes[member.node].clock.local(sim.now) - heard
            if leader == ballot and since < paxos.options.suspicion:
                bound.append(member)
        if len(bound) < paxos.config.majority:
            raise Violation(f"{paxos.me} has a lease of {paxos.config.members}, but only {bound}")


class Memberships(Rule):
    """All who have applied the same have the same membership, each the successor of the last."""

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.seen: dict[NodeId, int] = {}

    def look(self, step: Step, paxos: Paxos) -> None:
        version = paxos.config.version
        if not version or (version == self.seen.get(step.node) and step.kind != "start"):
            return
        self.seen[step.node] = version
        config = self.books.config(paxos.applied)
        if paxos.config != config:
            raise Violation(f"{step.node} is of {paxos.config}: it is {config}")


class States(Rule):
    """A state that is saved says what is so at its place, and forgets no promise; what it needs
    is kept."""

    def look(self, step: Step, paxos: Paxos) -> None:
        for effect in step.effects:
            if isinstance(effect, Snapshot) and isinstance(effect.state, Checkpoint):
                self._saved(step.node, effect.state, paxos)
            elif isinstance(effect, Trim):
                needed = paxos.places.lowest(paxos.kept)
                if needed is not None and effect.number > needed:
                    raise Violation(f"{step.node} trims record {needed}, which its state needs")

    def _saved(self, node: NodeId, state: Checkpoint, paxos: Paxos) -> None:
        place, books = state.place, self.books
        if place > books.last or state.chain != books.chosen[place].chain:
            raise Violation(f"{node} saves a state that is not the one at slot {place}")
        # Who was never told of one knows of no membership, and is in none.
        if state.config.version and state.config != books.config(place):
            raise Violation(f"{node} saves {state.config} at slot {place}: {books.config(place)}")
        if state.promised != paxos.promised:
            raise Violation(f"{node} saves {state.promised}, and has promised {paxos.promised}")


class Rules(Checker):
    """All of them, in the order in which they must look."""

    def __init__(self, books: Books) -> None:
        faith = Faith(books)
        self.books, self.leases = books, Leases(books, faith)
        kinds = (Memory, Honesty, Applied, Elected, Proposals, Memberships, States)
        self.rules: list[Rule] = [faith, self.leases, *(kind(books) for kind in kinds)]

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node.startswith(CLIENT):
            return
        self.books.after(sim, step)
        paxos = replica(sim, step.node)
        if paxos is not None:
            for rule in self.rules:
                rule.look(step, paxos)
        self.leases.look_at_all(sim, step.node)
