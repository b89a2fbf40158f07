"""The rules of a replica group, one class each, checked after every event.

The rules come from van Renesse and Altinbuken, "Paxos Made Moderately Complex" (2015). Further
rules cover leases, membership changes and lost disks. They compare replicas with the history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from oncecast.kernel.protocol import Append, Effect, Emit, NodeId, Send, Snapshot, Trim, Value
from oncecast.lab.scenarios.paxos_history import CLIENT, GroupHistory
from oncecast.replication.ballot import BOTTOM, Ballot
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
    Recalled,
    Release,
    Vote,
)
from oncecast.replication.paxos import Paxos
from oncecast.replication.quorum import Member
from oncecast.replication.status import Status
from oncecast.replication.votes import within
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step


def replica(sim: Simulation, node: NodeId) -> Status | None:
    """Return the status of the replica at a node, or None if the node is down."""
    state = sim.nodes.get(node)
    if state is None or state.stack is None:
        return None
    lowest = state.stack.protocols[0]
    assert isinstance(lowest, Paxos)
    return lowest.status


Handler = Callable[[Any, Status], None]


class Rule:
    """Checks the replica that took a step: after a start, for some effects, and after each step.

    `effects` maps types to handlers. The type is that of the message sent, the record appended or
    the event emitted.
    """

    def __init__(self, history: GroupHistory) -> None:
        self.history = history

    def effects(self) -> dict[type, Handler]:
        return {}

    def started(self, paxos: Status) -> None: ...
    def look(self, paxos: Status) -> None: ...


class Durability(Rule):
    """Checks that ballots only grow, and that a restart loses no promise, vote or accepted value.

    A replica that starts in another incarnation may lose them.
    """

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        self.promised: dict[NodeId, Ballot] = {}

    def started(self, paxos: Status) -> None:
        self.promised[paxos.me] = BOTTOM
        disk = self.history.disks[paxos.me]
        if paxos.incarnation != disk.incarnation:
            return  # the promise belongs to an older incarnation
        if paxos.log.promised < disk.promised:
            raise Violation(f"{paxos.me} forgot its promise of ballot {disk.promised} in a crash")
        known = max(paxos.applied, paxos.log.certain)
        for slot, ballot in disk.votes.items():
            # A slot that is known to be chosen needs no vote.
            if slot > known and slot not in paxos.log.learned and not within(paxos.log.lost, slot):
                self._remembers(paxos, slot, ballot, disk.values[slot])

    def _remembers(self, paxos: Status, slot: int, ballot: Ballot, item: Item) -> None:
        vote, found = paxos.log.votes.get(slot, BOTTOM), paxos.log.readable(slot)
        if vote < ballot:
            raise Violation(
                f"{paxos.me} forgot its vote for slot {slot} at ballot {ballot} in a crash"
            )
        if vote == ballot and found not in (None, item):
            raise Violation(f"{paxos.me} restored {found} for slot {slot}, but it accepted {item}")

    def look(self, paxos: Status) -> None:
        if paxos.log.promised < self.promised[paxos.me]:
            raise Violation(f"{paxos.me} went back to a lower promise, ballot {paxos.log.promised}")
        self.promised[paxos.me] = paxos.log.promised


class Reports(Rule):
    """Checks that promises and votes are reported completely, and only once they are on disk."""

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        self.restored: dict[NodeId, Ballot] = {}  # promises read at startup, in any incarnation

    def effects(self) -> dict[type, Handler]:
        return {
            Accept: self._proposed,
            Promise: self._promise,
            Recalled: self._recalled,
            Accepted: self._accepted,
            Heard: self._heard,
            Chosen: self._chosen,
        }

    def started(self, paxos: Status) -> None:
        self.restored[paxos.me] = paxos.log.promised

    def _proposed(self, send: Send, paxos: Status) -> None:
        message = cast("Accept", send.message)
        for slot, item in enumerate(message.items, message.slot):
            self.history.propose(paxos.me, slot, message.ballot, item)

    def _recalled(self, send: Send, paxos: Status) -> None:
        vote = cast("Recalled", send.message).vote
        if vote is not None:
            self._reported(paxos.me, vote)

    def _reported(self, node: NodeId, vote: Vote) -> None:
        """Check that a vote has the value proposed for its slot and ballot.

        A chosen value may be reported with any ballot.
        """
        slot, history = vote.slot, self.history
        proposed = history.proposed.get(slot, {}).get(vote.ballot)
        if vote.item != proposed and not history.is_chosen(slot, vote.item):
            raise Violation(f"{node} reports {vote}, but the proposed value was {proposed}")

    def _promise(self, send: Send, paxos: Status) -> None:
        message, node = cast("Promise", send.message), paxos.me
        for vote in message.votes:
            self._reported(node, vote)
        if message.ballot < paxos.log.promised:
            raise Violation(
                f"{node} promises ballot {message.ballot} "
                f"after the higher ballot {paxos.log.promised}"
            )
        self._on_disk(node, message.ballot, send.after)
        disk = self.history.disks[node]
        if message.incarnation != disk.incarnation:
            return
        reported = {vote.slot: vote for vote in message.votes}
        asked = max(message.known + 1, message.first)
        for slot, ballot in disk.votes.items():
            if slot < asked or within(message.lost, slot):
                continue
            if slot not in reported or reported[slot].ballot < ballot:
                raise Violation(f"{node} does not report its vote for slot {slot}")

    def _heard(self, send: Send, paxos: Status) -> None:
        self._on_disk(paxos.me, cast("Heard", send.message).ballot, send.after)

    def _on_disk(self, node: NodeId, ballot: Ballot, after: int) -> None:
        disk = self.history.disks[node]
        if ballot <= disk.promised or ballot <= self.restored[node]:
            return
        written = [ballot_of(each.record) for each in disk.waiting if each.number <= after]
        if ballot > max(written, default=BOTTOM):
            raise Violation(
                f"{node} promises or follows ballot {ballot} before the promise is on disk"
            )

    def _accepted(self, send: Send, paxos: Status) -> None:
        message, disk = cast("Accepted", send.message), self.history.disks[paxos.me]
        votes = {
            each.record.slot: each.record.ballot
            for each in disk.waiting
            if each.number <= send.after and isinstance(each.record, Entry | Again)
        }
        for slot in range(max(message.first, self.history.last + 1), message.last + 1):
            if votes.get(slot, disk.votes.get(slot)) != message.ballot:
                raise Violation(
                    f"{paxos.me} reports a vote for slot {slot} before the vote is on disk"
                )

    def _chosen(self, send: Send, paxos: Status) -> None:
        message = cast("Chosen", send.message)
        last = message.first + len(message.items) - 1
        if last > paxos.applied:
            raise Violation(
                f"{paxos.me} reports a value for slot {last}, but has not applied this slot"
            )


def ballot_of(record: Value) -> Ballot:
    return record.ballot if isinstance(record, Entry | Again | Promised) else BOTTOM


class Applied(Rule):
    """Checks that replicas apply only chosen values, in order, each slot once per start."""

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        self.applied: dict[NodeId, int] = {}
        # The last slot that each node reported to the layer above.
        self.reported: dict[NodeId, int] = {}

    def effects(self) -> dict[type, Handler]:
        return {Decided: self._decided, Installed: self._installed}

    def started(self, paxos: Status) -> None:
        self.applied[paxos.me] = 0
        self.reported.pop(paxos.me, None)

    def look(self, paxos: Status) -> None:
        node, history, applied = paxos.me, self.history, paxos.applied
        if applied == self.applied[node]:
            return
        if applied < self.applied[node]:
            raise Violation(f"{node} went back from applied slot {self.applied[node]} to {applied}")
        if applied > history.last:
            raise Violation(
                f"{node} applied slot {applied}, but only slots up to {history.last} are chosen"
            )
        if paxos.log.chain != history.chosen[applied].chain:
            raise Violation(
                f"{node} applied values up to slot {applied} that differ from the chosen values"
            )
        self.applied[node] = applied

    def _installed(self, emit: Emit, paxos: Status) -> None:
        self.reported[paxos.me] = cast("Installed", emit.event).slot

    def _decided(self, emit: Emit, paxos: Status) -> None:
        decided, node, history = cast("Decided", emit.event), paxos.me, self.history
        slot = decided.slot
        if not history.is_chosen(slot, Item(COMMAND, decided.value)):
            raise Violation(f"{node} reports {decided}, but this value is not chosen")
        before = self.reported.get(node, slot - 1)
        between = [each for each in range(before + 1, slot) if self._is_command(each)]
        if slot <= before or between:
            raise Violation(
                f"{node} reported slot {slot} after slot {before}; it skipped slots {between}"
            )
        self.reported[node] = slot

    def _is_command(self, slot: int) -> bool:
        return self.history.chosen[slot].item.kind == COMMAND


class Elected(Rule):
    """Checks that a leader has the promises of a majority, and all values they report as chosen."""

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        self.elected: dict[Ballot, None] = {}

    def look(self, paxos: Status) -> None:
        term = paxos.term
        if term is None or not term.elected or term.ballot in self.elected:
            return
        self.elected[term.ballot] = None
        if paxos.config.nodes() == [paxos.me]:
            return  # a lone member needs no promise
        members = self.history.config(paxos.applied).members
        promised = [
            member for member in members if self.history.promises.get(member, BOTTOM) >= term.ballot
        ]
        if paxos.applied < term.promises.known:
            raise Violation(f"{paxos.me} leads, but does not know the current membership")
        if 2 * len(promised) <= len(members):
            raise Violation(
                f"{paxos.me} leads, but only {promised} of {members} have promised its ballot"
            )


class Proposals(Rule):
    """Checks that a leader proposes only values that the promises of a majority allow.

    A leader also must not propose anything after an unapplied membership change.
    """

    def effects(self) -> dict[type, Handler]:
        return {Entry: self._voted, Again: self._voted}

    def _voted(self, append: Append, paxos: Status) -> None:
        record = cast("Entry | Again", append.record)
        if record.ballot.node == paxos.me:
            self._in_turn(record, paxos.applied)
            self._left_to_it(record, paxos.log.readable(record.slot))

    def _in_turn(self, record: Entry | Again, applied: int) -> None:
        for slot in range(applied + 1, record.slot):
            if self._is_membership(slot, record.ballot):
                raise Violation(
                    f"{record} is proposed before the membership change at slot {slot} is applied"
                )

    def _is_membership(self, slot: int, ballot: Ballot) -> bool:
        item = self.history.proposed.get(slot, {}).get(ballot)
        return item is not None and item.kind == CONFIG

    def _left_to_it(self, record: Entry | Again, item: Item | None) -> None:
        """Check the value of a proposal against the votes of a majority.

        A majority must have promised this ballot. The highest of its votes at lower ballots must be
        for this value.
        """
        slot, ballot, history = record.slot, record.ballot, self.history
        if slot <= history.last and item == history.chosen[slot].item:
            return
        config = history.config(slot - 1)
        between = range(history.last + 1, slot)
        if config.nodes() == [ballot.node] or any(
            item.kind == CONFIG
            for each in between
            for item in history.proposed.get(each, {}).values()
        ):
            return  # a lone member asks no peer, or the voters are not known yet
        best: list[Ballot] = []  # the highest vote of each member that promised
        accepted = history.accepted.get(slot, {})
        for member in config.members:
            if history.promises.get(member, BOTTOM) >= ballot:
                votes = [each for each in accepted if each < ballot and member in accepted[each]]
                best.append(max(votes, default=BOTTOM))
        for highest in best:
            free = highest == BOTTOM or history.proposed[slot][highest] == item
            if free and sum(each <= highest for each in best) >= config.majority:
                return
        raise Violation(
            f"slot {slot}: {item} is proposed at ballot {ballot}, but the votes {best} forbid it"
        )


class LeasePromises(Rule):
    """Checks that a replica keeps the lease that it has granted to a leader.

    A replica that has answered a leader promises nothing to other candidates. Its promise ends when
    the suspicion time has passed on its clock, or when the leader releases it. A restart does not
    change that.
    """

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        # The leader's ballot, and when the lease ends.
        self.bound: dict[Member, tuple[Ballot, float]] = {}

    def effects(self) -> dict[type, Handler]:
        return {Heard: self._heard, Promise: self._promised}

    def received(self, message: Value, paxos: Status) -> None:
        """Release a member. So does a newer leader, which was elected after the lease."""
        if not isinstance(message, Release | Accept | Beat):
            return
        me = paxos.self_as_member
        leader, _ = self.bound.get(me, (BOTTOM, 0.0))
        released = isinstance(message, Release) and message.ballot >= leader
        if leader > BOTTOM and (released or message.ballot > leader):
            del self.bound[me]

    def _heard(self, send: Send, paxos: Status) -> None:
        me, ballot = paxos.self_as_member, cast("Heard", send.message).ballot
        before, until = self.bound.get(me, (BOTTOM, 0.0))
        end = paxos.now + paxos.options.suspicion
        # The leader still relies on earlier answers, which may have granted a longer lease.
        self.bound[me] = ballot, max(end, until) if before == ballot else end

    def _promised(self, send: Send, paxos: Status) -> None:
        me, ballot = paxos.self_as_member, cast("Promise", send.message).ballot
        leader, end = self.bound.get(me, (ballot, 0.0))
        # A majority has promised the leader's ballot, so a lower ballot cannot win an election.
        if ballot > leader and ballot.node != leader.node and end > paxos.now:
            raise Violation(
                f"{me} promises ballot {ballot} during its lease to the leader at ballot {leader}"
            )


class Leases(Rule):
    """Checks that at most one leader has a lease, and that it knows all acknowledged slots."""

    def __init__(self, history: GroupHistory, promises: LeasePromises) -> None:
        super().__init__(history)
        self.promises = promises
        self.acknowledged = 0
        self.leading: dict[NodeId, Status] = {}

    def effects(self) -> dict[type, Handler]:
        return {Decided: self._decided}

    def look(self, paxos: Status) -> None:
        if paxos.term is not None:
            self.leading[paxos.me] = paxos
        elif self.leading:
            self.leading.pop(paxos.me, None)

    def _decided(self, emit: Emit, paxos: Status) -> None:
        event = cast("Decided", emit.event)
        if event.token >= 0:
            self.acknowledged = max(self.acknowledged, event.slot)

    def look_at_all(self, sim: Simulation, node: NodeId) -> None:
        """Check the leases after each step of any node, because they expire on their own."""
        leading = self.leading
        if not leading:
            return
        leader = leading.get(node)
        if leader is not None and leader.leads(sim.nodes[node].clock.local(sim.now)):
            self._is_bound(sim, leader)
        if len(leading) == 1:
            (only,) = leading.values()
            if only.applied >= self.acknowledged:
                return  # only one leader can have a lease
        leaders: list[NodeId] = []
        for node, paxos in list(self.leading.items()):
            if replica(sim, node) is not paxos:
                del self.leading[node]  # the node has restarted
            elif paxos.leads(sim.nodes[node].clock.local(sim.now)):
                leaders.append(node)
                if paxos.applied < self.acknowledged:
                    raise Violation(
                        f"{node} leads, but has not applied acknowledged slot {self.acknowledged}"
                    )
        if len(leaders) > 1:
            raise Violation(f"{' and '.join(leaders)} have leases at the same time")

    def _is_bound(self, sim: Simulation, paxos: Status) -> None:
        """Check that a majority of the voters keeps the lease, each by its own clock."""
        assert paxos.term is not None
        ballot, bound = paxos.term.ballot, [paxos.self_as_member]
        for member in paxos.config.members:
            leader, end = self.promises.bound.get(member, (BOTTOM, 0.0))
            if leader == ballot and sim.nodes[member.node].clock.local(sim.now) < end:
                bound.append(member)
        if len(bound) < paxos.config.majority:
            raise Violation(
                f"{paxos.me} claims a lease from {paxos.config.members}, but only {bound} grant it"
            )


class Memberships(Rule):
    """Checks that replicas that have applied the same slots have the same membership."""

    def __init__(self, history: GroupHistory) -> None:
        super().__init__(history)
        self.seen: dict[NodeId, int] = {}

    def started(self, paxos: Status) -> None:
        self.seen.pop(paxos.me, None)

    def look(self, paxos: Status) -> None:
        version = paxos.config.version
        if not version or version == self.seen.get(paxos.me):
            return
        self.seen[paxos.me] = version
        config = self.history.config(paxos.applied)
        if paxos.config != config:
            raise Violation(
                f"{paxos.me} has membership {paxos.config}, but the chosen one is {config}"
            )


class States(Rule):
    """Checks that a snapshot matches its slot and keeps all promises.

    It also checks that no record that a replica needs is trimmed.
    """

    def effects(self) -> dict[type, Handler]:
        return {Checkpoint: self._saved, Trim: self._trimmed}

    def _trimmed(self, trim: Trim, paxos: Status) -> None:
        needed = paxos.log.first_record(paxos.log.kept)
        if needed is not None and trim.number > needed:
            raise Violation(f"{paxos.me} trims record {needed}, but still needs it")

    def _saved(self, snapshot: Snapshot, paxos: Status) -> None:
        state, node, history = cast("Checkpoint", snapshot.state), paxos.me, self.history
        slot = state.slot
        if slot > history.last or state.chain != history.chosen[slot].chain:
            raise Violation(f"{node} saves a snapshot that differs from the state at slot {slot}")
        # A node that has not learned any membership has version 0.
        if state.config.version and state.config != history.config(slot):
            raise Violation(
                f"{node} saves {state.config} at slot {slot}, expected {history.config(slot)}"
            )
        if state.promised != paxos.log.promised:
            raise Violation(
                f"{node} saves the promise {state.promised}, but promised {paxos.log.promised}"
            )


class Rules(Checker):
    """Runs all rules in the required order."""

    def __init__(self, history: GroupHistory) -> None:
        self.history, self.lease_promises = history, LeasePromises(history)
        self.leases = Leases(history, self.lease_promises)
        kinds = (Durability, Reports, Applied, Elected, Proposals, Memberships, States)
        checks = [kind(history) for kind in kinds]
        self.rules: list[Rule] = [self.lease_promises, self.leases, *checks]
        self._looking = [rule.look for rule in self.rules if type(rule).look is not Rule.look]
        self._handlers: dict[type, list[Handler]] = {}
        for rule in self.rules:
            for kind, handler in rule.effects().items():
                self._handlers.setdefault(kind, []).append(handler)

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node.startswith(CLIENT):
            return
        self.history.after(sim, step)
        paxos = replica(sim, step.node)
        if paxos is not None:
            if step.kind == "receive":
                self.lease_promises.received(step.subject[1], paxos)
            elif step.kind == "start":
                for rule in self.rules:
                    rule.started(paxos)
            handlers = self._handlers
            for effect in step.effects:
                kind = kind_of(effect)
                if kind in handlers:
                    for handler in handlers[kind]:
                        handler(effect, paxos)
            for look in self._looking:
                look(paxos)
        self.leases.look_at_all(sim, step.node)


def kind_of(effect: Effect) -> type:
    """Return the type of the message, record, event or state that the effect carries."""
    kind = type(effect)
    if kind is Send:
        return type(cast("Send", effect).message)
    if kind is Append:
        return type(cast("Append", effect).record)
    if kind is Emit:
        return type(cast("Emit", effect).event)
    if kind is Snapshot:
        return type(cast("Snapshot", effect).state)
    return kind
