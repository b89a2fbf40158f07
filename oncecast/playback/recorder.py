"""Record a simulation for the page that plays it.

    recorder = Recorder()
    outcome = run(PAXOS, 7, make=recorder.simulation, caught=recorder.caught)
    recording = recorder.finished()

A recorded run has the same trace as any other run of its seed. A run that is not recorded uses no
code of this module. A long run keeps its last `steps_max` steps and the state before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import google_crc32c

from oncecast.history.finding import Finding
from oncecast.kernel.protocol import Append, Ask, Effect, Later, NodeId, Send, Value
from oncecast.playback.causes import explain
from oncecast.playback.histories import operations_of
from oncecast.playback.node_state import States, replica_of, state_of
from oncecast.playback.recording import (
    NETWORK,
    NONE,
    Change,
    Fault,
    Message,
    Recording,
    Step,
    Violation,
    Vote,
)
from oncecast.playback.wording import ballot_text, effect_text, fields_of, item_text, name_of
from oncecast.replication.ballot import BOTTOM
from oncecast.replication.messages import Again, Entry, Item, Learned
from oncecast.replication.status import Status
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Trace
from oncecast.simulator.violation import Violation as Broken
from oncecast.simulator.weather import Front, Kind

STEPS_MAX = 200_000
DROPPED_AT_ONCE = 20_000
TIMERS_MAX = 200_000
SLOTS_READ = 64  # number of slots that are read from the log of a replica when it restarts
CELLS_MAX = 1024  # number of slots per replica whose votes are compared after a restart


class RecordedSimulation(Simulation):
    """A simulation that tells its recorder about each step and each departing message."""

    def __init__(self, recorder: Recorder, seed: int, *, trace: Trace | None = None) -> None:
        super().__init__(seed, trace=trace)
        self.observed = True
        recorder.begin(self)
        self._recorder = recorder
        self._arrivals: list[float] | None = None  # of the message that leaves its sender now

    def observe(self, node: NodeId, kind: str, subject: Any, effects: Sequence[Effect]) -> None:
        self._recorder.step(self, node, kind, subject, effects)
        super().observe(node, kind, subject, effects)

    def repair(self, fronts: Iterable[Front] | None = None) -> None:
        super().repair(fronts)
        self._recorder.repaired(self)

    def at(self, time: float, action: Any, first: Any, second: Any) -> None:
        if self._arrivals is not None:
            self._arrivals.append(time)
        super().at(time, action, first, second)

    def carry(self, sender: NodeId, to: NodeId, message: Value) -> None:
        arrivals = self._arrivals = []
        try:
            super().carry(sender, to, message)
        finally:
            self._arrivals = None
        self._recorder.left(self, sender, to, message, arrivals)


Route = tuple[str, str, int]  # sender, receiver, and the identity of a message object
Table = dict[Route, tuple[Value, deque[Message]]]


class Post:
    """The messages in flight. It keeps the objects, so that their identities stay unique."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._waiting: Table = {}  # for the sender's disk
        self._moving: Table = {}
        self._held: Table = {}
        self._next = 0

    def sent(self, sender: str, send: Send, step: int) -> None:
        message = send.message
        made = self._made(name_of(message), sender, send.to, fields_of(message), step)
        put(self._waiting, (sender, send.to, id(message)), message, made)

    def _made(self, name: str, sender: str, to: str, text: str, step: int) -> Message:
        made = Message(self._next, name, sender, to, text, step)
        self._recording.messages[self._next] = made
        self._next += 1
        return made

    def left(self, now: float, route: Route, message: Value, arrivals: list[float]) -> Message:
        """Note when a message leaves its sender, and when its copies arrive."""
        found = take(self._waiting, route)
        if found is None:
            found = take(self._held, route)
            if found is not None:
                found.left = now  # a repaired link sends it now
        if found is None:  # only a listener of the simulation can send without a step
            found = self._made(name_of(message), route[0], route[1], fields_of(message), NONE)
        if found.left < 0:
            found.left = now
        for number, due in enumerate(arrivals):
            copy = found
            if number:
                copy = self._made(found.name, found.sender, found.to, found.text, found.sent)
                copy.left = now
            copy.due, copy.fate = due, "open"
            put(self._moving, route, message, copy)
        return found

    def held(self, route: Route, message: Value, found: Message) -> None:
        found.fate = "held"
        put(self._held, route, message, found)

    def got(self, route: Route, step: int) -> int:
        """Return the number of the copy that arrives first."""
        entry = self._moving.get(route)
        if entry is None:
            return NONE
        copies = entry[1]
        found = min(copies, key=lambda each: each.due)
        copies.remove(found)
        if not copies:
            del self._moving[route]
        found.got, found.fate = step, "got"
        return found.number

    def crashed(self, node: str) -> None:
        """Note that messages of a node will never leave it."""
        for route in [route for route in self._waiting if route[0] == node]:
            for each in self._waiting.pop(route)[1]:
                each.fate = "unsent"

    def missed(self, node: str, now: float) -> None:
        """Note that messages have reached a node while it was not running."""
        for route, (_, copies) in list(self._moving.items()):
            if route[1] != node:
                continue
            for each in [each for each in copies if each.due <= now]:
                each.fate = "down"
                copies.remove(each)
            if not copies:
                del self._moving[route]

    def end(self, now: float, down: Callable[[str], bool]) -> None:
        for node in dict.fromkeys(route[1] for route in self._moving):
            if down(node):
                self.missed(node, now)


