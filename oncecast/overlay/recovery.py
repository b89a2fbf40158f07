"""Recovery: durable broadcast that delivers each message once to each node.

Plumtree is fast, but may lose messages. This layer stores each message and filters duplicates. It
regularly compares its messages with those of a random neighbour (anti-entropy, after Demers et al.,
"Epidemic Algorithms for Replicated Database Maintenance", PODC 1987).

Needs Broadcast and Received, NeighborUp and NeighborDown. Serves Publish, Discard and Disregard.
Emits Delivered and Lost.

For applications:

- Delivered with an id of this node acknowledges its Publish: the message is on disk.
- A message on disk counts as delivered. If the node crashes before the application has handled it,
  the node does not emit Delivered again after the restart. The application can read `held` instead.
- Messages are delivered as they arrive, in any order.
- A node keeps its last `kept_max` payloads. A node that is new, or was offline for longer, gets the
  messages that other nodes still keep. For all other messages it emits Lost once.
- Once no node needs a message, the application sends Discard, or Disregard for many messages. The
  message then counts as delivered. Send the request to all nodes.
- A node's name identifies its disk. A node that lost its disk must return under another name, or it
  would reuse its numbers. A node without a disk gets a new `incarnation` at each start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import ClassVar, assert_never

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.overlay.events import (
    Broadcast,
    Delivered,
    Discard,
    Disregard,
    Lost,
    MessageId,
    NeighborDown,
    NeighborUp,
    Publish,
    Received,
)
from oncecast.overlay.ledger import Inventory, Stock
from oncecast.overlay.memory import Numbers, Payloads
from oncecast.overlay.messages import (
    ANY,
    Archive,
    Compare,
    Compared,
    GivenUp,
    GiveUp,
    Ledger,
    Repair,
    Round,
    Stored,
)


class Recovery(Protocol):
    name = "recovery"
    Request: ClassVar = Publish | Discard | Disregard
    Message: ClassVar = Compare | Compared | Repair
    Observed: ClassVar = NeighborUp | NeighborDown | Received
    Timer: ClassVar = Round | GiveUp
    Record: ClassVar = Stored | GivenUp
    State = Archive

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        incarnation: str = "",
        compare_every: float = 1.0,
        lost_after: float = 10.0,
        kept_max: int = 1000,
        kept_bytes_max: int = 2**24,
        batch_max: int = 64,
        batch_bytes_max: int = 2**18,
        snapshot_every: int = 1000,
        origins_max: int = 10_000,
        gaps_max: int = 1000,
        ledger_origins_max: int = 256,
        ledger_gaps_max: int = 64,
    ) -> None:
        super().__init__(me, rng)
        self.compare_every, self.lost_after = compare_every, lost_after
        self.batch_max, self.batch_bytes_max = batch_max, batch_bytes_max
        self.snapshot_every, self.snapshot_every_bytes = snapshot_every, kept_bytes_max
        self.ledger_origins_max, self.ledger_gaps_max = ledger_origins_max, ledger_gaps_max
        self.neighbors: dict[NodeId, None] = {}
        self.origin = NodeId(f"{me}#{incarnation}") if incarnation else me
        self.inventory = Inventory(self.origin, origins_max=origins_max, gaps_max=gaps_max)
        self.kept = Payloads(kept_max, kept_bytes_max)
        # By neighbour: its floor, if it is above a message that this node lacks.
        self.doubts: dict[NodeId, int] = {}
        self.next_low = ANY  # the origin at which the next comparison starts
        # Number of records, and of bytes, since the last snapshot.
        self.unsaved = self.unsaved_bytes = 0
        # Number of messages stored in this round and in the previous one.
        self.fresh = self.fresh_before = 0
        self.dropped = 0  # number of messages that were invalid or exceeded a limit

    @property
    def held(self) -> Mapping[MessageId, bytes]:
        """Return the kept payloads by id, oldest first. They survive a restart."""
        return self.kept.by_id

    def restore(self, record: Stored | GivenUp | Archive) -> None:
        match record:
            case Stored(key, payload):
                self._hold(key, payload)
            case GivenUp(origin, last):
                self._pass_over(origin, last)
            case Archive(holdings, kept):
                self.inventory.restore(holdings)
                for stored in kept:
                    self._hold(stored.id, stored.payload)
                self.unsaved = self.unsaved_bytes = 0
            case _:
                assert_never(record)

    def start(self) -> None:
        self._next_round()

    def request(self, request: Publish | Discard | Disregard) -> None:
        match request:
            case Publish(payload):
                key = MessageId(self.origin, self.inventory.of(self.origin).top + 1)
                self._store(key, payload)
                self.ask(Broadcast(key, payload))
            case Discard(key):
                self.kept.remove(key)
                # Only this node assigns numbers to its own messages.
                if key.origin != self.origin and self.inventory.can_add(key):
                    self.inventory.open(key.origin).add(key.number)
            case Disregard(origin, top, gaps):
                if origin != self.origin and self.inventory.can_add_origin(origin):
                    self.inventory.open(origin).add_all_of(Numbers(top, gaps))
            case _:
                assert_never(request)

    def observe(self, event: NeighborUp | NeighborDown | Received) -> None:
        match event:
            case Received(key, payload):
                self._take(key, payload)
            case NeighborUp(peer):
                self.neighbors[peer] = None
            case NeighborDown(peer):
                self.neighbors.pop(peer, None)
            case _:
                assert_never(event)

    def receive(self, sender: NodeId, message: Compare | Compared | Repair) -> None:
        match message:
            case Compare(ledger):
                if self._compare(sender, ledger):
                    self.send(sender, Compared(self._ledger(ledger.low, ledger.high)))
            case Compared(ledger):
                self._compare(sender, ledger)
            case Repair(messages, more):
                new = [each.id for each in messages if self._take(each.id, each.payload)]
                if more and new:  # without progress, the peer would send the same messages again
                    self.send(sender, Compare(self._ledger(new[0].origin)))
            case _:
                assert_never(message)

    def timeout(self, timer: Round | GiveUp) -> None:
        match timer:
            case Round():
                if self.neighbors:
                    peer = self.rng.choice(list(self.neighbors))
                    ledger = self._ledger(self.next_low)
                    self.next_low = ledger.high
                    self.send(peer, Compare(ledger))
                self.fresh_before, self.fresh = self.fresh, 0
                self._next_round()
            case GiveUp(origin):
                self._give_up(origin, self.doubts.pop(origin) - 1)
            case _:
                assert_never(timer)

    def _next_round(self) -> None:
        # Without jitter, nodes that start together would compare in lockstep.
        self.later(self.compare_every * self.rng.uniform(0.75, 1.25), Round())

    def _take(self, key: MessageId, payload: bytes) -> bool:
        """Store a message from another node. Return False if it is known or exceeds the limits."""
        if key in self.inventory:
            return False
        # We have all our own messages. Any other is forged and would raise our numbers.
        if key.origin == self.origin or not (key.possible and self.inventory.can_add(key)):
            self.dropped += 1
            return False
        self._store(key, payload)
        return True

    def _store(self, key: MessageId, payload: bytes) -> None:
        self._hold(key, payload)
        self.append(Stored(key, payload))
        self.emit(Delivered(key, payload))
        self.fresh += 1
        self._save_if_due()

    def _hold(self, key: MessageId, payload: bytes) -> None:
        self.inventory.open(key.origin).add(key.number)
        for evicted in self.kept.add(key, payload):
            self.inventory.open(evicted.origin).raise_floor(evicted.number + 1)
        self.unsaved += 1
        self.unsaved_bytes += len(payload)

    def _give_up(self, origin: NodeId, last: int) -> None:
        lost = self.inventory.of(origin).missing_to(last)
        if not lost:
            return
        self._pass_over(origin, last)
        self.append(GivenUp(origin, last))
        for first, end in lost:
            self.emit(Lost(origin, first, end))
        self._save_if_due()

    def _pass_over(self, origin: NodeId, last: int) -> None:
        stock = self.inventory.open(origin)
        stock.add_all_to(last)
        stock.raise_floor(last + 1)
        self.unsaved += 1

    def _save_if_due(self) -> None:
        """Save a snapshot when one is due, and trim the older records to keep the log short."""
        if self.unsaved < self.snapshot_every and self.unsaved_bytes < self.snapshot_every_bytes:
            return
        kept = tuple(Stored(key, payload) for key, payload in self.held.items())
        self.snapshot(Archive(self.inventory.holdings(), kept))
        self.trim(self.after + 1)
        self.unsaved = self.unsaved_bytes = 0

    def _ledger(self, low: NodeId, high: NodeId = ANY) -> Ledger:
        return self.inventory.ledger(
            low, high, origins_max=self.ledger_origins_max, gaps_max=self.ledger_gaps_max
        )

    def _compare(self, peer: NodeId, ledger: Ledger) -> bool:
        """Send the peer the messages that it lacks.

        Return whether the peer should get our ledger in return.
        """
        stocks = self.inventory.read(ledger)
        if stocks is None:
            self.dropped += 1
            return False
        behind: dict[NodeId, Stock] = {}
        answer = False
        for origin, theirs in stocks.items():
            ours = self.inventory.of(origin)
            if theirs.lacks_of(ours):
                behind[origin] = theirs
            if ours.lacks_of(theirs) or theirs.lowest_missing < ours.floor:
                answer = True
            if ours.lowest_missing < theirs.floor and origin != self.origin:
                self._doubt(origin, theirs.floor)
        if behind:
            self._supply(peer, behind)
        return answer

    def _supply(self, peer: NodeId, behind: dict[NodeId, Stock]) -> None:
        wanted = sorted(
            key
            for key in self._settled()
            if key.origin in behind and key.number not in behind[key.origin]
        )
        if wanted:
            batch = self._batch(wanted)
            self.send(peer, Repair(batch, more=len(batch) < len(wanted)))

    def _settled(self) -> Iterator[MessageId]:
        """Return the ids of the kept messages, except new ones that Plumtree may still spread."""
        held = len(self.held)
        # Under heavy load, all messages may be new. In that case, count the older half as settled.
        fresh = min(self.fresh + self.fresh_before, (held + 1) // 2)
        return islice(self.held, held - fresh)

    def _batch(self, wanted: list[MessageId]) -> tuple[Stored, ...]:
        batch: list[Stored] = []
        bytes_left = self.batch_bytes_max
        for key in wanted[: self.batch_max]:
            payload = self.held[key]
            bytes_left -= len(payload)
            if batch and bytes_left < 0:
                break
            batch.append(Stored(key, payload))
        return tuple(batch)

    def _doubt(self, origin: NodeId, floor: int) -> None:
        """Wait `lost_after` for other nodes to send the messages below a neighbour's floor."""
        if origin not in self.doubts and self.inventory.can_add_origin(origin):
            self.doubts[origin] = floor
            self.later(self.lost_after, GiveUp(origin))
