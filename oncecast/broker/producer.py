"""A producer's record in a topic, which detects duplicates exactly and in constant space."""

from __future__ import annotations

from array import array

RUNS_MAX = 8
NO_OFFSET = (1 << 64) - 1  # the offset of a run of delayed messages, which have no offset yet
DIRECTORIES_KEPT = 4  # number of earlier state directories to remember if the group sets no limit


class Producer:
    """A producer. `next` is the next sequence number; each lower one was appended exactly once.

    A run is a range in which offset and sequence number increase together. The last runs are kept
    so that the answer to a repeated put can contain its offset. A topic's only producer has one
    run.

    `directory_id` identifies the state directory that assigns sequence numbers. Several directories
    may use the same producer name, and each needs numbers of its own. The current directory has put
    all messages from `since` on. `earlier` contains the last range of every other directory.

    Idle records are deleted. Each new record under a name gets a new `record` number, so that a
    client notices when its record was deleted.
    """

    __slots__ = (
        "directory_id",
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
        self.incarnation = incarnation  # empty for a source
        self.next = 0
        self.record = self.used = 0  # 0 if the record never expires
        self.runs = array("Q")  # first sequence and offset of each run, oldest first
        self.directory_id, self.since = "", 0
        self.earlier: dict[str, tuple[int, int]] = {}  # last sequence range by state directory

    def follow_use(self, time: int) -> None:
        """Start measuring the record's idle time at `time`."""
        self.record = self.record or self.epoch
        self.used = time

    def knows(self, directory_id: str) -> bool:
        return directory_id == self.directory_id or directory_id in self.earlier

    def keep(self, directory_id: str, *, forget: bool) -> tuple[int, int]:
        """Make `directory_id` current. Return the last sequence range that it has put.

        `forget` drops all but the last few other directories, as in older logs.
        """
        if directory_id != self.directory_id:
            if self.next > self.since:
                self.earlier.pop(self.directory_id, None)
                self.earlier[self.directory_id] = (self.since, self.next)
            self.directory_id, self.since = directory_id, self.next
            first, end = self.earlier.get(directory_id, (self.next, self.next))
            if end == self.next:  # no other directory has put messages since
                self.since = first
                self.earlier.pop(directory_id, None)
            for oldest in list(self.earlier)[:-DIRECTORIES_KEPT] if forget else ():
                del self.earlier[oldest]
        if self.next > self.since:
            return self.since, self.next
        return self.earlier.get(directory_id, (self.next, self.next))

    def appended(self, offset: int, count: int) -> None:
        runs = self.runs
        if not runs or offset - runs[-1] != self.next - runs[-2]:
            runs.append(self.next)
            runs.append(offset)
            del runs[: -2 * RUNS_MAX]
        self.next += count

    def delayed(self, count: int) -> None:
        """Count messages that are stored, but get their offsets later."""
        runs = self.runs
        if not runs or runs[-1] != NO_OFFSET:
            runs.append(self.next)
            runs.append(NO_OFFSET)
            del runs[: -2 * RUNS_MAX]
        self.next += count

    def offset_of(self, sequence: int, count: int) -> int:
        """Return the first offset of these messages, or -1 if unknown or if they are split up."""
        end = self.next
        for at in range(len(self.runs) - 2, -1, -2):
            begin, offset = self.runs[at], self.runs[at + 1]
            if sequence >= begin:
                split = sequence + count > end or offset == NO_OFFSET
                return -1 if split else offset + sequence - begin
            end = begin
        return -1
