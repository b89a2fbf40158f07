"""Learn the state of a transactional id after a restart, or from another front end.

The node keeps the number that ended last. Three cases follow from it (see `transaction`):

    odd, committed      the last transaction is committed, and no other has begun
    odd, aborted        the client may not know it yet, so it must abort first
    even                a transaction was open; its content is unknown, so it is aborted

Abort number 0 to find the number: the node answers that this number is old, and names the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from oncecast.kafka.backend import Backend
from oncecast.kafka.errors import Code
from oncecast.kafka.transaction import ABORTED, State, Transactional
from oncecast.kernel.protocol import Value
from oncecast.wire.errors import Fenced, OldNumber
from oncecast.wire.results import TransactionEnded
from oncecast.wire.transactions import EndTransaction

TIMEOUT = 15.0

Then = Callable[[Transactional | Code], None]


def recover(backend: Backend, source: str, home: str, epoch: int, then: Then) -> None:
    """Call `then` with the state of the source, or with an error code."""
    Recovery(backend, Transactional(source, home, epoch, ring=False), then).start()


class Recovery:
    def __init__(self, backend: Backend, found: Transactional, then: Then) -> None:
        self._backend, self._found, self._then = backend, found, then

    def start(self) -> None:
        def seen(outcome: Value) -> None:
            if isinstance(outcome, OldNumber):
                self._read(outcome.last + 1)
            else:
                fresh = isinstance(outcome, TransactionEnded) and not outcome.already
                self._learned(0, outcome, fresh=fresh)

        self._abort(0, seen)

    def _read(self, number: int) -> None:
        """Read the result of the number that ended last."""
        self._abort(number, lambda outcome: self._learned(number, outcome))

    def _learned(self, number: int, outcome: Value, *, fresh: bool = False) -> None:
        found = self._found
        if isinstance(outcome, Fenced):
            self._then(Code.INVALID_PRODUCER_EPOCH if outcome.epoch else ABORTED)
        elif not isinstance(outcome, TransactionEnded):
            self._then(Code.COORDINATOR_NOT_AVAILABLE)
        elif fresh:
            found.finished(number, committed=False)
            self._then(found)
        elif number % 2 == 0:
            self._abort(number + 1, lambda outcome: self._learned(number + 1, outcome))
        else:
            found.finished(number, committed=outcome.committed)
            found.state = State.READY if outcome.committed else State.LOST
            self._then(found)

    def _abort(self, number: int, then: Callable[[Value], None]) -> None:
        found = self._found
        command = EndTransaction(
            found.source, found.home, found.epoch, number, number, 0, commit=False
        )
        self._backend.do(command, then, TIMEOUT)
