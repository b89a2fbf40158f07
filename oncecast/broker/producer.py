"""What a topic knows of one producer: exact dedup in a record whose size does not grow."""

from __future__ import annotations

from array import array

RUNS_MAX = 8
BOOKS_MAX = 4  # that a log of an older version remembers, of others


class Producer:
    """`next` is the only sequence it may append; all below it is in the topic, once.

    A run is a stretch in which offset and sequence grew together. The last few are kept so that a
    repeated put can be told where it is: a lone producer of a topic has only one.

    Sequences are numbers in somebody's books. Should several keep books under one name, each must
    know which sequences are its own: `books` has put all since `since`, others what is `earlier`.

    A record that is not used for long is given back. `record` is a number that no other record of
    the name has, so that a client can tell that the record it knew is gone.
    """

    __slots__ = (
        "books",
        "earlier",
        "epoch",
        "incarnation",
        "next",
        "record",
        "runs",
        "since",
        "used",
    )

    def __init__(self, epoch: int, incarnation: str) -> None:
        self.epoch = epoch
        self.incarnation = incarnation  # empty: a source of staged puts
        self.next = 0
        self.record = self.used = 0  # 0: it is kept for as long as the topic
        self.runs = array("Q")  # sequence and offset of each run's beginning, oldest first
        self.books, self.since = "", 0
        self.earlier: dict[str, tuple[int, int]] = {}  # the first sequence of each, and the end

    def follow_use(self, time: int) -> None:
        """From now on it counts how long the record is not used."""
        self.record = self.record or self.epoch
        self.used = time

    def knows(self, books: str) -> bool:
        return books == self.books or books in self.earlier

    def keep(self, books: str, *, forget: bool) -> tuple[int, int]:
        """What comes next is in these books. From where to where did they put last?

        To `forget` all but the last few others is the rule of older logs.
        """
        if books != self.books:
            if self.next > self.since:
                self.earlier.pop(self.books, None)
                self.earlier[self.books] = (self.since, self.next)
            self.books, self.since = books, self.next
            first, end = self.earlier.get(books, (self.next, self.next))
            if end == self.next:  # nobody else has put meanwhile
                self.since = first
                self.earlier.pop(books, None)
            for oldest in list(self.earlier)[:-BOOKS_MAX] if forget else ():
                del self.earlier[oldest]
        if self.next > self.since:
            return self.since, self.next
        return self.earlier.get(books, (self.next, self.next))

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
