"""Assemble the protocol stack of a group member, lowest layer first."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.coordination.protocols.events import LeaderElected, ViewChanged
from oncecast.coordination.protocols.group import Group
from oncecast.coordination.protocols.mutex import LeaseMutex
from oncecast.coordination.protocols.neighborhood import Neighborhood
from oncecast.coordination.protocols.paxos_queue import PaxosQueue
from oncecast.coordination.protocols.synod import Synod
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.overlay.plumtree import Plumtree
from oncecast.overlay.recovery import Recovery
from oncecast.streams.protocols.streams import Streams

ELEMENTS_MAX = 100_000  # maximum number of queue elements that a process keeps for its peers
ELEMENTS_BYTES_MAX = 1 << 28


class Forwarded(Value):
    """An event of another layer, forwarded to the application."""

    event: ViewChanged | LeaderElected


class Forwarder(Protocol):
    """Forwards to the application events that otherwise reach only other layers."""

    name = "forwarder"
    Observed = ViewChanged | LeaderElected

    def observe(self, event: ViewChanged | LeaderElected) -> None:
        self.emit(Forwarded(event))


class Parts(NamedTuple):
    """A stack, and the protocols in it that the node reads."""

    stack: Stack
    group: Group
    election: LeaderElection
    mutex: LeaseMutex
    queue: PaxosQueue
    streams: Streams


# Long, because the wiring of all protocols is in one place.
def assemble(
    me: NodeId,
    rng: Random,
    *,
    peers: Iterable[NodeId],
    acceptors: Iterable[NodeId],
    heartbeat: float,
    suspect_after: float,
    lease: float,
    grace: float,
    incarnation: str = "",
) -> Parts:
    group = Group(me, rng, peers=peers, heartbeat=heartbeat, suspect_after=suspect_after)
    election = LeaderElection(me, rng)
    elements = Recovery(
        me,
        rng,
        incarnation=incarnation,
        compare_every=heartbeat,
        kept_max=ELEMENTS_MAX,
        kept_bytes_max=ELEMENTS_BYTES_MAX,
        snapshot_every=ELEMENTS_MAX,  # a snapshot contains every kept element
    )
    takers = Synod(me, rng, acceptors=acceptors, resend=heartbeat)
    mutex = LeaseMutex(me, rng, lease=lease, grace=grace)
    queue = PaxosQueue(me, rng, elements=elements, takers=takers)
    streams = Streams(me, rng)
    stack = Stack(
        [
            group,
            Neighborhood(me, rng),
            Plumtree(me, rng),
            elements,
            streams,
            election,
            takers,
            mutex,
            queue,
            Forwarder(me, rng),
        ]
    )
    return Parts(stack, group, election, mutex, queue, streams)
