"""Assemble the protocol stack of a replica."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from random import Random
from typing import NamedTuple

from oncecast.broker.access_viewer import AccessViewer
from oncecast.broker.accounts import Budget
from oncecast.broker.broker_viewer import BrokerViewer
from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.gateway import Gateway
from oncecast.broker.governing import Governor
from oncecast.broker.guard import Guard, PrincipalOf, anonymous, guard_of_replica
from oncecast.broker.scanning import Scanner
from oncecast.broker.service import Service
from oncecast.broker.space import SpaceKeeper
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.replication.options import GroupOptions
from oncecast.replication.paxos import Paxos
from oncecast.ring.mover import Mover
from oncecast.ring.pusher import Pusher
from oncecast.ring.resolver import Resolver
from oncecast.wire import levels
from oncecast.wire.limits import LIMITS, Limits

# Read from the metadata: the root package imports the client, which is a layer above.
VERSION = metadata.version("oncecast")


class RingMembership(NamedTuple):
    """A replica's membership in a ring of groups."""

    group: str
    process: NodeId  # id of the ring stack in the group's process
    first: bool = False  # whether the group starts a new ring


class Parts(NamedTuple):
    """A stack and some of its protocols."""

    stack: Stack
    guard: Guard
    service: Service
    gateway: Gateway
    governor: Governor
    mover: Mover | None = None  # None outside a ring


# Long because all the wiring is in one place.
def assemble(
    me: NodeId,
    rng: Random,
    *,
    epoch_us: int = 0,
    wall: Callable[[], int] | None = None,
    free_disk_bytes: Callable[[], int] | None = None,
    limits: Limits = LIMITS,
    level: int = levels.KNOWN,  # highest feature level that this node supports
    snapshot_bytes: int = 64 << 20,
    window_bytes: int = 8 << 20,
    budget: Budget = Budget(),  # noqa: B008  # frozen
    options: GroupOptions = GroupOptions(),  # noqa: B008  # frozen
    contacts: tuple[NodeId, ...] = (),  # replicas of the group to join; empty to start a new group
    membership: RingMembership | None = None,
    principal_of: PrincipalOf = anonymous,  # returns the principal of a connected client
    kafka: Callable[[], str] | None = None,  # returns the node's address for Kafka clients
) -> Parts:
    group = Paxos(me, rng, options=options, contacts=contacts, level=level)
    service = Service(
        me,
        rng,
        group=group,
        epoch_us=epoch_us,
        wall=wall,
        limits=limits,
        level=level,
        snapshot_bytes=snapshot_bytes,
    )
    group.attach(service)
    gateway = Gateway(
        me,
        rng,
        service=service,
        version=VERSION,
        window_bytes=window_bytes,
        budget=budget,
        free_disk_bytes=free_disk_bytes,
        principal_of=principal_of,
    )
    dispatcher = Dispatcher(
        me, rng, service=service, window_bytes=window_bytes, principal_of=principal_of
    )
    governor = Governor(me, rng, group=group.status)
    scanner = Scanner(me, rng, service=service, principal_of=principal_of)
    viewer = AccessViewer(me, rng, service=service)
    brokers = BrokerViewer(me, rng, service=service, kafka=kafka)
    space = SpaceKeeper(me, rng, service=service, gateway=gateway)
    layers: list[Protocol] = [
        *(group, service, gateway, dispatcher),
        *(scanner, governor, viewer, space, brokers),
    ]
    mover = None
    if membership is not None:
        mover = Mover(
            me,
            rng,
            service=service,
            process=membership.process,
            group=membership.group,
            first=membership.first,
            replicas=options.size,
        )
        layers += [mover, Pusher(me, rng, service=service, process=membership.process)]
        layers += [Resolver(me, rng, service=service, process=membership.process)]
    on_ring = membership is not None
    guard = guard_of_replica(service, principal_of, on_ring=on_ring)

    def check(sender: NodeId, message: Value) -> tuple[Value, ...] | None:
        # Guard.__call__, inlined, so that messages stay cheap in a cluster without users.
        access = service.machine.registry.access
        if access.open and not guard.audits_open and not (on_ring and guard.unsettled()):
            return None
        return guard.judge(access, sender, message)

    return Parts(Stack(layers, guard=check), guard, service, gateway, governor, mover)
