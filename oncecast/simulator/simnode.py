"""A simulated node, which drives its stack, disk and clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nextafter
from random import Random
from typing import TYPE_CHECKING, Any

from oncecast.errors import StorageError
from oncecast.kernel.protocol import (
    Emit,
    NodeId,
    Send,
    Unwatch,
    Value,
    Watch,
)
from oncecast.kernel.stack import Output, Stack
from oncecast.kernel.values import Wake
from oncecast.simulator.disk import SimulatedDisk
from oncecast.simulator.fastpath import FastPath
from oncecast.storage.gate import Gate
from oncecast.storage.journal import Flush, Journal

if TYPE_CHECKING:
    from oncecast.simulator.simulated import Build, Simulation

SEGMENT_BYTES = 16 * 1024  # small, so that short runs also roll, trim and recover many segments
IDLE_AFTER = 0.05  # seconds without new records before the log gets a marker


class Clock:
    """A node's clock. It may run fast, slow or ahead, but never backwards."""

    __slots__ = ("_local", "_true", "rate", "right")

    def __init__(self) -> None:
        self.rate, self._true, self._local = 1.0, 0.0, 0.0
        self.right = True

    def skewed(self, true: float, rate: float, ahead: float) -> Clock:
        """Return a clock that continues this one at another rate."""
        assert rate > 0, "the rate must be positive, or timers would never fire"
        made = Clock()
        made._local, made._true = self.local(true) + max(0.0, ahead), true
        made.rate = rate
        made.right = False
        return made

    def local(self, true: float) -> float:
        return true if self.right else self._local + (true - self._true) * self.rate

    def true(self, local: float) -> float:
        if self.right:
            return local
        # Round up, so that a timer never fires before its time.
        true = self._true + (local - self._local) / self.rate
        while self.local(true) < local:
            true = nextafter(true, inf)
        return true


RIGHT = Clock()  # shared by all nodes with a correct clock


