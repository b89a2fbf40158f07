"""The promises that a candidate has received, and the values that slots may already have."""

from __future__ import annotations

from oncecast.replication.messages import NOOP, Item, Promise, Vote, highest
from oncecast.replication.quorum import Config, Member
from oncecast.replication.votes import within


class Promises:
    def __init__(self) -> None:
        self.members: dict[Member, Promise] = {}
        self.known = 0  # the last slot up to which a member reported all slots as chosen
        self.horizon = 0  # the last slot that any member reported
        self._votes: dict[int, dict[Member, Vote]] = {}  # by slot
        self._agreed: Config | None = None  # a membership of which a majority has promised

    def add(self, member: Member, promise: Promise) -> None:
        self.members[member] = promise
        self.known = max(self.known, promise.known)
        self.horizon = max(self.horizon, promise.known)
        for _, last in promise.lost:
            self.horizon = max(self.horizon, last)
        for vote in promise.votes:
            self.horizon = max(self.horizon, vote.slot)
            self._votes.setdefault(vote.slot, {})[member] = vote

    def cover(self, slot: int, config: Config) -> bool:
        """Return whether a majority has reported every vote it ever cast for this slot."""
        if slot > self.horizon:
            if config is not self._agreed and config.agreed(self.members):
                self._agreed = config
            return config is self._agreed
        return config.agreed(
            {
                member: None
                for member, promise in self.members.items()
                if promise.known < slot and not within(promise.lost, slot)
            }
        )

    def value(self, slot: int, config: Config) -> Item:
        """Return the value to propose: the vote with the highest ballot, or a no-op.

        As in `cover`, only members' votes count: another node may have seen a later ballot.
        """
        votes = self._votes.get(slot, {})
        best = highest(votes[member] for member in config.members if member in votes)
        return Item(NOOP, b"") if best is None else best.item

    def forget(self, slot: int) -> None:
        self._votes.pop(slot, None)
