"""Scans that wait for the next message in their topic."""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.wire.frames import Scan

WAITING_MAX = 10_000  # maximum scans that wait for messages; further scans are answered at once
WAITING_OF_CLIENT_MAX = 1000
WAIT_MAX = 60.0  # seconds


class ScanWaits:
    """Waiting scans by topic. `timer` is set for the earliest deadline."""

    def __init__(self, host: Protocol, timer: Value) -> None:
        self._host, self._timer = host, timer
        self._waiting: dict[str, dict[tuple[NodeId, int], tuple[Scan, float]]] = {}
        self._of_client: dict[NodeId, int] = {}
        self._count = 0
        self._due = 0.0  # when the timer fires; 0 if it is not set

    def add(self, client: NodeId, scan: Scan) -> bool:
        """Let the scan wait. Return False if it must be answered now."""
        waiting = self._waiting.get(scan.topic, {})
        if (client, scan.id) in waiting:
            return True  # a copy; the first scan keeps its deadline
        count = self._of_client.get(client, 0)
        if self._count >= WAITING_MAX or count >= WAITING_OF_CLIENT_MAX:
            return False
        deadline = self._host.now + min(scan.wait_ms / 1000, WAIT_MAX)
        self._waiting.setdefault(scan.topic, waiting)[client, scan.id] = scan, deadline
        self._of_client[client] = count + 1
        self._count += 1
        self._watch(deadline)
        return True

    def of_topic(self, topic: str) -> list[tuple[NodeId, Scan]]:
        """Remove and return the scans that wait for this topic."""
        taken = self._waiting.pop(topic, None)
        if taken is None:
            return []
        for client, _ in taken:
            self._count_down(client)
        return [(client, scan) for (client, _), (scan, _) in taken.items()]

    def all(self) -> list[tuple[NodeId, Scan]]:
        """Remove and return all scans."""
        return [each for topic in list(self._waiting) for each in self.of_topic(topic)]

    def over(self) -> list[tuple[NodeId, Scan]]:
        """Remove and return the scans whose deadline has passed. Call this when the timer fires."""
        now, taken, self._due = self._host.now, [], 0.0
        for topic, waiting in list(self._waiting.items()):
            for key, (scan, deadline) in list(waiting.items()):
                if deadline <= now:
                    del waiting[key]
                    self._count_down(key[0])
                    taken.append((key[0], scan))
                else:
                    self._watch(deadline)
            if not waiting:
                del self._waiting[topic]
        return taken

    def forget(self, client: NodeId) -> None:
        if client in self._of_client:
            for topic, waiting in list(self._waiting.items()):
                for key in [key for key in waiting if key[0] == client]:
                    del waiting[key]
                    self._count_down(client)
                if not waiting:
                    del self._waiting[topic]

    def _watch(self, deadline: float) -> None:
        if not self._due or deadline < self._due:
            self._due = deadline
            self._host.later(max(0.0, deadline - self._host.now), self._timer)

    def _count_down(self, client: NodeId) -> None:
        self._count -= 1
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]
