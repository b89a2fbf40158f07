"""Inject random, overlapping faults: kills, pauses, partitions and disks that lose writes."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from bench.torture.cluster import CLIENTS, FORGETFUL, NODES, Cluster

Undo = Callable[[], None]

EVERY = 4.0  # mean seconds between faults
STOPPED = 5.0  # seconds that a node is stopped by SIGSTOP
AT_ONCE = 2  # maximum number of nodes with a fault at the same time, except in a blackout


class Strike(NamedTuple):
    at: float  # seconds since the start of the run
    kind: str
    victim: str


class Strikes:
    """Call `turn` often. It injects a fault when one is due, and undoes old faults."""

    def __init__(self, cluster: Cluster, rng: random.Random, say: Callable[[str], None]) -> None:
        self.cluster, self._rng, self._say = cluster, rng, say
        self.done: list[Strike] = []
        self._began = time.monotonic()
        self._next = self._began + EVERY
        self.troubled: set[str] = set()
        self._undo: list[tuple[float, int, str, Undo]] = []  # a heap ordered by time
        self._count = itertools.count()
        self._kinds = (
            (self._kill, 5),
            (self._stop, 2),
            (self._isolate, 3),
            (self._cut_off, 2),
            (self._deafen, 2),
            (self._cut_pair, 2),
            (self._forget, 3),
            (self._black_out, 1),
            (self._kill_client, 3),
        )

    @property
    def counts(self) -> dict[str, int]:
        return dict(sorted(Counter(strike.kind for strike in self.done).items()))

    def turn(self) -> None:
        now = time.monotonic()
        self._undo_due(now)
        if now < self._next:
            return
        self._next = now + self._rng.uniform(0.5 * EVERY, 1.5 * EVERY)
        kinds, weights = zip(*self._kinds, strict=True)
        (strike,) = self._rng.choices(kinds, weights)
        strike(self._victim())

    def calm(self) -> None:
        """Undo all faults, so that the group can recover."""
        self._undo_due(float("inf"))

    # -- on nodes --

    def _kill(self, victim: str) -> None:
        node = self.cluster.nodes[victim]
        if self._may(victim):
            node.kill()
            kind = "power loss" if victim == FORGETFUL else "kill -9"
            self._lasting(kind, victim, self._rng.uniform(0.2, 4.0), node.start)

    def _forget(self, victim: str) -> None:
        """Kill the node whose disk loses unsynced data, in the middle of its writes."""
        self._kill(FORGETFUL)

    def _black_out(self, victim: str) -> None:
        if self.troubled:
            return
        for name in NODES:
            node = self.cluster.nodes[name]
            node.kill()
            self._lasting("blackout", name, self._rng.uniform(0.2, 1.0), node.start)

    def _stop(self, victim: str) -> None:
        node = self.cluster.nodes[victim]
        if self._may(victim):
            node.stop()
            self._lasting("SIGSTOP", victim, STOPPED, node.go_on)

    # -- on the network --

    def _isolate(self, victim: str) -> None:
        """Cut the node off from its peers; clients can still reach it."""
        others = [name for name in NODES if name != victim]
        self._cut("isolate", victim, both_ways(victim, others))

    def _cut_off(self, victim: str) -> None:
        others = [name for name in (*NODES, CLIENTS) if name != victim]
        self._cut("cut off", victim, both_ways(victim, others))

    def _deafen(self, victim: str) -> None:
        """Drop messages from the node's peers; its own messages pass."""
        self._cut("deafen", victim, [(name, victim) for name in NODES if name != victim])

    def _cut_pair(self, victim: str) -> None:
        other = self._rng.choice([name for name in NODES if name != victim])
        self._cut("cut pair", victim, both_ways(victim, [other]))

    def _cut(self, kind: str, victim: str, ways: list[tuple[str, str]]) -> None:
        if not self._may(victim):
            return
        hosts = self.cluster.hosts
        for sender, receiver in ways:
            hosts.cut(sender, receiver)

        def mend() -> None:
            for sender, receiver in ways:
                hosts.mend(sender, receiver)

        self._lasting(kind, victim, self._rng.uniform(1.0, 6.0), mend)

    # -- on clients --

    def _kill_client(self, victim: str) -> None:
        """Kill a client and restart it at once, while its last messages are still in flight."""
        client = self.cluster.clients[self._rng.choice(list(self.cluster.clients))]
        client.kill()
        client.start()
        self._note("kill client", client.name)

    # -- the schedule --

    def _victim(self) -> str:
        """Return the leader in half of the calls, if a node knows it. Otherwise return any node."""
        status = self.cluster.status() if self._rng.random() < 0.5 else None
        leader = status.get("leader") if status else None
        found = [name for name, at in self.cluster.addresses.items() if at == leader]
        return found[0] if found else self._rng.choice(NODES)

    def _may(self, victim: str) -> bool:
        return victim not in self.troubled and len(self.troubled) < AT_ONCE

    def _lasting(self, kind: str, victim: str, seconds: float, undo: Undo) -> None:
        self.troubled.add(victim)
        due = time.monotonic() + seconds
        heapq.heappush(self._undo, (due, next(self._count), victim, undo))
        self._note(kind, victim)

    def _undo_due(self, now: float) -> None:
        while self._undo and self._undo[0][0] <= now:
            _, _, victim, undo = heapq.heappop(self._undo)
            undo()
            self.troubled.discard(victim)

    def _note(self, kind: str, victim: str) -> None:
        at = round(time.monotonic() - self._began, 1)
        self.done.append(Strike(at, kind, victim))
        self._say(f"  {at:6.1f} s  {kind:<12} {victim}")


def both_ways(victim: str, others: list[str]) -> list[tuple[str, str]]:
    return [way for other in others for way in ((victim, other), (other, victim))]
