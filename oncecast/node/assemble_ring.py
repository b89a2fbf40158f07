"""Assemble the ring stack of a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from oncecast.broker.guard import Checked, PrincipalOf, anonymous, guard_of_process
from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.kernel.protocol import NodeId
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import VERSION
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.plumtree import Plumtree
from oncecast.ring.owner_lookup import OwnerLookup
from oncecast.ring.relay import Relay
from oncecast.ring.roster import Roster
from oncecast.ring.viewer import Viewer
from oncecast.security.access import Access


@dataclass(frozen=True, kw_only=True)
class RingOptions:
    replicas: int = 3  # number of replicas per group
    stabilize_every: float = 1.0
    answer_within: float = 0.5
    shuffle_every: float = 10.0
    # Seconds between heartbeats of multicast trees; all other times are in seconds too.
    heartbeat_every: float = 2.0
    gossip_every: float = 1.0
    gone_after: float = 10.0  # seconds without a renewed card after which a process counts as gone


class RingParts(NamedTuple):
    stack: Stack
    chord: Chord
    scribe: Scribe
    roster: Roster
    owner_lookup: OwnerLookup
    relay: Relay


# Long because all the wiring is in one place.
def assemble_ring(
    me: NodeId,
    rng: Random,
    *,
    group: str,  # this process's group, which determines its position on the ring
    contacts: tuple[NodeId, ...] = (),  # processes of the ring to join; empty to start a new ring
    returns: bool = False,  # whether this process was on the ring before
    epoch_us: int = 0,
    options: RingOptions = RingOptions(),  # noqa: B008  # frozen
    access: Callable[[], Access] | None = None,  # returns users and rules; None to allow everything
    principal_of: PrincipalOf = anonymous,  # returns the principal of a connected client
    report: Callable[[Checked], None] = lambda checked: None,  # writes an entry to the audit log
    # Whether this process does not know the rules of the ring yet.
    unsettled: Callable[[], bool] = lambda: False,
    # Whether to report administrative requests even before the first user is added.
    audits_open: bool = False,
) -> RingParts:
    views = HyParView(me, rng, contacts=contacts, shuffle_every=options.shuffle_every)
    # If all processes of a ring restart, no ring exists that they could join. So a process that
    # returns starts alone and looks for the processes that it knew. Their rings then merge.
    chord = Chord(
        me,
        rng,
        contacts=() if returns else contacts,
        lost=contacts if returns else (),
        ring_name=group,
        stabilize_every=options.stabilize_every,
        answer_within=options.answer_within,
    )
    roster = Roster(
        me,
        rng,
        group=group,
        version=VERSION,
        epoch_us=epoch_us,
        replicas=options.replicas,
        gossip_every=options.gossip_every,
        gone_after=options.gone_after,
    )
    owner_lookup = OwnerLookup(me, rng, roster=roster)
    gossip = Plumtree(me, rng)
    scribe = Scribe(me, rng, heartbeat_every=options.heartbeat_every)
    relay = Relay(
        me,
        rng,
        roster=roster,
        scribe=scribe,
        incarnation=f"{rng.getrandbits(64):x}",
        principal_of=principal_of,
    )
    viewer = Viewer(me, rng, roster=roster, scribe=scribe, relay=relay)
    guard = None if access is None else guard_of_process(access, principal_of, report, unsettled)
    if guard is not None:
        guard.audits_open = audits_open
    layers = (views, gossip, chord, scribe, roster, owner_lookup, relay, viewer)
    stack = Stack(layers, guard=guard)
    return RingParts(stack, chord, scribe, roster, owner_lookup, relay)
