"""The messages, records and timers of the overlay protocols."""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value
from oncecast.overlay.events import MessageId
from oncecast.overlay.memory import Range


class Join(Value, tag="Join"):
    """Ask a contact to become a neighbour and start walks that find more neighbours."""

    incarnation: int


class ForwardJoin(Value, tag="ForwardJoin"):
    """A random walk. The node at its end asks the newcomer to become its neighbour."""

    newcomer: NodeId
    steps: int


class Neighbor(Value, tag="Neighbor"):
    """Ask a peer to become a neighbour. If its view is full, it accepts only `urgent` requests."""

    incarnation: int
    urgent: bool


class Accepted(Value, tag="Accepted"):
    """Tell a peer that it is now in our active view."""

    incarnation: int


class Refused(Value, tag="Refused"):
    """Reject a Neighbor request because the active view is full."""


class Disconnect(Value, tag="Disconnect"):
    """Tell a peer that it is not in our active view."""


class Shuffle(Value, tag="Shuffle"):
    """A random walk. The node at its end replies with part of its own passive view."""

    origin: NodeId
    steps: int
    sample: tuple[NodeId, ...]


class ShuffleReply(Value, tag="ShuffleReply"):
    sample: tuple[NodeId, ...]


class Cycle(Value):
    """Timer: shuffle, and try to fill the active view."""


class Unanswered(Value):
    """Timer: a peer that was asked to become a neighbour has not answered."""

    peer: NodeId


class Alone(Value):
    """Timer: this node has no neighbour and no other peer to ask."""


Walk = ForwardJoin | Shuffle


HyParViewMessage = (
    Join | ForwardJoin | Neighbor | Accepted | Refused | Disconnect | Shuffle | ShuffleReply
)


class Gossip(Value, tag="Gossip"):
    id: MessageId
    round: int  # hops from the origin
    payload: bytes


class Announcement(Value, tag=False):
    id: MessageId
    round: int


class IHave(Value, tag="IHave"):
    announcements: tuple[Announcement, ...]


class Graft(Value, tag="Graft"):
    """Make the link eager. If `id` is not None, also request that payload."""

    id: MessageId | None
    round: int


class Prune(Value, tag="Prune"):
    """Make the link lazy, because the payload was a duplicate."""


class Missing(Value):
    """Timer: a payload was announced and has not arrived over the tree."""

    id: MessageId


class Announce(Value):
    """Timer: send the announcements collected so far."""


class Hello(Value, tag="Hello"):
    """Ask a peer whether it is running."""


class Welcome(Value, tag="Welcome"):
    """Answer to Hello."""


class Retry(Value):
    """Timer: send Hello again to a peer that has not answered or whose link broke."""

    peer: NodeId


ANY = NodeId("")  # an unbounded end of an origin range


class Holding(Value, tag=False):
    """The node has messages 1 to `top` except `gaps`; payloads below `floor` may be deleted."""

    origin: NodeId
    floor: int
    top: int
    gaps: tuple[Range, ...]


class Ledger(Value, tag=False):
    """A summary of a node's messages, for the origins from `low` up to but excluding `high`.

    A ledger may omit the highest gaps of an origin. Later ledgers report them, once the lower gaps
    are filled.
    """

    low: NodeId
    high: NodeId
    holdings: tuple[Holding, ...]

    def covers(self, origin: NodeId) -> bool:
        return self.low <= origin and (self.high == ANY or origin < self.high)


class Stored(Value, tag="Stored"):
    """A message, as a record on disk and as an item of repairs and snapshots."""

    id: MessageId
    payload: bytes


class Compare(Value, tag="Compare"):
    """Send a neighbour a summary of our messages, and ask for the messages that we lack."""

    ledger: Ledger


class Compared(Value, tag="Compared"):
    """Answer Compare with our own ledger, if we lack messages or no longer keep some."""

    ledger: Ledger


class Repair(Value, tag="Repair"):
    """Send messages that the receiver lacks, lowest first. `more` is set if others remain."""

    messages: tuple[Stored, ...]
    more: bool


class Round(Value):
    """Timer: compare with a random neighbour."""


class GiveUp(Value):
    """Timer: a neighbour no longer keeps a message that we lack, and no node has sent it since."""

    origin: NodeId


class GivenUp(Value, tag="GivenUp"):
    """Record: the messages up to this number that are still missing are lost."""

    origin: NodeId
    last: int


class Archive(Value, tag="Archive"):
    """Snapshot: the holdings of all origins and all kept payloads."""

    holdings: tuple[Holding, ...]
    kept: tuple[Stored, ...]
