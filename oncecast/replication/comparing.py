"""Periodically compare the states of all replicas.

A replica whose state differs from the majority's stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.errors import Diverged
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Digest
from oncecast.replication.leader import Leader
from oncecast.replication.messages import CHECK, Item, Sum
from oncecast.replication.options import GroupOptions
from oncecast.replication.state import Membership, Progress

SUMS_MAX = 4  # number of recent checks whose checksums are kept


@dataclass(eq=False)
class Comparison:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    leader: Leader
    compared: float = 0.0  # when this leader proposed the last check
    sums: dict[int, dict[NodeId, tuple[int, bytes]]] = field(default_factory=dict)

    def propose_if_due(self) -> None:
        every, term, now = self.options.compare_every, self.leader.term, self.io.now
        if not every or term is None or not term.acting or not self.membership.others():
            return
        if now >= self.compared + every:
            self.compared = now
            term.queue.append((-1, Item(CHECK, b"")))
            self.leader.proceed()

    def on_digest(self, digest: Digest) -> None:
        chain = next((chain for slot, chain in self.progress.checks if slot == digest.slot), None)
        if chain is not None:  # None after many checks in a row, if the replica was far behind
            self.on_sum(self.membership.me, Sum(digest.slot, chain, digest.digest))

    def on_sum(self, node: NodeId, total: Sum) -> None:
        me, slot = self.membership.me, total.slot
        if slot > self.progress.applied + self.options.ahead_slots:
            return  # no replica can be that far ahead
        sums = self.sums.setdefault(slot, {})
        if node in sums:
            return  # the checksum of a slot never changes
        sums[node] = total.chain, total.digest
        for old in sorted(self.sums)[:-SUMS_MAX]:
            del self.sums[old]
        if node == me:
            for other in self.membership.others():
                self.io.send(other, total)
        mine, config = sums.get(me), self.membership.history.of(slot)
        if mine is None:
            return
        against = [each for each in config.nodes() if sums.get(each, mine) != mine]
        if against and len(config.members) - len(against) < config.majority:
            raise Diverged(
                f"replica {me}: its state at slot {slot} differs from that of {len(against)} of "
                f"{len(config.members)} replicas"
            )
