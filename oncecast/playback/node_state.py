"""The state of a node that the page shows, read from the protocols of its stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oncecast.coordination.protocols.election import LeaderElection
from oncecast.dht.chord import Chord
from oncecast.dht.scribe import Scribe
from oncecast.kernel.protocol import Protocol
from oncecast.kernel.stack import Stack
from oncecast.overlay.hyparview import HyParView
from oncecast.overlay.plumtree import Plumtree
from oncecast.playback.recording import State
from oncecast.playback.wording import ballot_text
from oncecast.replication.paxos import Paxos
from oncecast.replication.status import Status

States = dict[str, State]
Reader = Callable[[Any, States], None]

UP, PAUSED, ROLE, BALLOT, LEADER = "up", "paused", "role", "ballot", "leader"
APPLIED, CHOSEN, GROUP = "applied", "chosen", "group"
POSITION, SUCCESSOR, PREDECESSOR = "position", "successor", "predecessor"
ACTIVE, EAGER, TREE = "active", "eager", "tree "
ID_BYTES = 4  # enough to draw a position on the ring


def state_of(stack: Stack | None, paused: bool) -> States:
    """Return the state of a node; a node that is down has only `up`."""
    if stack is None:
        return {UP: 0}
    found: States = {UP: 1, PAUSED: int(paused)}
    for protocol in stack.protocols:
        reader = READERS.get(type(protocol))
        if reader is not None:
            reader(protocol, found)
    return found


def replica_of(stack: Stack | None) -> Status | None:
    """Return the status of the replica in a stack, or None if it has none."""
    for protocol in stack.protocols if stack is not None else ():
        if isinstance(protocol, Paxos):
            return protocol.status
    return None


def read_paxos(paxos: Paxos, found: States) -> None:
    status, term = paxos.status, paxos.status.term
    if term is not None:
        found[ROLE] = "leader" if term.acting else "candidate"
    else:
        found[ROLE] = "follower" if status.is_member else "spare"
    found[BALLOT] = ballot_text(status.log.promised)
    found[LEADER] = status.me if term is not None and term.acting else status.leader
    found[APPLIED] = status.applied
    found[CHOSEN] = max(status.applied, status.log.certain)
    found[GROUP] = f"{status.config.group:x}" if status.config.group else ""


def read_chord(chord: Chord, found: States) -> None:
    for member in chord.status.members:
        found[POSITION] = int.from_bytes(member.position.id[:ID_BYTES])
        if member.joined:
            found[SUCCESSOR] = member.successors[0].node if member.successors else ""
            before = member.predecessor
            found[PREDECESSOR] = before.node if before is not None else ""
        return  # the page shows the first position of a node


def read_scribe(scribe: Scribe, found: States) -> None:
    """Note the parent in each tree, `root` for its root, and a `+` if the node has joined."""
    for topic, tree in scribe.trees.items():
        mark = "+" if getattr(tree, "joined", False) else "-"
        found[TREE + topic] = mark + ("*" if tree.root else tree.parent or "")


def read_hyparview(hyparview: HyParView, found: States) -> None:
    found[ACTIVE] = listed(hyparview.active)


def read_plumtree(plumtree: Plumtree, found: States) -> None:
    found[EAGER] = listed(plumtree.eager)


def read_election(election: LeaderElection, found: States) -> None:
    found[LEADER] = election.leader
    found[ROLE] = "leader" if election.leader == election.me else "follower"


def listed(nodes: Iterable[str]) -> str:
    return " ".join(sorted(nodes))


READERS: dict[type[Protocol], Reader] = {
    Paxos: read_paxos,
    Chord: read_chord,
    Scribe: read_scribe,
    HyParView: read_hyparview,
    Plumtree: read_plumtree,
    LeaderElection: read_election,
}
