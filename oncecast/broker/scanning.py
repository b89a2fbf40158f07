"""Read a topic without a subscription: `Scan →`, `Scanned ←`.

Scans are independent: the node keeps no state between two scans, several readers can split a topic,
and no cursor moves. The leader answers only while it holds its lease. A scan therefore sees all
messages that were acknowledged before the scan was sent. A scan with `wait_ms` that starts at the
end of the topic is answered when the next message arrives.

Decided messages never change, so a follower may also answer if the client allows it. The scan must
specify the topic id and both ends of the range, and the follower must hold the whole range. The
follower checks permissions against its own copy of the rules, so it must have heard from its leader
recently.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from msgspec.structs import replace

from oncecast.broker.chunks import chunks_of, lost
from oncecast.broker.events import AccessChanged, Changed, ScanDue, ScanWaitOver
from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.scan_waits import ScanWaits
from oncecast.broker.service import Service
from oncecast.broker.sizes import read_fault
from oncecast.broker.topic import Topic
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import LeaderChanged, Missing
from oncecast.security.access import READ
from oncecast.wire.commands import FromOffset
from oncecast.wire.frames import Answer, Elsewhere, Scan, Scanned

SCAN_BYTES_MAX = 8 << 20  # maximum bytes per answer, unless one batch is larger


class Scanner(Protocol):
    name = "scanner"
    Message = Scan
    Observed: ClassVar = AccessChanged | Changed | LeaderChanged
    Timer: ClassVar = ScanDue | ScanWaitOver

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        principal_of: PrincipalOf = anonymous,
    ) -> None:
        super().__init__(me, rng)
        self._service, self._principal_of = service, principal_of
        self._awaiting_lease: LeaseQueue[Scan] = LeaseQueue(self, ScanDue())
        self._waits = ScanWaits(self, ScanWaitOver())

    def timeout(self, timer: ScanDue | ScanWaitOver) -> None:
        if isinstance(timer, ScanWaitOver):
            for client, scan in self._waits.over():
                self.receive(client, replace(scan, wait_ms=0))
            return
        # A replica that no longer leads empties the queue to redirect the clients.
        ready = not self._service.leading or self._service.group.leads(self.now)
        for client, scan in self._awaiting_lease.due(leased=ready):
            self.receive(client, scan)

    def observe(self, event: AccessChanged | Changed | LeaderChanged) -> None:
        if isinstance(event, Changed):
            for client, scan in self._waits.of_topic(event.topic):
                self.receive(client, scan)
        elif isinstance(event, LeaderChanged):
            for client, scan in self._waits.all():
                self.receive(client, scan)
        else:
            # Drop the scans; the clients repeat them under the new rules.
            self._awaiting_lease.take()
            self._waits.all()

    def down(self, client: NodeId) -> None:
        self._waits.forget(client)

    def receive(self, sender: NodeId, scan: Scan) -> None:
        service = self._service
        if not service.leading:
            self._follow(sender, scan)
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
        if topic is None or topic.descriptor is not None:
            why = (
                registry.refusal_to_use(scan.topic)
                or registry.elsewhere(scan.topic)
                or registry.missing(scan.topic)
            )
            self.send(sender, Answer(scan.id, why))
            return
        if scan.wait_ms > 0 and self._must_wait(topic, scan) and self._waits.add(sender, scan):
            return
        try:
            self.send(sender, scanned(service, topic, scan))
        except Missing:
            pass  # the batch is being fetched from another replica
        except Corrupt as damage:
            where = topic.nearest_offset(scan.start)
            self.send(sender, Answer(scan.id, lost(scan.topic, where, damage)))

    def _must_wait(self, topic: Topic, scan: Scan) -> bool:
        """Return whether the scan starts at or beyond the end of the topic."""
        return (
            scan.topic_id in (0, topic.id)
            and scan.until < 0
            and isinstance(scan.start, FromOffset)
            and scan.start.offset == topic.index.next
        )

    def _follow(self, sender: NodeId, scan: Scan) -> None:
        """Answer as a follower, or redirect the client to the leader."""
        service = self._service
        topic = service.machine.registry.topics.get(scan.topic)
        if topic is not None and self._may_answer(sender, topic, scan):
            try:
                self.send(sender, scanned(service, topic, scan))
            except (Missing, Corrupt):
                pass  # the leader may be able to read the batch
            else:
                return
        self.send(sender, Elsewhere(service.leader, service.group.nodes()))

    def _may_answer(self, sender: NodeId, topic: Topic, scan: Scan) -> bool:
        start, index = scan.start, topic.index
        return (
            scan.any_replica
            and scan.topic_id == topic.id
            and isinstance(start, FromOffset)
            and index.first <= start.offset < scan.until <= index.next
            and self._service.group.follows(self.now)
            and self._permitted(sender, scan)
        )

    def _permitted(self, sender: NodeId, scan: Scan) -> bool:
        # A follower's guard lets all scans in, because most of them are redirected.
        access = self._service.machine.registry.access
        registry = self._service.machine.registry
        return access.open or registry.permits(self._principal_of(sender), READ, scan.topic)


def scanned(service: Service, topic: Topic, scan: Scan) -> Scanned:
    """Return the answer to a scan. Raise Missing or Corrupt if the first batch is unreadable."""
    index = topic.index
    offset = topic.nearest_offset(scan.start)
    until = index.next if scan.until < 0 else min(scan.until, index.next)
    time = index.appended(offset)
    found = Scanned(scan.id, topic.id, index.first, index.next, offset, (), time)
    lost = isinstance(scan.start, FromOffset) and scan.start.offset != offset
    if lost or scan.topic_id not in (0, topic.id):
        return found
    budget = min(scan.bytes, SCAN_BYTES_MAX)
    extents = tuple(index.extents(offset, until - offset, budget))
    chunks, _ = chunks_of(service, topic.name, extents, budget)
    return Scanned(scan.id, topic.id, index.first, index.next, offset, chunks, time)
