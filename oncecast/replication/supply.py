"""Save snapshots, send them to other replicas, and fetch one for this replica.

A replica that asks for truncated slots is offered a snapshot instead. It fetches the pieces and
then the entries that the snapshot refers to. When its log has all of them, it continues from the
snapshot. Meanwhile its source keeps those entries. A snapshot is deleted once replicas stop
fetching it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

import google_crc32c

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication import messages as m
from oncecast.replication.events import Compact, Installed, StateWanted
from oncecast.replication.leader import Leader
from oncecast.replication.learner import Learner
from oncecast.replication.messages import Item
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import Tallies
from oncecast.replication.state import Fetching, Following, Membership, Progress
from oncecast.replication.values import Values
from oncecast.replication.votes import FORGOT, Votes

TRIES = 20  # minimum number of unanswered requests before the replica tries the next source


class Giving:
    """A snapshot that this replica offers to other replicas."""

    def __init__(self, ahead: m.Ahead, pieces: list[tuple[bytes, bool]], now: float) -> None:
        self.ahead, self.pieces, self.asked = ahead, pieces, now
        self.takers: dict[NodeId, None] = {}


@dataclass(eq=False)
class Supplier:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    values: Values
    votes: Votes
    fetching: Fetching
    following: Following
    giving: Giving | None = None
    askers: dict[NodeId, None] = field(default_factory=dict)

    # -- snapshots --

    def on_compact(self, compact: Compact) -> None:
        slot, needed = compact.slot, min(compact.needed, compact.slot + 1)
        if slot < 1:  # nothing is decided yet; the askers must ask another replica
            self.askers.clear()
            return
        if self.askers:
            self._give(compact, needed)
        if self.giving is not None:
            needed = min(needed, self.giving.ahead.needed)
        self.save(slot, needed, compact.state, self.progress.chain_at(slot))

    def save(self, slot: int, needed: int, state: tuple[bytes, ...], chain: int) -> None:
        """Save a snapshot. A restart reads the log from the first record of a later slot."""
        values, votes, membership = self.values, self.votes, self.membership
        values.kept = max(values.kept, needed)
        values.index.trim(needed)
        self.fetching.forget_holes(needed)
        config = membership.history.of(slot + 1)
        membership.history.forget(slot)
        checkpoint = m.Checkpoint(
            state,
            slot,
            values.kept,
            membership.incarnation,
            votes.promised,
            votes.vouch,
            config,
            chain,
            values.index.state(),
            tuple(votes.lost),
            self.following.bound or self.options.suspicion,
        )
        behind = values.index.lowest(slot + 1)
        self.io.snapshot(checkpoint, -1 if behind is None else behind - 1)
        lowest = values.index.lowest(needed)
        self.io.trim(self.io.last_record + 1 if lowest is None else lowest)

    # -- giving --

    def on_want(self, sender: NodeId, message: m.Want) -> None:
        progress, readable = self.progress, self.values.readable
        if self.giving is not None and sender in self.giving.takers:
            self.giving.asked = self.io.now
        items: list[Item] = []
        bytes_left = self.options.give_bytes
        for slot in range(message.first, min(message.last, progress.applied) + 1):
            item = readable(slot)
            if item is None:
                break
            items.append(item)
            bytes_left -= len(item.data)
            if bytes_left <= 0 or len(items) >= self.options.step_slots:
                break
        if items:
            self.io.send(sender, m.Chosen(message.first, tuple(items), progress.applied), after=0)
        elif message.first < self.values.kept:
            self._offer_snapshot(sender)
        else:
            # This slot may be lost here although later slots are not.
            known = message.first <= progress.known_to_be_chosen
            lost = known and readable(message.first) is None
            self.io.send(sender, m.Lacking(message.first, lost), after=0)
            if lost and message.first <= progress.applied:
                # This replica may be the only one that knows that the slot is chosen.
                self.fetching.note_hole(message.first)

    def give_since(self, node: NodeId, first: int) -> None:
        """Send a removed member the slots from `first` on, which tell it of its removal."""
        applied = self.progress.applied
        if first <= applied:
            self.on_want(node, m.Want(first, applied))

    def _offer_snapshot(self, to: NodeId) -> None:
        if self.giving is not None:
            self.io.send(to, self.giving.ahead, after=0)
        elif not self.askers:
            self.askers[to] = None
            self.io.emit(StateWanted())
        else:
            self.askers[to] = None

    def _give(self, compact: Compact, needed: int) -> None:
        slot, state = compact.slot, compact.state
        pieces = in_pieces(state, self.options.piece_size(sum(map(len, state))))
        config = self.membership.history.of(slot + 1)
        if not config.members:
            # This newcomer does not know the membership, so the askers must ask another replica.
            self.askers.clear()
            return
        chain = self.progress.chain_at(slot)
        ahead = m.Ahead(slot, needed, chain, config, len(pieces), checksum(state))
        self.giving = Giving(ahead, pieces, self.io.now)
        for node in self.askers:
            self.io.send(node, ahead, after=0)
        self.askers.clear()
        self.io.later(self.options.unclaimed_after, m.Unclaimed())

    def on_want_piece(self, sender: NodeId, message: m.WantPiece) -> None:
        giving = self.giving
        if giving is None or giving.ahead.slot != message.slot:
            self._offer_snapshot(sender)
        elif 0 <= message.index < len(giving.pieces):
            giving.asked = self.io.now
            giving.takers[sender] = None
            data, last = giving.pieces[message.index]
            self.io.send(sender, m.Piece(message.slot, message.index, data, last), after=0)

    def on_unclaimed(self) -> None:
        if self.giving is None:
            return
        left = self.giving.asked + self.options.unclaimed_after - self.io.now
        if left > 0:
            self.io.later(left, m.Unclaimed())
        else:
            self.giving = None


class Taking:
    """A snapshot that this replica is fetching."""

    def __init__(self, source: NodeId, ahead: m.Ahead) -> None:
        self.source, self.ahead = source, ahead
        self.index = 0  # index of the next piece
        self.chunks: list[bytes] = []
        self.parts: list[bytes] = []  # parts of the next chunk
        self.slot = ahead.needed  # the first entry that may be missing
        self.tries = 0

    @property
    def whole(self) -> bool:
        """Return whether the checksum confirms that all chunks belong to one snapshot."""
        return self.ahead.checksum in (0, checksum(self.chunks))


@dataclass(eq=False)
class Transfer:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    values: Values
    votes: Votes
    tallies: Tallies
    fetching: Fetching
    leader: Leader
    learner: Learner
    supplier: Supplier
    taking: Taking | None = None

    def on_ahead(self, sender: NodeId, message: m.Ahead) -> None:
        if message.slot <= self.progress.applied or message.pieces < 1:
            return
        config = message.config
        if not config.members or config.version < self.membership.config.version:
            return  # the source does not know the membership of that slot
        taking = self.taking
        if taking is None or (taking.source == sender and taking.ahead.slot != message.slot):
            self.taking = taking = Taking(sender, message)
        if taking.source == sender:
            self._continue(taking)

    def on_piece(self, sender: NodeId, message: m.Piece) -> None:
        taking = self.taking
        if taking is None or taking.source != sender:
            return
        if (message.slot, message.index) != (taking.ahead.slot, taking.index):
            return
        taking.index, taking.tries = taking.index + 1, 0
        taking.parts.append(message.data)
        if message.last:
            taking.chunks.append(b"".join(taking.parts))
            taking.parts.clear()
        if taking.index == taking.ahead.pieces and not taking.whole:
            # After a restart, a source may split the same snapshot into different pieces.
            self.taking = None
            self.io.later(self.options.resend, m.Behind())
            return
        self._continue(taking)

    def take_entries(self, sender: NodeId, message: m.Chosen) -> bool:
        """Keep the entries that the snapshot needs. Return False if it needs none of them."""
        taking, progress = self.taking, self.progress
        if taking is None or taking.index < taking.ahead.pieces or sender != taking.source:
            return False
        for slot, item in enumerate(message.items, message.first):
            if taking.ahead.needed <= slot <= taking.ahead.slot:
                self.leader.hear_chosen(slot, item)
                self.votes.store_learned(slot, item)
                taking.tries = 0
        progress.known = max(progress.known, message.known)
        self.values.say_stored()
        self._continue(taking)
        return True

    def ask_again(self) -> bool:
        """Repeat the last request. Return False if there is none or the source does not answer."""
        taking = self.taking
        if taking is None:
            return False
        taking.tries += 1
        if taking.tries < self._tries:
            self._continue(taking)
            return True
        self.fetching.tried[taking.source] = None
        self.taking = None
        return False

    @property
    def _tries(self) -> int:
        """Return how often to repeat a request. `resend` may be shorter than a round trip."""
        return max(TRIES, ceil(self.options.suspicion / self.options.resend))

    def _continue(self, taking: Taking) -> None:
        """Ask for the next piece or entry. If nothing is missing, install the snapshot."""
        ahead, group = taking.ahead, self.membership.group
        self.fetching.ask(taking.source)
        self.io.later(self.options.resend, m.Behind())
        if taking.index < ahead.pieces:
            self.io.send(taking.source, m.WantPiece(ahead.slot, taking.index, group), after=0)
            return
        while taking.slot <= ahead.slot and self._has(taking.slot):
            taking.slot += 1
        if taking.slot <= ahead.slot:
            self.io.send(taking.source, m.Want(taking.slot, ahead.slot, group), after=0)
        else:
            self._install(ahead, tuple(taking.chunks))
            self.fetching.want_from(taking.source)

    def _has(self, slot: int) -> bool:
        """Return whether the chosen value is here. A value that only has a vote may differ."""
        if slot > self.progress.applied:
            return slot in self.progress.learned
        return self.values.index.get(slot) is not None

    def _install(self, ahead: m.Ahead, state: tuple[bytes, ...]) -> None:
        self.taking = None
        if ahead.slot > self.progress.applied:
            # Saving the snapshot trims slots that the offered snapshot needs.
            self.supplier.giving = None
            self.leader.overtaken()
            before = self.membership.config
            self._jump(ahead)
            self.io.emit(Installed(ahead.slot, state))
            self.supplier.save(ahead.slot, ahead.needed, state, ahead.chain)
            self.learner.tell_members(before)
            self.leader.progressed()  # a candidate may have waited only for these slots
        self.learner.advance()

    def _jump(self, ahead: m.Ahead) -> None:
        last = ahead.slot
        self.membership.start(last, ahead.config)
        self.progress.jump(last, ahead.chain)
        self.io.append(m.Skipped(last))
        self.votes.replaced += FORGOT  # votes and values of skipped slots no longer count
        for kept in (self.votes.ballots, self.progress.learned, self.tallies):
            for slot in [slot for slot in kept if slot <= last]:
                del kept[slot]
        self.values.let_go_settled(last)
        self.fetching.progressed()


def checksum(state: Iterable[bytes]) -> int:
    """Return a checksum of all chunks and their lengths. It is never 0."""
    total = 0
    for chunk in state:
        total = google_crc32c.extend(total, b"%d " % len(chunk))
        total = google_crc32c.extend(total, chunk)
    return total or 1


def in_pieces(state: tuple[bytes, ...], size: int) -> list[tuple[bytes, bool]]:
    """Split the chunks into pieces of at most `size` bytes; flag the last piece of each chunk."""
    return [
        (chunk[at : at + size], at + size >= len(chunk))
        for chunk in state
        for at in range(0, max(1, len(chunk)), size)
    ]
