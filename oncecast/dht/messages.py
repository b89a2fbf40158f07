"""Messages between the members of a Chord ring."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from oncecast.dht.identifiers import BYTES, NODE_LENGTH_MAX, Key, Position
from oncecast.kernel.protocol import NodeId, Value

POSITIONS_MAX = 64  # maximum positions per message; successor lists are shorter
AVOID_MAX = 64
NUMBER_MAX = 2**62
# Call numbers start at random, so that a late answer from before a restart matches no call.
FIRST_NUMBER_BITS = 60


class Probe(Value, tag="Probe"):
    """Ask the member at `at` for its predecessor and successors."""

    at: Key
    number: int


class Report(Value, tag="Report"):
    """Answer a Probe with the sender's neighbours."""

    number: int
    predecessor: Position | None
    successors: tuple[Position, ...]


class Notify(Value, tag="Notify"):
    """Tell the member at `at` that `position` may be its predecessor."""

    at: Key
    position: Position


class Hurry(Value, tag="Hurry"):
    """Ask the member at `at` to stabilize now, because a new member has joined right after it."""

    at: Key


class Locate(Value, tag="Locate"):
    """Ask for the member before `key`. The nodes in `avoid` did not answer the sender.

    With `itself`, only that member may answer, not one that merely lists it as a successor. That
    member also stabilizes, because the sender depends on its list.
    """

    key: Key
    number: int
    avoid: tuple[NodeId, ...]
    itself: bool


class Nearer(Value, tag="Nearer"):
    """Answer with positions nearer to the key, the nearest first."""

    number: int
    positions: tuple[Position, ...]


class Near(Value, tag="Near"):
    """Answer with the member before the key and its successors."""

    number: int
    position: Position
    successors: tuple[Position, ...]


class Confirm(Value, tag="Confirm"):
    """Ask the member at `at` whether it owns `key`. The member at `via` names it as successor."""

    key: Key
    at: Key
    number: int
    avoid: tuple[NodeId, ...]
    via: Key


class Found(Value, tag="Found"):
    """Answer that the sender owns the key, or at least knows no better owner."""

    number: int
    certain: bool = True


class Unsure(Value, tag="Unsure"):
    """Ask the receiver to try again later: the sender's neighbours are not settled yet."""

    number: int


class Hop(Value, tag="Hop"):
    """Carry a payload towards the owner of `key`.

    The receiver is the owner unless another member lies between `via` and the receiver.
    """

    key: Key
    payload: bytes
    number: int
    via: Key


class Hopped(Value, tag="Hopped"):
    """Acknowledge a Hop."""

    number: int


Answer = Report | Nearer | Near | Found | Unsure | Hopped
ChordMessage = (
    Probe
    | Report
    | Notify
    | Hurry
    | Locate
    | Nearer
    | Near
    | Confirm
    | Found
    | Unsure
    | Hop
    | Hopped
)


def possible(message: ChordMessage) -> bool:
    """Return whether an honest member could have sent `message`."""
    match message:
        case Notify(at, position):
            return len(at) == BYTES and position.possible
        case Hurry(at):
            return len(at) == BYTES
        case Probe(at, number):
            fits = len(at) == BYTES
        case Report(number, predecessor, successors):
            fits = (predecessor is None or predecessor.possible) and all_possible(successors)
        case Locate(key, number, avoid, _):
            fits = len(key) == BYTES and names_possible(avoid)
        case Nearer(number, positions):
            fits = all_possible(positions)
        case Near(number, position, successors):
            fits = position.possible and all_possible(successors)
        case Confirm(key, at, number, avoid, via):
            fits = len(key) == len(at) == len(via) == BYTES and names_possible(avoid)
        case Hop(key, _, number, via):
            fits = len(key) == len(via) == BYTES
        case Found(number, _) | Unsure(number) | Hopped(number):
            fits = True
        case _:
            assert_never(message)
    return fits and 0 <= number < NUMBER_MAX


def all_possible(positions: tuple[Position, ...]) -> bool:
    return len(positions) <= POSITIONS_MAX and all(each.possible for each in positions)


def names_possible(nodes: tuple[NodeId, ...]) -> bool:
    return len(nodes) <= AVOID_MAX and all(0 < len(node) <= NODE_LENGTH_MAX for node in nodes)


class Silent(Value):
    """Timer: the peer has not answered a call."""

    number: int


class Again(Value):
    """Timer: retry a lookup or a payload for which no next node was known."""

    number: int


class Stabilize(Value):
    """Timer: a position checks its successors and fixes a finger."""

    at: Key


class Call(NamedTuple):
    """This node's record of a pending request to a peer."""

    peer: NodeId
    purpose: object  # returned to the caller with the answer
