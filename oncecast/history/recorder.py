"""Record operations as they happen: `call` when a client asks, `returned` when it is told.

    recorder = Recorder(clock)
    put = recorder.call("ann", "put", "news", digests=digests_of_values([b"hello"]))
    recorder.returned(put, offset=0, life=1, kept=True)
    verdict = check(recorder.history)

Times of one recorder are all different, so what one process sees is in order.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter
from typing import Any
from typing import Protocol as Interface

from oncecast.history.operation import History, Kind, Operation


class Sink(Interface):
    """Where a recorder leaves operations that it does not keep."""

    def whole(self, operation: Operation) -> None:
        """Take an operation of which no more will be heard."""

    def called(self, operation: Operation) -> None:
        """Take an operation that may return later."""

    def returned(self, operation: Operation, answer: dict[str, Any]) -> None:
        """Take the fields that the answer has added."""


class Recorder:
    """`clock` gives seconds. Without a `sink`, operations are kept in `history`."""

    def __init__(self, clock: Callable[[], float], sink: Sink | None = None) -> None:
        self._clock, self._sink = clock, sink
        self._last = -inf
        self.history: History = []

    def call(self, client: str, kind: Kind, topic: str, **asked: Any) -> Operation:
        """Record that a client asks. Give the result to `returned` or `refused`, or forget it."""
        operation = Operation(client, kind, topic, self._now(), **asked)
        if self._sink is None:
            self.history.append(operation)
        else:
            self._sink.called(operation)
        return operation

    def returned(self, operation: Operation, **answer: Any) -> None:
        """Record the answer, as fields of Operation."""
        answer["returned"] = self._now()
        for name, value in answer.items():
            setattr(operation, name, value)
        if self._sink is not None:
            self._sink.returned(operation, answer)

    def refused(self, operation: Operation, code: str) -> None:
        """Record that the answer is a refusal."""
        self.returned(operation, error=code)

    def said(self, client: str, kind: Kind, topic: str, **asked: Any) -> None:
        """Record what a client asks without ever getting an answer, such as an ack in passing."""
        self._whole(Operation(client, kind, topic, self._now(), **asked))

    def heard(self, client: str, kind: Kind, topic: str, **told: Any) -> None:
        """Record what a client is told without asking, such as a delivery."""
        now = self._now()
        self._whole(Operation(client, kind, topic, now, now, **told))

    def _whole(self, operation: Operation) -> None:
        if self._sink is None:
            self.history.append(operation)
        else:
            self._sink.whole(operation)

    def _now(self) -> float:
        self._last = max(self._clock(), nextafter(self._last, inf))
        return self._last
