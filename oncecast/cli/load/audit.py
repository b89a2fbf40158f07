"""Check, for `oncecast load`, that each message is delivered once and in order.

Each message value starts with `producer.sequence`. Each producer counts its sequences per topic. A
reader may `rewind`; messages are then delivered again, marked `redelivered`. A reader may also
unsubscribe and `resubscribe`. It then expects all messages from the new offset on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncecast.wire.message import Message


def value_of(producer: str, sequence: int, size: int) -> bytes:
    return f"{producer}.{sequence} ".encode().ljust(size, b".")


def id_of(value: bytes) -> tuple[str, int]:
    """Return the producer and the sequence, or ("", -1) for a value from another program."""
    producer, _, number = value.split(b" ", 1)[0].decode(errors="replace").rpartition(".")
    return (producer, int(number)) if number.isdecimal() else ("", -1)


@dataclass
class Reading:
    """The deliveries to one subscription. The topic is new, so offsets start at 0."""

    next: int = 0  # the offset of the next delivery
    seen: int = 0  # all offsets before this one were delivered at least once
    # Highest delivered sequence number, by producer.
    last: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    redelivered: int = 0
    forgone: int = 0  # messages put between unsubscribe and subscribe

    def deliver(self, message: Message) -> bool:
        """Record a delivery. Return whether it is the first one of this message."""
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
        """Count the message as out of order if its producer put it before the previous message."""
        producer, sequence = id_of(message.value)
        newest = self.last.get(producer, -1)
        if sequence <= newest or (producer, sequence) != (message.producer, message.sequence):
            self.out_of_order += 1
        self.last[producer] = max(newest, sequence)

    def rewind(self, offset: int) -> None:
        """Expect the messages from `offset` on again."""
        self.next = offset

    def resubscribe(self, offset: int) -> int:
        """Start a new subscription at `offset`. Return how many messages it skips."""
        forgone = max(0, offset - self.seen)
        self.forgone += forgone
        self.next, self.seen = offset, max(self.seen, offset)
        return forgone

    def end(self, total: int) -> None:
        """End the audit. `total` messages were stored, and no more will arrive."""
        self.lost += max(0, total - self.seen)
        self.duplicated += max(0, self.seen - total)
