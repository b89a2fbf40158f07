"""Reads that wait until the leader holds its lease again.

A leader without a lease may have been replaced, so its state may be old, and it answers no read. It
keeps the question and looks every `LEASE_PAUSE` seconds whether the lease was renewed. The wait is
short: a leader that no majority hears steps down within the suspicion time, and then sends its
clients elsewhere.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from oncecast.kernel.protocol import NodeId, Protocol, Value

LEASE_CHECK_EVERY = 0.02
QUEUED_MAX = 1000  # beyond it a question is dropped, and its client asks again

Question = TypeVar("Question", bound=Value)


class LeaseQueue(Generic[Question]):
    """Questions of one protocol, in the order of their arrival; a repeated one is kept once."""

    def __init__(self, protocol: Protocol, timer: Value) -> None:
        self._protocol, self._timer = protocol, timer
        self._watching = False  # the timer is set
        self._questions: dict[tuple[NodeId, Question], None] = {}

    def add(self, client: NodeId, question: Question) -> None:
        if len(self._questions) < QUEUED_MAX:
            self._questions[client, question] = None
        self.watch()

    def watch(self) -> None:
        """Set the timer. Setting it again would put it off, so this is done once."""
        if not self._watching:
            self._watching = True
            self._protocol.later(LEASE_CHECK_EVERY, self._timer)

    def take(self) -> list[tuple[NodeId, Question]]:
        """Return all questions and forget them; the timer has run out, or is not needed."""
        self._watching = False
        taken = list(self._questions)
        self._questions.clear()
        return taken

    def forget(self, client: NodeId) -> None:
        self._questions = {key: None for key in self._questions if key[0] != client}
