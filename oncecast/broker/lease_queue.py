"""Reads that wait until the leader holds its lease again.

A leader without a lease may have been replaced, and its state may be stale, so it does not answer
reads. It queues them and checks the lease every `LEASE_CHECK_EVERY` seconds. The wait is short: a
leader without a majority steps down within the suspicion time, and redirects its clients.
"""

from __future__ import annotations

from itertools import islice
from typing import Generic, TypeVar

from oncecast.kernel.protocol import NodeId, Protocol, Value

LEASE_CHECK_EVERY = 0.02
QUEUED_MAX = 1000  # maximum reads in the queue; further reads are dropped, and their clients retry
QUEUED_OF_CLIENT_MAX = 100
TURN = 50  # number of reads to answer before other inputs get a turn

Question = TypeVar("Question", bound=Value)


class LeaseQueue(Generic[Question]):
    """One protocol's waiting reads, in order of arrival. A repeated read is queued only once."""

    def __init__(self, protocol: Protocol, timer: Value) -> None:
        self._protocol, self._timer = protocol, timer
        self._watching = False  # whether the timer is set
        self._questions: dict[tuple[NodeId, Question], None] = {}
        self._of_client: dict[NodeId, int] = {}

    def add(self, client: NodeId, question: Question) -> None:
        count = self._of_client.get(client, 0)
        full = len(self._questions) >= QUEUED_MAX or count >= QUEUED_OF_CLIENT_MAX
        if not full and (client, question) not in self._questions:
            self._questions[client, question] = None
            self._of_client[client] = count + 1
        self.watch()

    def watch(self) -> None:
        """Set the timer, unless it is already set. Setting it again would delay it."""
        if not self._watching:
            self._watching = True
            self._protocol.later(LEASE_CHECK_EVERY, self._timer)

    def take(self) -> list[tuple[NodeId, Question]]:
        """Remove and return all reads. Call this when the timer has fired or is not needed."""
        self._watching = False
        taken = list(self._questions)
        self._questions.clear()
        self._of_client.clear()
        return taken

    def due(self, *, leased: bool) -> list[tuple[NodeId, Question]]:
        """Remove and return the next reads after the timer has fired. Return [] without a lease."""
        self._watching = False
        if self._questions and not leased:
            self.watch()
        taken = list(islice(self._questions, TURN)) if leased else []
        for key in taken:
            del self._questions[key]
            self._count_down(key[0])
        if leased and self._questions:
            self._watching = True
            self._protocol.later(0.0, self._timer)
        return taken

    def forget(self, client: NodeId) -> None:
        if self._of_client.pop(client, 0):
            self._questions = {key: None for key in self._questions if key[0] != client}

    def _count_down(self, client: NodeId) -> None:
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]
