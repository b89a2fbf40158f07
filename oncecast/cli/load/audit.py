"""Was each message delivered once and in order? Bookkeeping for `oncecast load`.

A message says in its value which it is: `producer.sequence`, counted by whoever puts it, topic by
topic. A reader may ask for messages again (`back`), and must then get them, marked `redelivered`.
It may unsubscribe and subscribe `anew`, and is then owed what comes from there on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecast.wire.batch import Message


def value_of(producer: str, sequence: int, size: int) -> bytes:
    return f"{producer}.{sequence} ".encode().ljust(size, b".")


def id_of(value: bytes) -> tuple[str, int]:
    """Producer and sequence; a value that is not ours is of nobody."""
    producer, _, number = value.split(b" ", 1)[0].decode(errors="replace").rpartition(".")
    return (producer, int(number)) if number.isdecimal() else ("", -1)


@dataclass
class Reading:
    """What one subscription of one topic has got. Our topics are new: their offsets begin at 0."""

    next: int = 0  # the offset that must come now
    seen: int = 0  # offsets before this one came at least once
    last: dict[str, int] = field(default_factory=dict)  # by producer: its newest that came
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    redelivered: int = 0
    forgone: int = 0  # by unsubscribing: nobody owes them to this reader any more

    def deliver(self, message: Message) -> bool:
        """Whether it came for the first time."""
        first = message.offset >= self.seen
        if message.offset > self.next:
            self.lost += message.offset - self.next
        elif message.offset < self.next or (not first and not message.redelivered):
            self.duplicated += 1
        if first:
            self._in_order(message)
            self.seen = message.offset + 1
        else:
            self.redelivered += 1
        self.next = message.offset + 1
        return first

    def _in_order(self, message: Message) -> None:
        """A producer's messages come as it has put them, one by one."""
        producer, sequence = id_of(message.value)
        newest = self.last.get(producer, -1)
        if sequence <= newest or (producer, sequence) != (message.producer, message.sequence):
            self.out_of_order += 1
        self.last[producer] = max(newest, sequence)

    def back(self, offset: int) -> None:
        """From here once more, as the reader has asked for."""
        self.next = offset

    def anew(self, offset: int) -> int:
        """Unsubscribed, and subscribed again from here on; how many are forgone by that."""
        forgone = max(0, offset - self.seen)
        self.forgone += forgone
        self.next, self.seen = offset, max(self.seen, offset)
        return forgone

    def end(self, total: int) -> None:
        """So many were stored, and no more will come."""
        self.lost += max(0, total - self.seen)
        self.duplicated += max(0, self.seen - total)
