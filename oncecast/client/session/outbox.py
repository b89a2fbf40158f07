"""The outbox: batches that the client has put and the node has not answered for.

A durable client appends each batch to its log before it sends it. Answers are not logged: the next
batch records which batches before it are settled, and a snapshot drops the settled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.local import NEVER
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire.errors import AnyRefusal

if TYPE_CHECKING:
    from oncecast.client.session.producing import Flow


class Queued(Value, tag="Queued"):
    """A batch in the outbox. Messages with numbers below `settled` are settled."""

    topic: str
    number: int
    count: int
    settled: int
    batch: bytes


class Based(Value, tag="Based"):
    """In topic `topic_id`, message `number` has this sequence, the next one the next sequence, ...

    `record` is the id of the topic's record of this producer; 0 if the node does not report it.
    """

    topic: str
    topic_id: int
    number: int
    sequence: int
    record: int = 0


class Settled(Value, tag="Settled"):
    topic: str
    number: int


class Outgoing:
    """A batch that is not settled. `record` is its number in the log."""

    __slots__ = (
        "batch",
        "count",
        "flow",
        "ids",
        "led",
        "number",
        "record",
        "refused",
        "sends",
        "sent",
        "ticket",
    )

    def __init__(
        self, flow: Flow, ticket: int, number: int, count: int, batch: bytes, record: int = 0
    ) -> None:
        self.flow, self.ticket, self.record = flow, ticket, record
        self.number, self.count, self.batch = number, count, batch
        self.ids: list[int] = []  # ids of the calls that carried the batch
        self.sent = ticket == 0  # whether it was ever sent; a restored batch may have been
        self.sends = int(self.sent)
        self.led = 0  # the last call, if all batches before it were settled when it was sent
        self.refused: AnyRefusal | None = None


Record = Queued | Based | Settled


TIDY_AFTER = 0.5  # seconds after the last answer until settled batches are dropped


class Outbox:
    """Decides when the log of the outbox is replaced by a snapshot, which `save` makes."""

    def __init__(
        self,
        host: Protocol,
        alarm: Alarm,
        flows: dict[str, Flow],
        save: Callable[[Iterable[Record]], None],
        *,
        durable: bool,
        bytes_max: int,
    ) -> None:
        self._host, self._alarm, self._flows, self._save = host, alarm, flows, save
        self._durable, self._bytes_max = durable, bytes_max
        self._unsettled_bytes = self._written_bytes = 0  # written: since the last snapshot
        self._due = NEVER

    def restored(self, size: int) -> None:
        self._unsettled_bytes += size

    def wrote(self, size: int) -> None:
        self._unsettled_bytes += size
        self._written_bytes += size
        if self._written_bytes > self._bytes_max + 4 * self._unsettled_bytes:
            self.tidy()

    def settled(self, size: int) -> None:
        if self._durable:
            self._unsettled_bytes -= size
            if self._due == NEVER:
                self._tidy_later()

    def tick(self, now: float) -> None:
        if now >= self._due:
            self._tidy_when_idle()
        elif self._due < NEVER:
            self._alarm.due(self._due)

    def _tidy_later(self) -> None:
        self._due = self._host.now + TIDY_AFTER
        self._alarm.due(self._due)

    def _tidy_when_idle(self) -> None:
        """Tidy unless batches are in flight. The next batch records the settled ones."""
        if any(flow.unsettled for flow in self._flows.values()):
            self._tidy_later()
        else:
            self.tidy()

    def tidy(self) -> None:
        """Drop the settled batches from the log."""
        self._due = NEVER
        self._written_bytes = 0
        self._save(record for flow in self._flows.values() for record in flow.records())
