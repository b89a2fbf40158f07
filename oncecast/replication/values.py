"""Slot values: stored in the log, and held in memory until they are applied and on disk.

A value is appended once, when it is accepted or learned. The index maps each slot to its record.
"""

from __future__ import annotations

from collections import deque

from oncecast.errors import Corrupt, NoSuchRecord
from oncecast.kernel.protocol import Protocol
from oncecast.replication.ballot import BOTTOM, Ballot
from oncecast.replication.index import SlotIndex
from oncecast.replication.messages import Entry, Item, Learned, Stored
from oncecast.replication.options import GroupOptions
from oncecast.replication.state import Progress


class Values:
    def __init__(self, io: Protocol, options: GroupOptions, progress: Progress) -> None:
        self.io, self.options, self.progress = io, options, progress
        self.index = SlotIndex()
        self.kept = 1  # the first slot that is still in the log
        self.items: dict[int, Item] = {}  # values that are not applied yet, or not on disk yet
        self.held_bytes = 0  # total size of `items`
        self.stored = 0  # the last record that is on disk
        # Record number, slot and ballot of each value that is being stored.
        self.storing: deque[tuple[int, int, Ballot]] = deque()

    # -- writing --

    def append(self, slot: int, item: Item, record: Entry | Learned, ballot: Ballot) -> None:
        """Append a value; `ballot` is BOTTOM unless the record is a vote."""
        number = self.io.append(record)
        self.index.put(slot, number)
        self.hold(slot, item)
        self.storing.append((number, slot, ballot))

    def append_again(self, slot: int, item: Item) -> None:
        """Write a membership a second time.

        If the only copy were unreadable, the replica would not know which nodes have the lost
        values.
        """
        self.io.append(Learned(slot, item.kind, item.data))

    def say_stored(self) -> None:
        """Send Stored to this node. It arrives when all appended records are on disk."""
        self.io.send(self.io.me, Stored(self.io.last_record))

    def on_disk(self, record: int) -> list[tuple[int, Ballot]]:
        """Return the slot and ballot of each vote that has just reached the disk."""
        self.stored = max(self.stored, record)
        done: list[tuple[int, Ballot]] = []
        storing, progress = self.storing, self.progress
        while storing and storing[0][0] <= record:
            _, slot, ballot = storing.popleft()
            done_with = slot <= progress.applied or slot in progress.learned or self._holds_much()
            if done_with and self.settled(slot):
                self.let_go(slot)
            if ballot != BOTTOM:
                done.append((slot, ballot))
        return done

    def settled(self, slot: int) -> bool:
        """Return whether this slot's record is on disk and can be read."""
        return not self.storing or self.storing[0][0] > (self.index.get(slot) or 0)

    @property
    def durable(self) -> int:
        """Return the last slot up to which all slots are applied and on disk."""
        applied = self.progress.applied
        return min((slot - 1 for _, slot, _ in self.storing if slot <= applied), default=applied)

    # -- in memory --

    def found(self, slot: int, number: int, item: Item) -> None:
        """Note that record `number` of the restored log holds the value of `slot`."""
        self.index.put(slot, number)
        self.let_go(slot)
        if self.progress.applied < slot and self._may_hold_more():
            self.hold(slot, item)

    def _may_hold_more(self) -> bool:
        """Return whether more values fit in memory. Many values may wait behind a hole."""
        return len(self.items) < 2 * self.options.window_slots and not self._holds_much()

    def _holds_much(self) -> bool:
        return self.held_bytes >= 2 * self.options.window_bytes

    def hold(self, slot: int, item: Item) -> None:
        self.let_go(slot)
        self.items[slot] = item
        self.held_bytes += len(item.data)

    def let_go(self, slot: int) -> None:
        item = self.items.pop(slot, None)
        if item is not None:
            self.held_bytes -= len(item.data)

    def let_go_settled(self, slot: int) -> None:
        """Drop the values up to `slot` from memory if they can be read from disk."""
        for each in [each for each in self.items if each <= slot and self.settled(each)]:
            self.let_go(each)

    def cut(self, first: int) -> None:
        """Drop the values of slot `first` and all later slots."""
        self.index.cut(first)
        for slot in [slot for slot in self.items if slot >= first]:
            self.let_go(slot)

    # -- reading --

    def item(self, slot: int) -> Item:
        held = self.items.get(slot)
        if held is not None:
            return held
        number = self.index.get(slot)
        if number is None:
            raise NoSuchRecord(f"slot {slot} is not in this replica's log")
        record = self.io.recall(number)
        assert isinstance(record, Entry | Learned)
        return Item(record.kind, record.data)

    def readable(self, slot: int) -> Item | None:
        """Return the item, or None if it is damaged or missing."""
        try:
            return self.item(slot)
        except (Corrupt, NoSuchRecord):
            return None
