"""The outbox: batches that the client has put and that no answer has settled yet.

A durable client logs each batch before it sends the batch. Answers are not logged. Instead, each
batch records which earlier batches are settled. A snapshot drops settled batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.local import NEVER
from oncecast.client.session.records import OutboxRecord
from oncecast.kernel.protocol import Protocol
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.timing import Timing

if TYPE_CHECKING:
    from oncecast.client.session.producing import Flow


class Outgoing:
    """An unsettled batch. `record` is its position in the log."""

    __slots__ = (
        "batch",
        "count",
        "create",
        "flow",
        "ids",
        "led",
        "number",
        "record",
        "refused",
        "sends",
        "sent",
        "ticket",
        "timing",
    )

    def __init__(
        self,
        flow: Flow,
        ticket: int,
        number: int,
        count: int,
        batch: bytes,
        record: int = 0,
        timing: Timing | None = None,
    ) -> None:
        self.flow, self.ticket, self.record, self.timing = flow, ticket, record, timing
        self.number, self.count, self.batch = number, count, batch
        self.create = True  # whether to create a missing topic
        self.ids: list[int] = []  # ids of the calls that carried the batch
        # Whether the batch may have been sent; true for every restored batch.
        self.sent = ticket == 0
        self.sends = int(self.sent)
        self.led = 0  # id of the last call, if all earlier batches were settled when it was sent
        self.refused: AnyRefusal | None = None


TIDY_AFTER = 0.5  # seconds after the last answer before settled batches are dropped


class Outbox:
    """Decides when to replace the outbox's log with a snapshot. `save` writes the snapshot."""

    def __init__(
        self,
        host: Protocol,
        alarm: Alarm,
        flows: dict[str, Flow],
        save: Callable[[Iterable[OutboxRecord]], None],
        *,
        durable: bool,
        bytes_max: int,
    ) -> None:
        self._host, self._alarm, self._flows, self._save = host, alarm, flows, save
        self._durable, self._bytes_max = durable, bytes_max
        # `_written_bytes` counts from the last snapshot.
        self._unsettled_bytes = self._written_bytes = 0
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
        """Drop settled batches if no batch is in flight. Otherwise try again later."""
        if any(flow.unsettled for flow in self._flows.values()):
            self._tidy_later()
        else:
            self.tidy()

    def tidy(self) -> None:
        """Drop the settled batches from the log."""
        self._due = NEVER
        self._written_bytes = 0
        self._save(record for flow in self._flows.values() for record in flow.records())
