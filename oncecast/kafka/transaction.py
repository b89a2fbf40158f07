"""The state of one transactional id: its epoch, its open transaction, and what ended last.

    READY ──first partition or group──▶ BEGINNING ──marker is stored──▶ OPEN
    OPEN ──EndTxn──▶ ENDING ──answered──▶ READY
    ENDING ──outcome unknown──▶ IN_DOUBT ──EndTxn──▶ ENDING
    any state ──failure──▶ LOST ──the client aborts──▶ READY

The node numbers the transactions of an epoch. The front end uses two numbers for each transaction.
It ends the even number as soon as the transaction begins. This marker has no effect, but it is
stored. The odd number after it is the transaction itself. So a front end that has restarted can
ask for the number that ended last, and knows whether a transaction was open (`recovering`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from oncecast.kafka.errors import Code
from oncecast.kafka.offsets import Position
from oncecast.wire.commands import Stage
from oncecast.wire.transactions import Consumed, EndTransaction

SEQUENCES = 1 << 31  # after this many sequence numbers, a Kafka producer starts again at 0

Then = Callable[[Code], None]

# The transaction is aborted. Clients abort it too, and may then begin another one.
ABORTED = Code.INVALID_PRODUCER_ID_MAPPING


class State(Enum):
    READY = auto()
    BEGINNING = auto()
    OPEN = auto()
    ENDING = auto()
    IN_DOUBT = auto()  # the node may have committed it; the client asks again
    LOST = auto()  # the transaction is aborted, but its client does not know it yet


class Transactional:
    """A transactional id that a client has opened with InitProducerId."""

    def __init__(self, source: str, home: str, epoch: int, *, ring: bool) -> None:
        self.source, self.home, self.epoch, self.ring = source, home, epoch, ring
        self.state = State.READY
        self.ended = -1  # the number that ended last
        self.committed = False  # whether it was committed
        self.waiting: list[Then] = []  # requests that wait for the beginning or the end
        self._topics: dict[str, tuple[int, int]] = {}  # a number and the first sequence of each
        self._parts: dict[tuple[int, int], str] = {}  # names by topic and sequence
        self._offsets: dict[tuple[str, str], tuple[Position, int]] = {}  # by group and topic

    @property
    def number(self) -> int:
        """Return the number of the open transaction."""
        return self.ended + 1

    def allows(self, tag: str) -> bool:
        """Return whether topics with this tag may be part of a transaction."""
        return not self.ring or tag == self.home

    def marker(self) -> EndTransaction:
        """Return the command that marks the beginning of the next transaction."""
        return self._end(self.ended + 2 - self.ended % 2, commit=False)

    def end(self, *, commit: bool) -> EndTransaction:
        parts = tuple(self._parts[key] for key in sorted(self._parts)) if commit else ()
        consumed = tuple(
            Consumed(topic, group, position.epoch, position.cursor, upto)
            for (group, topic), (position, upto) in self._offsets.items()
            if upto > position.cursor
        )
        return self._end(self.number, commit=commit, parts=parts, consumed=consumed)

    def _end(
        self,
        number: int,
        *,
        commit: bool,
        parts: tuple[str, ...] = (),
        consumed: tuple[Consumed, ...] = (),
    ) -> EndTransaction:
        # The client has the results of all earlier numbers, because it waits for each.
        facts = (self.source, self.home, self.epoch, number, number, 0)
        return EndTransaction(*facts, commit, parts, (), consumed)

    def stage(self, topic: str, sequence: int, count: int, batch: bytes) -> Stage:
        """Return the command that stages a batch. A copy of the batch gets the same command."""
        number, first = self._topics.setdefault(topic, (len(self._topics), sequence))
        # Batches can arrive in another order, and sequences wrap.
        order = (sequence - first + SEQUENCES // 2) % SEQUENCES
        name = self._parts.setdefault((number, order), f"{number}/{sequence}")
        size = len(batch)
        return Stage(self.source, self.number, name, topic, count, size, 0, batch, epoch=self.epoch)

    def consume(self, group: str, topic: str, position: Position, upto: int) -> None:
        self._offsets[group, topic] = (position, upto)

    def groups(self) -> list[tuple[str, str]]:
        """Return the groups and topics whose offsets are part of the transaction."""
        return list(self._offsets)

    def finished(self, number: int, *, committed: bool) -> None:
        """Note the end of a transaction, and forget its content."""
        self.ended, self.committed = number, committed
        if committed:
            for position, upto in self._offsets.values():
                position.cursor = max(position.cursor, upto)
        self._topics.clear()
        self._parts.clear()
        self._offsets.clear()

    def answer(self, code: Code) -> None:
        """Answer all requests that wait."""
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(code)
