"""A replica's promises and votes, as stored on its disk.

Ballots only increase. The kernel sends a message only when the records it depends on are on disk.
If records in a damaged log cannot be read, the replica does not guess their contents. The votes for
the affected slots count as `lost`. Each promise or vote record summarizes the earlier ones in a
Vouch, which limits the uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oncecast.kernel.protocol import Protocol
from oncecast.replication import messages as m
from oncecast.replication.ballot import BOTTOM, ROUND_MAX, Ballot
from oncecast.replication.messages import Item, Vote
from oncecast.replication.options import GroupOptions
from oncecast.replication.state import Membership, Progress
from oncecast.replication.values import Values

Range = tuple[int, int]  # first and last slot, inclusive

FAR = 1 << 62  # higher than any slot
UNLIMITED = float("inf")
# A replica that deliberately discards votes adds this to its count of replaced votes. A single vote
# adds 1, so a restart that finds more damage cannot mistake the sum for its own count.
FORGOT = 2


class Votes:
    def __init__(
        self,
        io: Protocol,
        options: GroupOptions,
        membership: Membership,
        progress: Progress,
        values: Values,
    ) -> None:
        self.io, self.options = io, options
        self.membership, self.progress, self.values = membership, progress, values
        self.promised = BOTTOM
        self.promised_in = 0  # the record number of that promise
        self.ballots: dict[int, Ballot] = {}  # ballot of each accepted but unapplied slot
        self.top = 0  # the highest slot ever accepted
        self.replaced = 0  # number of votes that replaced other votes
        self.counted: int | None = None  # `replaced` as of the last restored record, if reliable
        self.renewals = 0  # number of times that damage forced a new incarnation
        self.lost: list[Range] = []  # slots whose votes could not be read from the log
        self.damage = ""
        self.incarnation_lost = False  # whether the record of the current incarnation is lost

    @property
    def vouch(self) -> m.Vouch:
        return m.Vouch(self.top, self.renewals, self.replaced)

    # -- phase 1 --

    def store_promise(self, ballot: Ballot) -> None:
        self.promised = ballot
        self.promised_in = self.io.append(m.Promised(ballot, self.vouch))

    def restore_promise(self, ballot: Ballot) -> None:
        """Restore a promise, unless its ballot is too high for a real election.

        Earlier versions promised any ballot that they received, however high.
        """
        if ballot.round < ROUND_MAX:
            self.promised = max(self.promised, ballot)

    def report(self, ballot: Ballot, first: int, bytes_max: float = UNLIMITED) -> m.Promise:
        """Return a Promise with all votes from `first` on, or as many as `bytes_max` allows.

        The rest count as lost until the candidate has decided these slots and asks again.
        """
        progress, bytes_left = self.progress, bytes_max
        known = progress.known_to_be_chosen
        # Not up to `known`: after a restart, the replica may know fewer chosen slots.
        self.lost = after(progress.applied, self.lost)
        votes: list[Vote] = []
        lost = after(known, self.lost)
        # A value that is known to be chosen takes precedence over any vote.
        reported = self.ballots | dict.fromkeys(progress.learned, ballot)
        slots = sorted(slot for slot in reported if slot >= first and slot > known)
        for slot in slots:
            if bytes_left <= 0:
                lost.append((slot, slots[-1]))
                break
            item = self.values.readable(slot)
            if item is not None:
                votes.append(Vote(slot, reported[slot], item))
                lost = without(lost, slot)
                bytes_left -= len(item.data)
            elif not within(lost, slot):
                lost.append((slot, slot))
        incarnation = self.membership.incarnation
        return m.Promise(ballot, incarnation, first, known, tuple(votes), tuple(lost))

    # -- phase 2 --

    def accept(self, ballot: Ballot, first: int, items: Sequence[Item]) -> int:
        """Store the new items from slot `first` on. Return the last slot to acknowledge.

        A replica that is too far behind must catch up first. If a slot is known to be chosen, it
        keeps its value, even if the value is unreadable here. An older leader may propose another
        value, but no majority will accept it.
        """
        io, progress, ballots = self.io, self.progress, self.ballots
        before, learned = io.last_record, progress.learned
        known, reach = progress.known_to_be_chosen, progress.applied + self.options.ahead_slots
        for slot, item in enumerate(items, first):
            if known < slot <= reach and slot not in learned and ballots.get(slot) != ballot:
                self._store(slot, ballot, item)
        if ballot > self.promised:
            if io.last_record == before:  # no stored vote includes the ballot
                self.store_promise(ballot)
            self.promised, self.promised_in = ballot, before + 1
        return min(first + len(items) - 1, reach)

    def _store(self, slot: int, ballot: Ballot, item: Item) -> None:
        """Append a vote. Omit the value if the slot already has the same value."""
        again = slot in self.ballots
        self.voted(slot, ballot)
        self.top = max(self.top, slot)
        self.replaced += again
        if again and self.values.readable(slot) == item:
            number = self.io.append(m.Again(slot, ballot, self.vouch))
            self.values.storing.append((number, slot, ballot))
        else:
            kind, data = item
            entry = m.Entry(slot, ballot, kind, data, self.progress.applied, self.vouch)
            self.values.append(slot, item, entry, ballot)

    def voted(self, slot: int, ballot: Ballot) -> None:
        self.ballots[slot] = ballot
        if self.lost:
            self.lost = without(self.lost, slot)

    def store_learned(self, slot: int, item: Item) -> None:
        """Store a value that another replica reports as chosen."""
        if slot > self.progress.applied:
            self.progress.learned[slot] = None
        if self.values.index.get(slot) is not None and self.values.readable(slot) == item:
            return
        self.replaced += slot in self.ballots
        self.values.append(slot, item, m.Learned(slot, item.kind, item.data), BOTTOM)

    # -- a damaged log --

    def damaged(self, first: int, last: int) -> None:
        """Record that the records from `first` to `last` cannot be read.

        Their information about undecided slots is lost. The next vote in the log limits the range
        of these slots and shows whether the lost records replaced values that can still be read.
        Without such a vote, even a promise may be lost.
        """
        self.damage = f"records {first} to {last} of its log cannot be read"
        self.lost.append((self.progress.known_to_be_chosen + 1, FAR))

    def vouched(self, ballot: Ballot, vouch: m.Vouch, slot: int = 0) -> None:
        """Use the summary of earlier promises and votes in a restored record."""
        top, renewals, replaced = vouch
        self.top = max(self.top, top)
        self.restore_promise(ballot)
        counted = self.counted
        self.counted, self.replaced = replaced, max(self.replaced, replaced)
        # The first records after a snapshot may be older and belong to an earlier incarnation.
        renewed = renewals > self.renewals
        self.incarnation_lost |= renewed
        self.renewals = max(self.renewals, renewals)
        first = self._first_lost()
        if first < FAR:
            if renewed or counted is None or replaced != counted + (slot in self.ballots):
                self._doubt(first)
            self.lost = [(low, top if high == FAR else high) for low, high in self.lost]
            self.lost = [(low, high) for low, high in self.lost if low <= high]
            for voted in self.ballots:
                self.lost = without(self.lost, voted)

    def _first_lost(self) -> int:
        """Return the first slot that may be damaged and that no later record has ruled out."""
        return min((low for low, high in self.lost if high == FAR), default=FAR)

    def _doubt(self, first: int) -> None:
        """Discard votes and values from slot `first` on. Lost records may contradict them."""
        self.values.cut(max(first, self.progress.applied + 1))
        self.ballots.clear()
        self.replaced += FORGOT

    @property
    def promise_uncertain(self) -> bool:
        """Return whether a promise or the current incarnation may be lost."""
        return self.incarnation_lost or any(high == FAR for _, high in self.lost)

    def begin_incarnation(self, incarnation: int, renewals: int) -> None:
        """Begin an incarnation: drop all votes, and all values that are not known to be chosen."""
        self._doubt(min(self._first_lost(), self.progress.known_to_be_chosen + 1))
        self.counted = self.replaced
        self.membership.incarnation = incarnation
        self.renewals = max(self.renewals, renewals)
        self.incarnation_lost = False
        self.lost.clear()


def without(ranges: Iterable[Range], slot: int) -> list[Range]:
    """Return the ranges without `slot`."""
    left: list[Range] = []
    for first, last in ranges:
        if first <= slot <= last:
            left += [part for part in ((first, slot - 1), (slot + 1, last)) if part[0] <= part[1]]
        else:
            left.append((first, last))
    return left


def after(slot: int, ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges without the slots up to `slot`."""
    return [(max(first, slot + 1), last) for first, last in ranges if last > slot]


def within(ranges: Iterable[Range], slot: int) -> bool:
    return any(first <= slot <= last for first, last in ranges)
