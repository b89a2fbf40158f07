"""The location of consecutive messages in the log."""

from __future__ import annotations

from oncecast.kernel.protocol import Value


class Extent(Value):
    """A slice of a batch: `count` messages after the first `skip`, starting at `offset`.

    The command in `slot` contains their bytes and producer. `sequence` is the sequence number of
    the first message. If it is -1, that number is the command's sequence plus `skip`.
    """

    slot: int
    skip: int
    count: int
    offset: int
    sequence: int = -1