def put(table: Table, route: Route, message: Value, each: Message) -> None:
    table.setdefault(route, (message, deque()))[1].append(each)


def take(table: Table, route: Route) -> Message | None:
    entry = table.get(route)
    if entry is None:
        return None
    found = entry[1].popleft()
    if not entry[1]:
        del table[route]
    return found


class Fronts:
    """The faults of the network that last: fronts, loss and duplication."""

    def __init__(self, recording: Recording) -> None:
        self._faults = recording.faults
        self._fronts: list[Front] = []
        self._open: dict[int, Fault] = {}  # by the identity of a front in `_fronts`
        self._rates: dict[str, Fault] = {}

    def look(self, sim: Simulation) -> None:
        weather = sim.weather
        if weather.fronts != self._fronts:
            self._change(weather.fronts, sim.now)
        self._rate("loss", weather.loss, sim.now)
        self._rate("duplication", weather.duplication, sim.now)

    def _change(self, fronts: list[Front], now: float) -> None:
        there = {id(front) for front in fronts}
        for front in self._fronts:
            if id(front) not in there:
                self._open.pop(id(front)).end = now
        last: Fault | None = None
        for front in fronts:
            if id(front) in self._open:
                continue
            senders, receivers = tuple(sorted(front.senders)), tuple(sorted(front.receivers))
            kind = front.kind.value
            if (
                last is not None
                and not last.both
                and (last.kind, last.senders, last.receivers) == (kind, receivers, senders)
            ):
                last.both = True  # the second of the two fronts of one fault
            else:
                last = Fault(kind, now, senders, receivers, amount=front.extra)
                self._faults.append(last)
            self._open[id(front)] = last
        self._fronts = list(fronts)

    def _rate(self, kind: str, amount: float, now: float) -> None:
        fault = self._rates.get(kind)
        if fault is not None and fault.amount == amount:
            return
        if fault is not None:
            self._rates.pop(kind).end = now
        if amount:
            self._rates[kind] = Fault(kind, now, amount=amount)
            self._faults.append(self._rates[kind])


