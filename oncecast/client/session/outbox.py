"""What a publisher has put and the node has not answered for, and how it is written down.

A durable client appends each batch before it is sent. Of the answers it writes nothing: the next
batch says what was settled before it, and a snapshot gives the rest back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.kernel.protocol import Value
from oncecast.wire.errors import AnyRefusal

if TYPE_CHECKING:
    from oncecast.client.session.producing import Flow


class Queued(Value, tag="Queued"):
    """A batch in the outbox. All before `settled` needs no care any more."""

    topic: str
    number: int
    count: int
    settled: int
    batch: bytes


class Based(Value, tag="Based"):
    """In topic life `topic_id`, message `number` has this sequence, and so on from there.

    `record` names what the topic knows of the producer; 0: the node does not tell.
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
    """A batch that is not settled. `record` holds it in the outbox."""

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
        self.ids: list[int] = []  # of the calls that carried it
        self.sent = ticket == 0  # ever; what is restored may have been
        self.sends = int(self.sent)
        self.led = 0  # the last of them, if all before it was settled by then
        self.refused: AnyRefusal | None = None


Record = Queued | Based | Settled
