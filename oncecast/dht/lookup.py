"""The state of one lookup: which nodes to ask next, which to avoid, and which may own the key.

A lookup is iterative, as in the Chord paper's simulations: this node asks one node after another. A
dead node costs a timeout, but the lookup continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oncecast.dht.identifiers import Key, Position, between
from oncecast.dht.messages import AVOID_MAX
from oncecast.kernel.protocol import NodeId

# Called with the member before the key and that member's successors.
OnFound = Callable[[Position, tuple[Position, ...]], None]


class Lookup:
    def __init__(
        self,
        number: int,
        key: Key,
        contacts: tuple[NodeId, ...],
        *,
        itself: bool,
        retry: bool,
        on_found: OnFound | None,
    ) -> None:
        self.number, self.key = number, key
        self.contacts = contacts  # nodes to ask first; their positions are unknown
        self.contacts_left = list(contacts)
        self.itself = itself  # only the member before the key may answer with its successors
        self.retry = retry  # whether to try again until there is an answer
        # Called when the owner is found; if None, the owner confirms first, and the layer above is
        # notified.
        self.on_found = on_found
        self.pool: dict[Key, Position] = {}  # known positions that have not been asked yet
        self.asked: dict[Key, None] = {}
        self.avoid: dict[NodeId, None] = {}  # nodes that did not answer
        self.unavoided = True  # whether all nodes have answered since the last start
        self.nearest: Position | None = None  # the last position that has answered
        self.news = False  # whether a node after `nearest` did not answer
        self.before: Position | None = None  # the member before the key, once found
        self.owners: list[Position] = []  # the successors of `before`
        self.hops = self.timeouts = self.steps = 0
        self.doubted = 0  # number of times that an owner was unsure
        self.doubts = 0  # number of nodes asked because an owner was unsure

    def start_again(self, *, forgive: bool) -> None:
        if forgive:
            self.avoid.clear()
        self.contacts_left = [node for node in self.contacts if node not in self.avoid]
        self.pool.clear()
        self.asked.clear()
        self.nearest = self.before = None
        self.owners = []
        self.steps = 0
        self.unavoided = True

    def learn(self, positions: Iterable[Position]) -> None:
        for position in positions:
            if position.id != self.key and position.id not in self.asked:
                self.pool[position.id] = position

    def next(self) -> Position | None:
        """Return the unasked position nearest before the key, or None. Never go backwards.

        If the nearest position that answered named only dead nodes, return it once more. Its next
        answer omits those nodes.
        """
        key, nearest = self.key, self.nearest
        while self.pool:
            id = max(self.pool, key=lambda id: (id < key, id))
            if nearest is not None and not between(nearest.id, id, key):
                break
            position = self.pool.pop(id)
            if position.node not in self.avoid:
                self.asked[id] = None
                return position
        if nearest is not None and self.news:
            self.news = False
            return nearest
        return None

    def answered(self, position: Position | None) -> None:
        """Count a hop. `position` is None if the answer came from a contact."""
        if position is None or position != self.nearest:
            if self.doubted:
                self.doubts += 1
            else:
                self.hops += 1
            self.nearest, self.news = position, False

    def found_before(self, before: Position, successors: Iterable[Position], me: NodeId) -> None:
        self.before = before
        self.owners = list(successors) or [before]
        answerer = me if self.nearest is None else self.nearest.node
        if before.node != answerer and not self.itself:
            self.hops += 1  # the answerer's list skips `before` and names the owner

    def owner(self) -> Position | None:
        """Return the first position after the key whose node is not avoided, or None."""
        while self.owners and self.owners[0].node in self.avoid:
            del self.owners[0]
        return self.owners[0] if self.owners else None

    def put_owner_first(self, nearer: Position) -> None:
        """Ask `nearer` next, even if its node has failed to answer."""
        self.avoid.pop(nearer.node, None)
        self.owners.insert(0, nearer)

    def silent(self, node: NodeId) -> None:
        """Count a timeout, and avoid `node` from now on."""
        if self.doubted:
            self.doubts += 1
        else:
            self.timeouts += 1
        self.unavoided = False
        self.news = True
        if self.nearest is not None and self.nearest.node == node:
            self.nearest = None
        self.avoid[node] = None
        if len(self.avoid) > AVOID_MAX:
            del self.avoid[next(iter(self.avoid))]
