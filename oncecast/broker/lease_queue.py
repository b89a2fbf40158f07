"""Reads that wait until the leader holds its lease again.

A leader without a lease may have been replaced, so its state may be old, and it does not answer
reads. It queues them and checks the lease every `LEASE_CHECK_EVERY` seconds. The wait is short: a
leader without a majority steps down within the suspicion time, and redirects its clients.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from oncecast.kernel.protocol import NodeId, Protocol, Value

LEASE_CHECK_EVERY = 0.02
QUEUED_MAX = 1000  # above it, a read is dropped and its client retries

Question = TypeVar("Question", bound=Value)


class LeaseQueue(Generic[Question]):
    """Reads of one protocol in order of arrival. A repeated read is kept once."""

    def __init__(self, protocol: Protocol, timer: Value) -> None:
        self._protocol, self._timer = protocol, timer
        self._watching = False  # the timer is set
        self._questions: dict[tuple[NodeId, Question], None] = {}

    def add(self, client: NodeId, question: Question) -> None:
        if len(self._questions) < QUEUED_MAX:
            self._questions[client, question] = None
        self.watch()

    def watch(self) -> None:
        """Set the timer once. Setting it again would delay it."""
        if not self._watching:
            self._watching = True
            self._protocol.later(LEASE_CHECK_EVERY, self._timer)

    def take(self) -> list[tuple[NodeId, Question]]:
        """Remove and return all reads. The timer has fired or is not needed."""
        self._watching = False
        taken = list(self._questions)
        self._questions.clear()
        return taken

    def forget(self, client: NodeId) -> None:
        self._questions = {key: None for key in self._questions if key[0] != client}
