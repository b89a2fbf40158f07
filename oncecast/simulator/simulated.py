"""A deterministic simulation of many nodes in one thread. A seed always gives the same run.

The simulator drives a stack exactly as the network runtime does: step, write, sync, send. It has a
faulty network, disks that lose unsynced writes, and clocks that drift. Faults are methods: crash,
restart, bounce, pause, resume, skew, set_wall_clock; partition, isolate, hold, slow, repair. A
node's disk has its own faults: fill, fail_sync, flip, cut, wipe, mend.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import Effect, NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.simulator.agenda import Agenda
from oncecast.simulator.buckets import Action, Event
from oncecast.simulator.checkers import Checker
from oncecast.simulator.disk import SimulatedDisk
from oncecast.simulator.latency import Latency, Uniform
from oncecast.simulator.simnode import SEGMENT_BYTES, SimulatedNode
from oncecast.simulator.step import Step
from oncecast.simulator.trace import Trace
from oncecast.simulator.weather import LAN, Front, Handlers, Kind, Weather

Build = Callable[[NodeId, Random], Stack]
Listener = Callable[[NodeId, Value], None]
P = TypeVar("P", bound=Protocol)

BEGIN = 1_735_689_600.0  # wall-clock time at the start of a run, in seconds since 1970
SSD = Uniform(0.0002, 0.002)


@mypyc_attr(allow_interpreted_subclasses=True)
class Simulation(Agenda):
    """A simulated cluster. `listener` receives the events for the nodes' applications."""

    def __init__(
        self,
        seed: int,
        *,
        latency: Latency = LAN,
        loss: float = 0.0,
        duplication: float = 0.0,
        fifo: bool = False,
        sync_latency: Latency = SSD,
        keepalive: float = 3.0,
        segment_bytes: int = SEGMENT_BYTES,
        trace: Trace | None = None,
        listener: Listener | None = None,
    ) -> None:
        super().__init__()
        self.seed, self.keepalive, self.segment_bytes = seed, keepalive, segment_bytes
        self.rng = Random(f"{seed}/world")  # random numbers for scenarios
        # The nodes share one generator: thousands would not fit into the processor's cache.
        self.dice = Random(f"{seed}/nodes")
        self.handlers: Handlers = {}  # handlers for nodes on the fast path
        self.weather = Weather(
            Random(f"{seed}/weather"),
            self.handlers,
            latency=latency,
            loss=loss,
            duplication=duplication,
            fifo=fifo,
        )
        self.sync_latency = sync_latency.bind(Random(f"{seed}/disks"))
        self.trace, self.listener = trace, listener
        self.checkers: list[Checker] = []
        self.observed = trace is not None
        self.nodes: dict[NodeId, SimulatedNode] = {}
        # The watchers of each node, with the number of times that the watcher had started by then.
        self._watchers: dict[NodeId, dict[NodeId, int]] = {}

    # -- nodes --

    def add(
        self,
        node: NodeId,
        build: Build,
        *,
        durable: bool = False,
        disk: SimulatedDisk | None = None,  # the disk of a removed node
    ) -> SimulatedNode:
        """Add, start and return a node. A durable node has a disk that survives crashes."""
        assert node not in self.nodes, f"{node} already exists"
        made = self.nodes[node] = SimulatedNode(self, node, build, durable=durable)
        made.disk = disk or made.disk
        made.begin()
        return made

    def ask(self, node: NodeId, request: Value) -> None:
        """Make a request to `node` right after the current step."""
        self.at(self.now, self.nodes[node].request, request, None)

    def alive(self) -> list[NodeId]:
        return [node.me for node in self.nodes.values() if node.stack is not None]

    def protocol(self, node: NodeId, kind: type[P]) -> P:
        """Return a running node's protocol of type `kind`."""
        stack = self.nodes[node].stack
        assert stack is not None, f"{node} is down"
        return next(each for each in stack.protocols if isinstance(each, kind))

    def call(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay`."""
        self.at(self.now + delay, _call, action, None)

    def run(self, until: float) -> None:
        # Node objects are long-lived and free of cycles, so garbage collection is useless.
        enabled = gc.isenabled()
        gc.disable()
        try:
            super().run(until)
        finally:
            if enabled:
                gc.enable()

    def check(self, *checkers: Checker) -> None:
        """Add checkers, which check every step from now on."""
        self.checkers += checkers
        self.observed = True
        self.look(*self.nodes.values())

    def finish(self) -> None:
        for checker in self.checkers:
            checker.finish(self)

    # -- the fast path --

    def add_handlers(self, node: NodeId, stack: Stack) -> None:
        """Deliver messages for `node` directly to its protocols."""
        handlers: list[Action] = [protocol.receive for protocol in stack.protocols]
        for kind, layer in stack.wiring.receiver.items():
            self.handlers.setdefault(kind, {})[node] = handlers[layer]

    def remove_handlers(self, node: NodeId) -> None:
        for handlers in self.handlers.values():
            handlers.pop(node, None)

    def look(self, *nodes: SimulatedNode) -> None:
        """Check whether nodes whose state has changed may use the fast path.

        If a node leaves the fast path, the messages in flight to it leave it too.
        """
        if [node for node in nodes if node.look()]:
            self.revise_all()

    def revise(self, bucket: list[Event]) -> None:
        """Reroute messages whose handler was removed."""
        for index, (time, action, sender, message) in enumerate(bucket):
            protocol = getattr(action, "__self__", None)
            if isinstance(protocol, Protocol):
                handler = self.handlers[type(message)].get(protocol.me)
                if handler is not action:
                    bucket[index] = (time, self.nodes[protocol.me].receive, sender, message)

    def settle(self, action: Any) -> None:
        """Complete the step of a handler that has effects other than messages and timers."""
        self.nodes[action.__self__.me].finish()

    # -- outputs of nodes --

    def carry(self, sender: NodeId, to: NodeId, message: Value) -> None:
        node = self.nodes.get(to)
        if node is None:
            return  # the simulation has no such node
        if sender == to:
            self.at(self.now, node.hear_itself, message, node.starts)
            return
        weather = self.weather
        if weather.fair:
            self.at(self.now + weather.latency(), node.receive, sender, message)
        else:
            for time in weather.arrivals(self.now, sender, to, message):
                self.at(time, node.receive, sender, message)

    def tell(self, node: NodeId, event: Value) -> None:
        """Deliver an event to the application of `node`."""
        if self.listener is not None:
            self.listener(node, event)
        for checker in self.checkers:
            checker.heard(self, node, event)

    def observe(self, node: NodeId, kind: str, subject: Any, effects: Sequence[Effect]) -> None:
        step = Step(self.now, node, kind, subject, effects)
        if self.trace is not None:
            self.trace.add(step)
        for checker in self.checkers:
            checker.after(self, step)

    def note(self, node: NodeId, verb: str, subject: Any = None) -> None:
        """Add a fault to the trace."""
        if self.observed:
            self.observe(node, verb, subject, ())

    # -- links: watchers learn of a crash immediately, and of silence after the keepalive --

    def watch(self, watcher: SimulatedNode, peer: NodeId) -> None:
        self._watchers.setdefault(peer, {})[watcher.me] = watcher.starts
        node = self.nodes.get(peer)
        if node is None or node.stack is None:
            self._lose(peer, watcher.me, self.weather.latency())
        elif node.paused or self._parted(watcher.me, peer):
            self.at(self.now + self.keepalive, self._check_link, watcher.me, peer)

    def unwatch(self, watcher: SimulatedNode, peer: NodeId) -> None:
        self._watchers.get(peer, {}).pop(watcher.me, None)

    def _parted(self, one: NodeId, other: NodeId) -> bool:
        return self.weather.parted(one, other) or self.weather.parted(other, one)

    def _check_link(self, watcher: NodeId, peer: NodeId) -> None:
        if watcher not in self._watchers.get(peer, {}):
            return
        if self.nodes[peer].paused or self._parted(watcher, peer):
            self._lose(peer, watcher, 0.0)

    def _lose(self, peer: NodeId, watcher: NodeId, delay: float) -> None:
        starts = self._watchers[peer].pop(watcher)
        self.at(self.now + delay, self.nodes[watcher].hear_down, peer, starts)

    def _check_links(self, suspects: Callable[[NodeId, NodeId], bool]) -> None:
        for peer, watchers in self._watchers.items():
            for watcher in watchers:
                if suspects(watcher, peer):
                    self.at(self.now + self.keepalive, self._check_link, watcher, peer)

    # -- node faults --

    def crash(self, node: NodeId) -> None:
        """Simulate a power loss: memory and unsynced writes are lost."""
        self.nodes[node].crash()
        self.links_break(node)

    def links_break(self, node: NodeId) -> None:
        for watcher in list(self._watchers.get(node, {})):
            self._lose(node, watcher, self.weather.latency())

    def restart(self, node: NodeId) -> None:
        self.nodes[node].begin()

    def bounce(self, node: NodeId, away: float = 0.0) -> None:
        self.crash(node)
        self.call(away, lambda: self.restart(node))

    def pause(self, node: NodeId) -> None:
        """Stop the node as with SIGSTOP. Its inputs wait until `resume`."""
        self.nodes[node].pause()
        self._check_links(lambda watcher, peer: peer == node)

    def resume(self, node: NodeId) -> None:
        self.nodes[node].resume()

    def skew(self, node: NodeId, *, rate: float = 1.0, ahead: float = 0.0) -> None:
        """Move the node's clock ahead by `ahead`, and run it at `rate` from now on."""
        self.note(node, "skew", (rate, ahead))
        owner = self.nodes[node]
        owner.clock = owner.clock.skewed(self.now, rate, ahead)
        self.look(owner)

    def set_wall_clock(self, node: NodeId, *, ahead: float) -> None:
        """Shift the node's wall clock by `ahead` seconds, which may be negative."""
        self.note(node, "set_wall_clock", ahead)
        self.nodes[node].wall_ahead = ahead

    def wall_us(self, node: NodeId | None = None) -> int:
        """Return a node's wall clock, or the correct time, in microseconds since 1970."""
        ahead = 0.0 if node is None else self.nodes[node].wall_ahead
        return int((BEGIN + self.now + ahead) * 1e6)

    # -- network faults --

    def partition(
        self, one: Iterable[NodeId], other: Iterable[NodeId] = (), *, one_way: bool = False
    ) -> list[Front]:
        """Drop messages between two sides. The other side defaults to all other nodes."""
        fronts = self._front(Kind.PARTITION, one, other, one_way)
        self._check_links(self._parted)
        return fronts

    def isolate(self, node: NodeId) -> list[Front]:
        return self.partition([node])

    def hold(
        self, one: Iterable[NodeId], other: Iterable[NodeId] = (), *, one_way: bool = False
    ) -> list[Front]:
        """Hold messages between two sides until `repair`."""
        fronts = self._front(Kind.HOLD, one, other, one_way)
        self._check_links(self._parted)
        return fronts

    def slow(
        self,
        one: Iterable[NodeId],
        other: Iterable[NodeId] = (),
        *,
        extra: float,
        one_way: bool = False,
    ) -> list[Front]:
        return self._front(Kind.SLOW, one, other, one_way, extra)

    def repair(self, fronts: Iterable[Front] | None = None) -> None:
        """End these faults, or all faults. Send the held messages now, in order."""
        ended = list(self.weather.fronts if fronts is None else fronts)
        self.note(NodeId("*"), "repair", [front.kind.value for front in ended])
        for sender, to, message in self.weather.lift(ended):
            self.carry(sender, to, message)

    def _front(
        self,
        kind: Kind,
        one: Iterable[NodeId],
        other: Iterable[NodeId],
        one_way: bool,
        extra: float = 0.0,
    ) -> list[Front]:
        one, other = sorted(one), sorted(other)
        fronts = [Front(kind, one, other, extra)]
        if not one_way:
            fronts.append(Front(kind, other, one, extra))
        self.weather.add(*fronts)
        self.note(NodeId("*"), kind.value, (one, other or "everybody else", one_way))
        return fronts


def _call(action: Callable[[], None], _: None) -> None:
    action()
