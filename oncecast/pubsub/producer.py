"""What a topic knows of one producer: exact dedup in a record whose size does not grow."""

from __future__ import annotations

from array import array

RUNS_MAX = 8


class Producer:
    """`next` is the only sequence it may append; all below it is in the topic, once.

    A run is a stretch in which offset and sequence grew together. The last few are kept so that a
    repeated put can be told where it is: a lone producer of a topic has only one.
    """

    __slots__ = ("epoch", "life", "next", "runs")

    def __init__(self, epoch: int, life: str) -> None:
        self.epoch = epoch
        self.life = life  # empty: a source of staged puts
        self.next = 0
        self.runs = array("Q")  # sequence and offset of each run's beginning, oldest first

    def appended(self, offset: int, count: int) -> None:
        runs = self.runs
        if not runs or offset - runs[-1] != self.next - runs[-2]:
            runs.append(self.next)
            runs.append(offset)
            del runs[: -2 * RUNS_MAX]
        self.next += count

    def offset_of(self, sequence: int, count: int) -> int:
        """Where these messages are, if they lie together and it is still known; otherwise -1."""
        end = self.next
        for at in range(len(self.runs) - 2, -1, -2):
            begin = self.runs[at]
            if sequence >= begin:
                return self.runs[at + 1] + sequence - begin if sequence + count <= end else -1
            end = begin
        return -1