class SimulatedNode:
    """A node that can crash and restart. The disk and clock survive."""

    __slots__ = (
        "_flushing",
        "_missed",
        "build",
        "clock",
        "disk",
        "fast",
        "gate",
        "halted",
        "journal",
        "me",
        "sim",
        "stack",
        "starts",
        "wall_ahead",
    )

    def __init__(self, sim: Simulation, me: NodeId, build: Build, *, durable: bool) -> None:
        self.sim, self.me, self.build = sim, me, build
        self.stack: Stack | None = None
        self.fast: Stack | None = None  # the same stack, while it is on the fast path
        self.starts = 0
        self.clock = RIGHT
        self.wall_ahead = 0.0  # seconds by which the wall clock is ahead
        self.disk = SimulatedDisk(Random(f"{sim.seed}/disk/{me}")) if durable else None
        self.journal: Journal | None = None
        self.halted: StorageError | None = None  # the error that stopped the node
        self.gate: Gate  # only set for a node with a disk
        self._flushing = False
        self._missed: list[tuple[Callable[[Any, Any], None], Any, Any]] | None = None

    @property
    def paused(self) -> bool:
        """Return whether the node is paused. A paused node keeps its inputs for later."""
        return self._missed is not None

    def look(self) -> bool:
        """Enter or leave the fast path as needed. Return whether the node left it."""
        left = self.fast
        self.fast = self.stack if self._undisturbed() else None
        if self.fast is left:
            return False
        if left is not None:
            left.detach()
            self.sim.remove_handlers(self.me)
        if self.fast is not None:
            self.fast.attach(FastPath(self.sim, self, self.fast))
            self.sim.add_handlers(self.me, self.fast)
        return left is not None

    def _undisturbed(self) -> bool:
        calm = self.journal is None and not self.paused and self.clock.right
        guarded = self.stack is not None and self.stack.guard is not None
        return calm and not guarded and self.sim.weather.continuous and not self.sim.observed

    # -- start and crash --

    def begin(self) -> None:
        assert self.stack is None, f"{self.me} is running"
        self.starts += 1
        self.halted = None
        stack = self.build(self.me, self.sim.dice)
        if self.disk is not None:
            self.gate = Gate()
            try:
                self.journal = Journal.open(self.disk, stack, segment_bytes=self.sim.segment_bytes)
            except StorageError as error:
                self._halt(error)
                return
        self.stack = stack
        self.look()
        self._done("start", self.starts, stack.start(self.clock.local(self.sim.now)))

    def crash(self) -> None:
        self.stack = self.journal = None
        self._missed, self._flushing = None, False
        self.sim.look(self)
        if self.disk is not None:
            self.disk.crash()
        self.sim.note(self.me, "crash")

    def _halt(self, error: StorageError) -> None:
        """Stop the node after a disk error, without sending the waiting messages."""
        self.crash()
        self.halted = error
        self.sim.note(self.me, "halt", str(error))
        self.sim.links_break(self.me)

    def pause(self) -> None:
        if self._missed is None:
            self._missed = []
        self.sim.look(self)
        self.sim.note(self.me, "pause")

    def resume(self) -> None:
        missed, self._missed = self._missed, None
        self.look()
        self.sim.note(self.me, "resume")
        for action, first, second in missed or ():
            action(first, second)

    # -- inputs --

    def receive(self, sender: NodeId, message: Value) -> None:
        if self.stack is not None and not self._miss(self.receive, sender, message):
            outputs = self.stack.receive(self.clock.local(self.sim.now), sender, message)
            self._done("receive", (sender, message), outputs)

    def finish(self) -> None:
        """Complete the step of a message that was delivered on the fast path."""
        assert self.fast is not None
        self._act_on(self.fast.finish(self.sim.now))

    def hear_itself(self, message: Value, starts: int) -> None:
        """Receive a message that the node sent to itself, unless it has restarted since."""
        if starts == self.starts and not self._miss(self.hear_itself, message, starts):
            self.receive(self.me, message)

    def request(self, request: Value, _: None) -> None:
        if self.stack is not None and not self._miss(self.request, request, None):
            now = self.clock.local(self.sim.now)
            self._done("request", request, self.stack.request(now, request))

    def wake(self, wake: Wake, starts: int) -> None:
        stack = self.stack
        if stack is None or starts != self.starts:
            return
        if self.fast is not None:
            outputs = stack.wake(self.sim.now, wake)
            if outputs or self.sim.left:
                self._act_on(outputs)
        elif not self._miss(self.wake, wake, starts):
            outputs = stack.wake(self.clock.local(self.sim.now), wake)
            self._done("wake", wake.timer, outputs)

    def hear_down(self, peer: NodeId, starts: int) -> None:
        if self.stack is None or starts != self.starts or self._miss(self.hear_down, peer, starts):
            return
        self._done("down", peer, self.stack.down(self.clock.local(self.sim.now), peer))

    def _miss(self, action: Callable[[Any, Any], None], first: Any, second: Any) -> bool:
        if self._missed is None:
            return False
        self._missed.append((action, first, second))
        return True

    # -- outputs --

    def _done(self, kind: str, subject: Any, outputs: list[Output]) -> None:
        sim = self.sim
        if sim.observed and self.stack is not None:
            sim.observe(self.me, kind, subject, self.stack.effects)
        try:
            self._act_on(outputs)
        except StorageError as error:
            self._halt(error)
        if self.journal is not None and self.journal.waiting and not self._flushing:
            self._flush(self.journal)

    def _act_on(self, outputs: Sequence[Output]) -> None:
        self.sim.left.clear()  # this method handles these effects
        starts = self.starts
        for output in outputs:
            if self.stack is None or self.starts != starts:
                return  # a listener has crashed this node
            self._act(output)

    def _act(self, output: Output) -> None:
        # `match` and isinstance are slow when a struct does not match, so compare the type.
        sim = self.sim
        if type(output) is Send or type(output) is Emit:
            if self.journal is None or self.gate.opens(output, self.journal.synced):
                self._let_go(output)
        elif isinstance(output, Wake):
            at = output.at if self.clock.right else max(sim.now, self.clock.true(output.at))
            sim.at(at, self.wake, output, self.starts)
        elif type(output) is Watch:
            sim.watch(self, output.peer)
        elif type(output) is Unwatch:
            sim.unwatch(self, output.peer)
        elif self.journal is not None:
            self.journal.take(output)

    def _let_go(self, output: Send | Emit) -> None:
        if type(output) is Send:
            self.sim.carry(self.me, output.to, output.message)
        else:
            self.sim.tell(self.me, output.event)

    # -- the disk: write all records, sync once, then send the messages that depend on them --

    def _flush(self, journal: Journal) -> None:
        try:
            flush = journal.begin()
        except StorageError as error:
            self._halt(error)
            return
        self._flushing = True
        self.sim.at(self.sim.now + self.sim.sync_latency(), self._flushed, flush, self.starts)

    def _flushed(self, flush: Flush, starts: int) -> None:
        journal = self.journal
        if journal is None or starts != self.starts or self._miss(self._flushed, flush, starts):
            return
        self._flushing = False
        try:
            flush.run()
            journal.finish(flush)
        except StorageError as error:
            self._halt(error)
            return
        self.sim.note(self.me, "synced", journal.synced)
        self._act_on(self.gate.release(journal.synced))
        if self.journal is not journal:
            return  # a listener has crashed this node
        if journal.waiting and not self._flushing:
            self._flush(journal)
        else:
            self.sim.at(self.sim.now + IDLE_AFTER, self._mark, journal.synced, starts)

    def _mark(self, synced: int, starts: int) -> None:
        """Add a marker to an idle log, as the network runtime does."""
        journal = self.journal
        if journal is None or starts != self.starts or journal.synced != synced or self._flushing:
            return
        try:
            journal.mark()
        except StorageError as error:
            self._halt(error)
