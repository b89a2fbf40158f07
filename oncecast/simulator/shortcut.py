"""The short way: what messages and timers of an undisturbed node take, because most do.

A node is undisturbed while nothing holds back, delays, repeats or looks at what it does. It takes
no part in what happens then: a message goes from protocol to protocol by way of the agenda. The run
is the same as on the long way, through `SimulatedNode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import ShortCut
from oncecast.simulator.agenda import WIDTH

if TYPE_CHECKING:
    from oncecast.simulator.simulated import Simulation


def short_cut(sim: Simulation) -> ShortCut:
    weather, buckets = sim.weather, sim.buckets

    def send(protocol: Protocol, to: NodeId, message: Value, after: int = -1) -> None:
        me = protocol.me
        try:
            door = weather.doors[type(message)][to]
        except KeyError:
            door = None
        if door is None or to == me:
            sim.carry(me, to, message)
            return
        draw = weather.latency
        time = sim.now + draw()
        try:
            buckets[time // WIDTH].append((time, door, me, message))
        except KeyError:  # the bucket that is being worked off
            sim.at(time, door, me, message)

    def later(protocol: Protocol, delay: float, timer: Value) -> None:
        node = sim.nodes[protocol.me]
        wake = node.stack.arm(sim.now + delay, timer)  # type: ignore[union-attr]
        if wake is not None:
            sim.at(wake.at, node.wake, wake, node.life)

    return ShortCut(send, later, sim, sim.left)
