"""A fast path for nodes that no fault disturbs and no checker observes.

Most nodes are in this state most of the time: no fault delays their messages, no journal holds them
back, and no checker looks at their steps. Their messages and timers pass only through the agenda.
The result is the same as on the normal path through `SimulatedNode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.simulator.buckets import WIDTH

if TYPE_CHECKING:
    from oncecast.simulator.simnode import SimulatedNode
    from oncecast.simulator.simulated import Simulation


class FastPath:
    """The port of one node's stack while the node is on the fast path."""

    __slots__ = ("_buckets", "_me", "_node", "_stack", "_weather", "clock", "effects")

    def __init__(self, sim: Simulation, node: SimulatedNode, stack: Stack) -> None:
        self._node, self._me, self._stack = node, node.me, stack
        self._weather, self._buckets = sim.weather, sim.buckets
        self.clock, self.effects = sim, sim.left

    def send(self, to: NodeId, message: Value) -> None:
        weather = self._weather
        try:
            handler = weather.handlers[type(message)][to]
        except KeyError:
            handler = None
        if handler is None or to == self._me:
            self.clock.carry(self._me, to, message)
            return
        draw = weather.latency
        time = self.clock.now + draw()
        try:
            self._buckets[time // WIDTH].append((time, handler, self._me, message))
        except KeyError:  # this bucket is being processed
            self.clock.at(time, handler, self._me, message)

    def later(self, delay: float, timer: Value) -> None:
        wake = self._stack.arm(self.clock.now + delay, timer)
        if wake is not None:
            self.clock.at(wake.at, self._node.wake, wake, self._node.starts)

    def cancel(self, timer: Value) -> None:
        self._stack.disarm(timer)