class Logs:
    """The votes in the logs of the replicas."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._cells: dict[str, dict[int, tuple[str, int]]] = {}  # ballot and checksum by slot

    def append(self, step: int, node: str, record: Value) -> None:
        match record:
            case Entry(slot, ballot, kind, data):
                self._put(step, node, slot, ballot_text(ballot), Item(kind, data))
            case Learned(slot, kind, data):
                self._put(step, node, slot, "learned", Item(kind, data))
            case Again(slot, ballot):
                checksum = self._cells.get(node, {}).get(slot, ("", 0))[1]
                self._add(step, node, slot, ballot_text(ballot), "", checksum)
            case _:
                pass

    def _put(self, step: int, node: str, slot: int, ballot: str, item: Item) -> None:
        self._add(step, node, slot, ballot, item_text(item), checksum_of(item))

    def _add(self, step: int, node: str, slot: int, ballot: str, text: str, checksum: int) -> None:
        self._recording.votes.append(Vote(step, node, slot, ballot, text, checksum))
        cells = self._cells.setdefault(node, {})
        cells[slot] = (ballot, checksum)
        if len(cells) > CELLS_MAX:
            del cells[min(cells)]

    def restarted(self, step: int, status: Status) -> None:
        """Remove the votes that a crash has lost, and add those that the model lacks."""
        node, log = status.me, status.log
        cells = self._cells.setdefault(node, {})
        for slot in [slot for slot in cells if slot > status.applied]:
            if slot not in log.votes and slot not in log.learned:
                self._add(step, node, slot, "", "", 0)
                del cells[slot]
        for slot in sorted(cells)[-SLOTS_READ:]:
            item, (known, checksum) = log.readable(slot), cells[slot]
            if item is not None and checksum_of(item) != checksum:
                self._put(step, node, slot, known, item)  # the log has another value
        for slot, ballot in log.votes.items():
            item = log.readable(slot)
            if slot not in cells and ballot != BOTTOM and item is not None:
                self._put(step, node, slot, ballot_text(ballot), item)


def checksum_of(item: Item) -> int:
    return int(google_crc32c.extend(item.kind, item.data))


class Recorder:
    """Writes a recording while a simulation runs."""

    def __init__(self, *, steps_max: int = STEPS_MAX) -> None:
        self.recording = Recording()
        self.steps_max = steps_max
        self._post = Post(self.recording)
        self._fronts = Fronts(self.recording)
        self._logs = Logs(self.recording)
        self._states: dict[str, States] = {}
        self._timers: dict[tuple[str, Value], int] = {}
        self._faults: dict[str, int] = {}  # the last step that hit each node
        self._appended: dict[str, int] = {}  # the last step of each node with a record
        self._sim: Simulation | None = None
        self._error: Exception | None = None

    def simulation(self, seed: int, *, trace: Trace | None = None) -> RecordedSimulation:
        """Make the simulation to record."""
        return RecordedSimulation(self, seed, trace=trace)

    def begin(self, sim: Simulation) -> None:
        self._sim = sim

    def caught(self, error: Exception) -> None:
        """Note the exception that has ended the run."""
        self._error = error

    # -- what happens --

    def step(
        self, sim: Simulation, node: str, kind: str, subject: Any, effects: Sequence[Effect]
    ) -> None:
        recording, number = self.recording, self.recording.next
        self._fronts.look(sim)
        changes = self._changes(sim, node)
        if kind == "wake" and not effects and not changes:
            return  # a timer that was set again; nothing has happened
        recording.steps.append(self._made(sim, number, node, kind, subject, effects))
        recording.changes += [Change(number, node, key, value) for key, value in changes]
        self._note_effects(node, effects, number)
        if kind == "start":
            recording.nodes[node] = None
            self._post.missed(node, sim.now)
            replica = replica_of(sim.nodes[NodeId(node)].stack)
            if replica is not None:
                self._logs.restarted(number, replica)
        elif kind == "crash":
            self._post.crashed(node)
            self._timers = {key: at for key, at in self._timers.items() if key[0] != node}
        if kind not in INPUTS:
            self._faults[node] = number
        if len(recording.steps) >= self.steps_max + DROPPED_AT_ONCE:
            recording.drop(DROPPED_AT_ONCE)

    def _made(
        self,
        sim: Simulation,
        number: int,
        node: str,
        kind: str,
        subject: Any,
        effects: Sequence[Effect],
    ) -> Step:
        # The first effect of a request is the request itself.
        own = [each for each in effects if not (type(each) is Ask and each.request is subject)]
        texts = tuple(text for text in map(effect_text, own) if text)
        cause, message, name, text = NONE, NONE, "", ""
        if kind == "receive":
            sender, value = subject
            message = self._post.got((sender, node, id(value)), number)
            name = name_of(value)
            if message == NONE:
                text = f"from {sender} {fields_of(value)}"
            else:
                cause = self.recording.messages[message].sent
        else:
            name, text = name_of(subject), fields_of(subject)
            if kind == "start":
                text = f"number {subject} of this node"
            cause = self._cause(node, kind, subject)
        return Step(sim.now, node, kind, text, texts, cause, message, name)

    def _cause(self, node: str, kind: str, subject: Any) -> int:
        match kind:
            case "wake":
                return self._timers.get((node, subject), NONE)
            case "synced":
                return self._appended.get(node, NONE)
            case "start":
                return self._faults.get(node, NONE)
            case "down":
                return max(self._faults.get(subject, NONE), self._faults.get(NETWORK, NONE))
            case _:
                return NONE

    def _note_effects(self, node: str, effects: Sequence[Effect], number: int) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._post.sent(node, effect, number)
            elif type(effect) is Later:
                if len(self._timers) >= TIMERS_MAX:
                    self._timers.clear()
                self._timers[node, effect.timer] = number
            elif type(effect) is Append:
                self._appended[node] = number
                self._logs.append(number, node, effect.record)

    def _changes(self, sim: Simulation, node: str) -> list[tuple[str, int | str]]:
        if node == NETWORK:
            return []
        owner = sim.nodes[NodeId(node)]
        before, now = self._states.get(node, {}), state_of(owner.stack, owner.paused)
        if now == before:
            return []
        self._states[node] = now
        gone = [(key, "") for key in before if key not in now]
        return [*((key, value) for key, value in now.items() if before.get(key) != value), *gone]

    def repaired(self, sim: Simulation) -> None:
        """Note that faults of the network have ended."""
        self._fronts.look(sim)

    def left(
        self, sim: Simulation, sender: str, to: str, message: Value, arrivals: list[float]
    ) -> None:
        """Note that a message has left its sender, and what became of it."""
        route = (sender, to, id(message))
        found = self._post.left(sim.now, route, message, arrivals)
        if arrivals:
            return
        front = blocking(sim, sender, to)
        if front is not None and front.kind is Kind.HOLD:
            self._post.held(route, message, found)
        else:
            found.fate = "lost" if front is None else "cut"

    # -- the end --

    def finished(self) -> Recording:
        """Return the complete recording."""
        sim, recording = self._sim, self.recording
        assert sim is not None, "no simulation was made"
        recording.end = sim.now
        self._post.end(sim.now, lambda node: sim.nodes[NodeId(node)].stack is None)
        if recording.first:
            recording.notes.append(
                f"The run is long: the first {recording.first:,} steps, up to "
                f"{recording.begin:.3f} s, were dropped. The state after them is kept."
            )
        if self._error is not None:
            recording.violation = self._violation(sim, self._error)
        return recording

    def _violation(self, sim: Simulation, error: Exception) -> Violation:
        text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        recording, findings = self.recording, findings_of(error)
        last = recording.steps[-1] if recording.steps else None
        at_end = last is None or last.time < sim.now
        if findings:
            text = "\n".join(f"{each.what}: {each.why}" for each in findings)
            blamed = [each for finding in findings for each in finding.operations]
            recording.operations = operations_of(blamed, blamed)
        made = Violation(text, sim.now, NONE if at_end else recording.next - 1)
        explain(recording, made)
        return made


def findings_of(error: Exception) -> list[Finding]:
    """Return the counterexamples of a history check that has failed."""
    evidence = getattr(error, "evidence", None)
    return [each for each in evidence or () if isinstance(each, Finding)]


INPUTS = ("start", "request", "receive", "wake", "down", "synced")


def blocking(sim: Simulation, sender: str, to: str) -> Front | None:
    """Return the front that keeps a message from leaving, if there is one."""
    for front in sim.weather.fronts:
        if front.kind is not Kind.SLOW and front.between(NodeId(sender), NodeId(to)):
            return front
    return None
