"""Transactions across the groups of a ring, while clients and leaders crash and topics move.

Copiers read input topics and put copies to output topics, in one transaction each. All topics are
in groups of their own, as far as possible. Processes and copiers crash at drawn moments of the two
phases, among the other faults of a storm. At the end, each input message has exactly one copy in
each output, all from the same transaction. No copy of an aborted transaction is visible, and all
inputs are acknowledged (TXN-2).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from oncecast.kernel.protocol import NodeId, Send, Value
from oncecast.lab.scenarios.paxos_clients import Client, Publisher, Subscriber
from oncecast.lab.scenarios.ring import come_and_go, settle
from oncecast.lab.scenarios.ring_checks import Owners
from oncecast.lab.scenarios.ring_copiers import (
    SUBSCRIPTION,
    Attempts,
    Copier,
    WorkingCopier,
    parts_of,
)
from oncecast.lab.scenarios.ring_draw import RingDraw
from oncecast.lab.scenarios.ring_draw import draw as draw_ring
from oncecast.lab.scenarios.ring_storm import Mend, Trouble
from oncecast.lab.scenarios.ring_world import Process, RingWorld
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.ring.resolver import AskOutcomes, AskSettled, Outcomes, Settled
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire.frames import Answer, Call
from oncecast.wire.results import TransactionEnded, TransactionPrepared
from oncecast.wire.ring_transactions import (
    HOLD_US,
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
)

PUTS = 8  # number of messages per input
CONTACTS = 3
OUTPUTS = ("out-a", "out-b", "out-c")
COMMANDS = (PrepareTransaction, DecideTransaction, ResolveTransaction)
RESOLVING = (AskOutcomes, Outcomes, AskSettled, Settled)
# The moments at which a process or a client may crash.
MOMENTS = tuple(
    [f"{who} {kind.__name__}" for kind in COMMANDS for who in ("client sends", "node receives")]
    + [f"{who} answer" for who in ("node sends", "client receives")]
    + [f"node sends {kind.__name__}" for kind in RESOLVING]
    + [f"node receives {kind.__name__}" for kind in RESOLVING]
)


class Storm(Trouble):
    """The faults of the ring, without lost disks: a crash at a drawn moment may coincide."""

    def _wipe(self, victim: Process) -> Mend | None:
        return None


def draw(seed: int, nodes: int) -> RingDraw:
    drawn = draw_ring(seed, nodes)
    rng = Random(f"{seed}/{nodes}/ring-transactions")
    habits = replace(drawn.habits, puts=PUTS, crashes=rng.choice((0, 1, 2)), age=0.0)
    return replace(
        drawn,
        habits=habits,
        topics=len(OUTPUTS) * 4,  # how much there is to do, for the patience of the run
        seconds=min(drawn.seconds, 8.0),
        wall=min(drawn.wall, 0.5),
        at_once=rng.choice((0, 0, 1, 1, 2)),
        early=False,
    )


def quiet(drawn: RingDraw) -> RingDraw:
    """Return the settings without random faults, moves and crashes."""
    habits = replace(drawn.habits, crashes=0)
    return replace(drawn, habits=habits, seconds=4.0, at_once=0, joins=0, leaves=0)


def play(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, draw(sim.seed, nodes))


def play_drawn(sim: Simulation, drawn: RingDraw) -> Figures:
    sim.keepalive = drawn.keepalive
    sim.sync_latency = drawn.disk.bind(sim.rng)
    sim.segment_bytes = drawn.segment_bytes
    sim.weather.set(latency=drawn.network, fifo=drawn.fifo)
    world = RingWorld(sim, drawn)
    sim.listener = world.hear
    world.found(drawn.processes)
    settle(sim, world, lambda: True)
    begun = sim.now
    copies = Copies(sim, world)
    owners = Owners(sim, world, copies.topics)
    crashes = Crashes(sim, world, copies)
    sim.check(copies, owners, crashes)
    copies.begin(begun + drawn.seconds)
    crashes.arm()
    trouble = Storm(sim, world)
    trouble.begin()
    come_and_go(sim, world, copies.topics)
    sim.run(until=begun + drawn.seconds)
    trouble.calm()
    crashes.over = True
    calm = sim.now
    settle(sim, world, lambda: copies.done)
    return {
        "strikes": trouble.strikes,
        "crashes": crashes.hit,
        "moves": owners.moves,
        "attempts": copies.attempts.made,
        "committed": len(copies.attempts.committed),
        "aborted": len(copies.attempts.aborted),
        "calm_after": round(sim.now - calm, 1),
    }


class Copies(Checker):
    """The clients, and the check of the outputs."""

    def __init__(self, sim: Simulation, world: RingWorld) -> None:
        self._sim, self._world = sim, world
        self.attempts = Attempts()
        rng = sim.rng
        self.inputs = [f"in-{number}" for number in range(rng.randint(1, 2))]
        self.outputs = list(OUTPUTS[: rng.randint(1, 3)])
        self.copiers: list[Copier] = []
        self.readers: dict[str, Subscriber] = {}
        self._clients: dict[str, Client] = {}  # by the constant part of the client's id

    @property
    def topics(self) -> list[str]:
        return [*self.inputs, *self.outputs]

    def begin(self, until: float) -> None:
        habits = self._world.draw.habits
        for topic in self.outputs:
            facts = (self._sim, f"reader-{topic}", self._contacts())
            reader = self.readers[topic] = Subscriber(*facts, crashes=False, habits=habits)
            self._introduce(reader, topic)
        for topic in self.inputs:
            self._copy(topic, until)

    def _copy(self, topic: str, until: float) -> None:
        sim, habits, rng = self._sim, self._world.draw.habits, self._sim.rng
        shared = rng.random() < 0.4
        kind, mine = (WorkingCopier if shared else Copier), []
        for number in range(2 if shared or rng.random() < 0.3 else 1):
            copier = kind(
                sim,
                f"copier-{topic}-{number}",
                self._contacts(),
                habits=habits,
                source=f"{topic}-{number if shared else 0}",
                outputs=self.outputs,
                attempts=self.attempts,
            )
            self._introduce(copier, topic)
            mine.append(copier)
            for _ in range(habits.crashes):
                sim.call(rng.uniform(0.0, until - sim.now), lambda c=copier: self.bounce(c))  # type: ignore[misc]
        self.copiers += mine
        if not shared and len(mine) == 2:  # the second one takes over later
            mine[1].stopped = True
            sim.call(rng.uniform(0.0, until - sim.now), lambda: take_over(*mine))
        pause = 0.6 * (until - sim.now) / PUTS
        writer = Publisher(
            sim,
            f"writer-{topic}",
            self._contacts(),
            crashes=False,
            readers=[mine[0], *self.readers.values()],  # type: ignore[list-item]
            pause=pause,
            habits=habits,
        )
        self._introduce(writer, topic)

    def _introduce(self, client: Client, topic: str) -> None:
        client.topic = topic
        self._clients[client.me] = client

    def _contacts(self) -> list[NodeId]:
        contacts = list(self._world.processes)
        self._sim.rng.shuffle(contacts)
        return contacts[:CONTACTS]

    def bounce(self, client: Client) -> None:
        if self._sim.nodes[client.me].stack is not None:
            client.return_as_another(self._sim.rng.uniform(0.0, 1.0))

    def client(self, node: NodeId) -> Client | None:
        return self._clients.get(node.partition("#")[0])

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self.client(node)
        if client is not None:  # deferred, because the step that emits the event has not ended
            client.soon(0.0, lambda: client.hear(event))

    # -- the end --

    @property
    def done(self) -> bool:
        """Return whether all messages are copied, and nothing is left of the transactions."""
        total = PUTS * len(self.inputs)
        copied = all(len(reader.seen) >= total for reader in self.readers.values())
        return copied and not any(self._left())

    def _left(self) -> list[str]:
        """Return what is left of transactions in the newest state of each group."""
        newest: dict[str, tuple[int, list[str]]] = {}
        for process in self._world.processes.values():
            for group, parts in process.replicas.items():
                registry = parts.service.machine.registry
                if registry.last_slot >= newest.get(group, (-1,))[0]:
                    newest[group] = registry.last_slot, list(registry.staging.unsettled)
        return [key for _, keys in newest.values() for key in keys]

    def finish(self, sim: Simulation) -> None:
        attempts: dict[tuple[str, int], dict[str, list[str]]] = {}
        for output, reader in self.readers.items():
            for value in reader.seen:
                topic, offset, attempt = parts_of(value)
                found = attempts.setdefault((topic, offset), {})
                found.setdefault(output, []).append(attempt)
                if attempt in self.attempts.aborted:
                    raise Violation(f"{output} has a message of an aborted transaction: {value!r}")
        expected = {(topic, offset) for topic in self.inputs for offset in range(PUTS)}
        if attempts.keys() != expected:
            raise Violation(f"these messages were not copied: {expected - attempts.keys()}")
        visible = set()
        for where, outputs in attempts.items():
            names = {name for found in outputs.values() for name in found}
            if len(names) != 1 or len(outputs) != len(self.outputs):
                raise Violation(
                    f"{where} was not copied to every output by a single transaction: {outputs}"
                )
            if any(len(found) != 1 for found in outputs.values()):
                raise Violation(f"{where} was copied twice: {outputs}")
            visible |= names
        lost = self.attempts.committed.keys() - visible
        if lost:
            raise Violation(f"committed transactions are not visible: {sorted(lost)}")
        self._check_acknowledged()

    def _check_acknowledged(self) -> None:
        for topic in self.inputs:
            cursors = [
                found.subscriptions[SUBSCRIPTION].cursor
                for process in self._world.processes.values()
                for parts in process.replicas.values()
                if (found := parts.service.machine.registry.topics.get(topic)) is not None
            ]
            if max(cursors, default=0) != PUTS:
                raise Violation(f"{topic} is acknowledged up to {cursors}, not {PUTS}")


def take_over(before: Copier, copier: Copier) -> None:
    """Start another copier. The one before it continues until it is fenced or crashes."""
    before.stopped, copier.stopped = True, False
    copier.soon(0.0, copier.begin)


class Crashes(Checker):
    """Crashes a process or a copier at drawn moments of the two phases."""

    def __init__(self, sim: Simulation, world: RingWorld, copies: Copies) -> None:
        self._sim, self._world, self._copies = sim, world, copies
        self._armed: dict[str, int] = {}  # how often each moment is still let pass
        self.over = False
        self.hit: dict[str, int] = {}

    def arm(self) -> None:
        rng = self._sim.rng
        for moment in rng.sample(MOMENTS, rng.randint(0, 4)):
            self._armed[moment] = rng.randrange(4)

    def after(self, sim: Simulation, step: Step) -> None:
        if not self._armed or self.over:
            return
        client = self._copies.client(step.node) is not None
        for moment in moments_of(step, client=client):
            left = self._armed.get(moment)
            if left is None:
                continue
            if left:
                self._armed[moment] = left - 1
                continue
            del self._armed[moment]
            self.hit[moment] = self.hit.get(moment, 0) + 1
            sim.call(0.0, self._crash(step.node))
            return

    def _crash(self, node: NodeId) -> Callable[[], None]:
        client = self._copies.client(node)
        if client is not None:
            return lambda: self._copies.bounce(client) if client.me == node else None
        process = self._world.processes[NodeId(node.partition("/")[0])]

        def crash() -> None:
            if process.alive:
                process.crash()
                self._sim.call(self._sim.rng.uniform(0.1, 2.0), process.restart)

        return crash


def moments_of(step: Step, *, client: bool) -> list[str]:
    """Return the moments of transactions that a step is."""
    who, found = "client" if client else "node", []
    if step.kind == "receive" and (name := name_of(step.subject[1])):
        found.append(f"{who} receives {name}")
    sent = [name_of(each.message) for each in step.effects if type(each) is Send]
    return found + [f"{who} sends {name}" for name in sent if name]


def name_of(message: Value) -> str:
    if isinstance(message, Call) and isinstance(message.command, COMMANDS):
        return type(message.command).__name__
    if isinstance(message, Answer):
        ends = isinstance(message.result, TransactionEnded | TransactionPrepared)
        return "answer" if ends else ""
    return type(message).__name__ if isinstance(message, RESOLVING) else ""


assert HOLD_US <= 10_000_000, "the patience of a run must include the time limit"

RING_TRANSACTIONS = Scenario(
    "ring-transactions",
    "transactions across the groups of a ring, with crashes at each step of both phases",
    5,
    play,
    nodes_min=3,
    draw=draw,
)
