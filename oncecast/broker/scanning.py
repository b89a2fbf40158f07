"""Reading a topic without a subscription: `Scan →`, `Scanned ←`.

Each scan is independent: the node keeps no state between two scans, several readers can split a
topic, and no cursor moves. Only the leader answers, and only while it holds its lease. So a scan
sees everything that was acknowledged before it was sent.
"""

from __future__ import annotations

from random import Random

from oncecast.broker.chunks import chunks_of, lost
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.service import AccessChanged, Service
from oncecast.broker.sizes import read_fault
from oncecast.broker.topic import Topic
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import Missing
from oncecast.wire.commands import FromOffset
from oncecast.wire.frames import Answer, Elsewhere, Scan, Scanned

SCAN_BYTES_MAX = 8 << 20  # bytes per answer, unless one batch is larger


class ScanDue(Value):
    """Timer: check whether the lease was renewed."""


class Scanner(Protocol):
    name = "scanner"
    Message = Scan
    Observed = AccessChanged
    Timer = ScanDue

    def __init__(self, me: NodeId, rng: Random, *, service: Service) -> None:
        super().__init__(me, rng)
        self._service = service
        self._awaiting_lease: LeaseQueue[Scan] = LeaseQueue(self, ScanDue())

    def timeout(self, timer: ScanDue) -> None:
        # A deposed leader redirects its clients.
        ready = not self._service.leading or self._service.group.leads(self.now)
        for client, scan in self._awaiting_lease.due(leased=ready):
            self.receive(client, scan)

    def observe(self, event: AccessChanged) -> None:
        self._awaiting_lease.take()  # their clients ask again, under the new rules

    def receive(self, sender: NodeId, scan: Scan) -> None:
        service = self._service
        if not service.leading:
            elsewhere = Elsewhere(service.leader, service.group.nodes())
            self.send(sender, elsewhere)
            return
        fault = read_fault(scan)
        if fault is not None:
            self.send(sender, Answer(scan.id, fault))
            return
        if not service.group.leads(self.now):
            self._awaiting_lease.add(sender, scan)
            return
        registry = service.machine.registry
        topic = registry.topics.get(scan.topic)
        if topic is None:
            why = registry.elsewhere(scan.topic) or registry.missing(scan.topic)
            self.send(sender, Answer(scan.id, why))
            return
        try:
            self.send(sender, scanned(service, topic, scan))
        except Missing:
            pass  # the batch is being fetched from another replica
        except Corrupt as damage:
            where = topic.nearest_offset(scan.start)
            self.send(sender, Answer(scan.id, lost(scan.topic, where, damage)))


def scanned(service: Service, topic: Topic, scan: Scan) -> Scanned:
    """Return the answer to a scan. Raise Missing, or Corrupt."""
    index = topic.index
    offset = topic.nearest_offset(scan.start)
    until = index.next if scan.until < 0 else min(scan.until, index.next)
    found = Scanned(scan.id, topic.id, index.first, index.next, offset, ())
    lost = isinstance(scan.start, FromOffset) and scan.start.offset != offset
    if lost or scan.topic_id not in (0, topic.id):
        return found
    budget = min(scan.bytes, SCAN_BYTES_MAX)
    extents = tuple(index.extents(offset, until - offset, budget))
    chunks, _ = chunks_of(service, extents, budget)
    return Scanned(scan.id, topic.id, index.first, index.next, offset, chunks)
