"""Records operations as they happen: `call` for a request, `returned` for its answer.

    recorder = Recorder(clock)
    put = recorder.call("ann", "put", "news", digests=digests_of_values([b"hello"]))
    recorder.returned(put, offset=0, topic_id=1, kept=True)
    verdict = check(recorder.history)

All times of one recorder are distinct, so the events of one process are ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nextafter
from typing import Any
from typing import Protocol as Interface

from oncecast.history.operation import History, Kind, Operation


class Sink(Interface):
    """Receives the operations of a recorder that does not keep them."""

    def whole(self, operation: Operation) -> None:
        """Receive a complete operation."""

    def called(self, operation: Operation) -> None:
        """Receive an operation that may return later."""

    def returned(self, operation: Operation, answer: dict[str, Any]) -> None:
        """Receive the fields of an operation's answer."""


class Recorder:
    """Records operations. `clock` returns seconds. Without a `sink`, `history` keeps them."""

    def __init__(self, clock: Callable[[], float], sink: Sink | None = None) -> None:
        self._clock, self._sink = clock, sink
        self._last = -inf
        self.history: History = []

    def call(self, client: str, kind: Kind, topic: str, **asked: Any) -> Operation:
        """Record and return a call. Pass the call to `returned` or `refused` when it is done."""
        operation = Operation(client, kind, topic, self._now(), **asked)
        if self._sink is None:
            self.history.append(operation)
        else:
            self._sink.called(operation)
        return operation

    def returned(self, operation: Operation, **answer: Any) -> None:
        """Record the answer. Pass its values as fields of Operation."""
        answer["returned"] = self._now()
        for name, value in answer.items():
            setattr(operation, name, value)
        if self._sink is not None:
            self._sink.returned(operation, answer)

    def refused(self, operation: Operation, code: str) -> None:
        """Record that the operation was refused with this error code."""
        self.returned(operation, error=code)

    def said(self, client: str, kind: Kind, topic: str, **asked: Any) -> None:
        """Record a request that gets no answer, such as an ack sent with another request."""
        self._whole(Operation(client, kind, topic, self._now(), **asked))

    def heard(self, client: str, kind: Kind, topic: str, **answer: Any) -> None:
        """Record an event that the client did not request, such as a delivery."""
        now = self._now()
        self._whole(Operation(client, kind, topic, now, now, **answer))

    def _whole(self, operation: Operation) -> None:
        if self._sink is None:
            self.history.append(operation)
        else:
            self._sink.whole(operation)

    def _now(self) -> float:
        self._last = max(self._clock(), nextafter(self._last, inf))
        return self._last
