"""Records and timers of a client session."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.wire.timing import Timing


class Queued(Value, tag="Queued"):
    """A batch in the outbox. Messages with numbers below `settled` are settled."""

    topic: str
    number: int
    count: int
    settled: int
    batch: bytes
    timing: Timing | None = None


class Based(Value, tag="Based"):
    """Maps numbers to sequences: message `number` has this sequence, and later ones follow.

    The mapping is valid in the topic with id `topic_id`. `record` is the id of the topic's record
    of the producer, or 0 if the node does not report it.
    """

    topic: str
    topic_id: int
    number: int
    sequence: int
    record: int = 0


class Settled(Value, tag="Settled"):
    topic: str
    number: int


class Withdrawn(Value, tag="Withdrawn"):
    """Batches from this number on were refused before they were sent. Their numbers are reused."""

    topic: str
    number: int


class Named(Value, tag="Named"):
    """The client's name and the id of its outbox."""

    producer: str
    directory_id: str


class Redial(Value):
    """Timer: send the requests to the node of this group again."""

    group: str


class AskAround(Value):
    """Timer: ask the other nodes of this group which node leads."""

    group: str


class Rebound(Value):
    """Timer: the routes of some topics have changed."""


class Sweep(Value):
    """Timer: delete unused bindings."""


class Tick(Value):
    """Timer: check which deadlines have passed."""


OutboxRecord = Queued | Based | Settled | Withdrawn


class ClientState(Value, tag="ClientState"):
    """A snapshot: the name of the client, the id of its outbox, and the open batches."""

    producer: str
    directory_id: str
    records: tuple[OutboxRecord, ...]
