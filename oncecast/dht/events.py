"""What Chord and Scribe are asked, what they tell, and how ring members talk to each other.

application   JoinTree, LeaveTree, Multicast ↓   Multicasted ↑
Scribe        Route ↓   Routed, RangeChanged ↑
Chord         (the application may ask FindRoot and hears RootFound)
"""

from __future__ import annotations

from typing import assert_never

from oncecast.dht.identifiers import BYTES, NODE_LENGTH_MAX, Key, Place
from oncecast.kernel.protocol import NodeId, Value

PLACES_MAX = 64  # in one message; lists are shorter
AVOID_MAX = 64
NUMBER_MAX = 2**62
FIRST_NUMBER_BITS = 60  # a node counts from a random number, which another life does not use


# -- requests to Chord and its events --


class FindRoot(Value):
    """Request: who owns `key`? It is answered, however long that takes."""

    key: Key


class RootFound(Value):
    key: Key
    root: NodeId
    hops: int  # to the one before the root, or right to the root where a list leads past that one
    timeouts: int  # nodes on that way that did not answer
    doubts: int = 0  # nodes asked after that, because an owner was not sure to be it
    certain: bool = True  # else a hint: the root could not rule out that it owns the key


class Route(Value):
    """Request: take this one hop nearer to the owner of `key`.

    Where it comes to it is Routed, and whoever observes that asks again if it shall go on.
    """

    key: Key
    payload: bytes


class Routed(Value):
    """A payload has come here on its way to the owner of `key`; `root`: which this node is.

    `hint`: this node may be the owner, but is not certain of it, and no other node is known to be.
    """

    key: Key
    payload: bytes
    sender: NodeId  # this node itself, if it had no way to go
    root: bool
    hint: bool = False


class RangeChanged(Value):
    """Of position `at`: from now on it owns what comes after `after`, up to itself.

    None: it does not know, until the one before it says so.
    """

    at: Key
    after: Key | None


# -- messages of Chord --


class Probe(Value, tag="Probe"):
    """What do you, at this position, know of the ring?"""

    at: Key
    number: int


class Report(Value, tag="Report"):
    number: int
    predecessor: Place | None
    successors: tuple[Place, ...]


class Notify(Value, tag="Notify"):
    """This one may come before you: I do, or it came before me until now."""

    at: Key
    place: Place


class Hurry(Value, tag="Hurry"):
    """Look after your successors now: somebody has come right after you."""

    at: Key


class Locate(Value, tag="Locate"):
    """Who comes before this key? Those to avoid have not answered.

    `itself`: only the one before the key may answer that, not one that has it in its list; and it
    looks after its list, on which much depends for the asker.
    """

    key: Key
    number: int
    avoid: tuple[NodeId, ...]
    itself: bool


class Nearer(Value, tag="Nearer"):
    """I do not know, and these are nearer; the nearest first."""

    number: int
    places: tuple[Place, ...]


class Near(Value, tag="Near"):
    """I do: this one, and these come after it."""

    number: int
    place: Place
    successors: tuple[Place, ...]


class Confirm(Value, tag="Confirm"):
    """Do you own this key? The one before it, at `via`, says that you come next."""

    key: Key
    at: Key
    number: int
    avoid: tuple[NodeId, ...]
    via: Key


class Found(Value, tag="Found"):
    """I do; or, if not `certain`, I know of nobody who would rather."""

    number: int
    certain: bool = True


class Unsure(Value, tag="Unsure"):
    """My successor does not know of me yet, or I not who comes before me: ask me again."""

    number: int


class Hop(Value, tag="Hop"):
    """A payload on its way to the owner of `key`; that is you, if nobody lies after `via`."""

    key: Key
    payload: bytes
    number: int
    via: Key


class Hopped(Value, tag="Hopped"):
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
    """Whether an honest member could have sent it."""
    match message:
        case Notify(at, place):
            return len(at) == BYTES and place.possible
        case Hurry(at):
            return len(at) == BYTES
        case Probe(at, number):
            fits = len(at) == BYTES
        case Report(number, predecessor, successors):
            fits = (predecessor is None or predecessor.possible) and all_possible(successors)
        case Locate(key, number, avoid, _):
            fits = len(key) == BYTES and names_possible(avoid)
        case Nearer(number, places):
            fits = all_possible(places)
        case Near(number, place, successors):
            fits = place.possible and all_possible(successors)
        case Confirm(key, at, number, avoid, via):
            fits = len(key) == len(at) == len(via) == BYTES and names_possible(avoid)
        case Hop(key, _, number, via):
            fits = len(key) == len(via) == BYTES
        case Found(number, _) | Unsure(number) | Hopped(number):
            fits = True
        case _:
            assert_never(message)
    return fits and 0 <= number < NUMBER_MAX


def all_possible(places: tuple[Place, ...]) -> bool:
    return len(places) <= PLACES_MAX and all(place.possible for place in places)


def names_possible(nodes: tuple[NodeId, ...]) -> bool:
    return len(nodes) <= AVOID_MAX and all(0 < len(node) <= NODE_LENGTH_MAX for node in nodes)
