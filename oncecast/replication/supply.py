"""Catching up from afar: a state in pieces, then the entries that it still needs.

Who wants slots that are gone is told of a state instead, and fetches it piece by piece at its own
pace; then the entries that it refers to; and only when all of that is in its log does the state
become its own. A state nobody fetches any more is let go; as long as somebody does, its entries
stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from random import Random
from typing import Any

import google_crc32c

from oncecast.kernel.protocol import NodeId
from oncecast.replication.core import FORGOT
from oncecast.replication.events import Compact, Installed, StateWanted
from oncecast.replication.learner import Learner
from oncecast.replication.messages import (
    Ahead,
    Behind,
    Checkpoint,
    Chosen,
    Item,
    Lacking,
    Piece,
    Skipped,
    Unclaimed,
    Want,
    WantPiece,
)

TRIES = 20  # at least, without an answer; then another replica is asked


class Giving:
    """A state that others may fetch."""

    def __init__(self, ahead: Ahead, pieces: list[tuple[bytes, bool]], now: float) -> None:
        self.ahead, self.pieces, self.asked = ahead, pieces, now
        self.takers: dict[NodeId, None] = {}


class Taking:
    """A state on its way here."""

    def __init__(self, source: NodeId, ahead: Ahead) -> None:
        self.source, self.ahead = source, ahead
        self.index = 0  # of the next piece
        self.chunks: list[bytes] = []
        self.parts: list[bytes] = []  # of the next chunk
        self.slot = ahead.needed  # the first entry that may lack
        self.tries = 0

    @property
    def whole(self) -> bool:
        """Whether the chunks are those of one state."""
        return self.ahead.checksum in (0, checksum(self.chunks))


class Supplier(Learner):
    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.giving: Giving | None = None
        self.taking: Taking | None = None
        self.askers: dict[NodeId, None] = {}

    # -- the log behind a state --

    def on_compact(self, compact: Compact) -> None:
        place, needed = compact.place, min(compact.needed, compact.place + 1)
        if place < 1:  # nothing is decided yet; who wants a state must ask another one
            self.askers.clear()
            return
        if self.askers:
            self._give(compact, needed)
        if self.giving is not None:
            needed = min(needed, self.giving.ahead.needed)
        self._save(place, needed, compact.state, self.chain_at(place))

    def _save(self, place: int, needed: int, state: tuple[bytes, ...], chain: int) -> None:
        """What is behind `place` must be read again after a restart, from the lowest record on."""
        self.kept = max(self.kept, needed)
        self.places.trim(needed)
        for slot in [slot for slot in self.holes if slot < needed]:
            del self.holes[slot]
            self.recalled.pop(slot, None)
        config = self.memberships.of(place + 1)
        self.memberships.forget(place)
        checkpoint = Checkpoint(
            state,
            place,
            self.kept,
            self.life,
            self.promised,
            self.vouch,
            config,
            chain,
            self.places.state(),
            tuple(self.lost),
        )
        behind = self.places.lowest(place + 1)
        self.snapshot(checkpoint, -1 if behind is None else behind - 1)
        lowest = self.places.lowest(needed)
        self.trim(self._records.last + 1 if lowest is None else lowest)

    # -- giving --

    def on_want(self, sender: NodeId, message: Want) -> None:
        if self.giving is not None and sender in self.giving.takers:
            self.giving.asked = self.now
        items: list[Item] = []
        room = self.options.give_bytes
        for slot in range(message.first, min(message.last, self.applied) + 1):
            item = self.readable(slot)
            if item is None:
                break
            items.append(item)
            room -= len(item.data)
            if room <= 0 or len(items) >= self.options.step_slots:
                break
        if items:
            self.send(sender, Chosen(message.first, tuple(items), self.applied), after=0)
        elif message.first < self.kept:
            self._offer_state(sender)
        else:
            # What comes behind a slot that is lost here may be here all the same.
            known = message.first <= self.known_to_be_chosen
            lost = known and self.readable(message.first) is None
            self.send(sender, Lacking(message.first, lost), after=0)
            if lost and message.first <= self.applied:
                # This replica may be the only one that knows that the slot is chosen.
                self.missed(message.first)

    def tell_since(self, node: NodeId, first: int) -> None:
        if first <= self.applied:
            self.on_want(node, Want(first, self.applied))

    def _offer_state(self, to: NodeId) -> None:
        if self.giving is not None:
            self.send(to, self.giving.ahead, after=0)
        elif not self.askers:
            self.askers[to] = None
            self.emit(StateWanted())
        else:
            self.askers[to] = None

    def _give(self, compact: Compact, needed: int) -> None:
        place = compact.place
        size = self.options.piece_size(sum(map(len, compact.state)))
        pieces = in_pieces(compact.state, size)
        config = self.memberships.of(place + 1)
        total = checksum(compact.state)
        ahead = Ahead(place, needed, self.chain_at(place), config, len(pieces), total)
        self.giving = Giving(ahead, pieces, self.now)
        for node in self.askers:
            self.send(node, ahead, after=0)
        self.askers.clear()
        self.later(self.options.unclaimed_after, Unclaimed())

    def on_want_piece(self, sender: NodeId, message: WantPiece) -> None:
        giving = self.giving
        if giving is None or giving.ahead.place != message.place:
            self._offer_state(sender)
        elif 0 <= message.index < len(giving.pieces):
            giving.asked = self.now
            giving.takers[sender] = None
            data, last = giving.pieces[message.index]
            self.send(sender, Piece(message.place, message.index, data, last), after=0)

    def on_unclaimed(self) -> None:
        if self.giving is None:
            return
        left = self.giving.asked + self.options.unclaimed_after - self.now
        if left > 0:
            self.later(left, Unclaimed())
        else:
            self.giving = None

    # -- taking --

    def on_ahead(self, sender: NodeId, message: Ahead) -> None:
        if message.place <= self.applied or message.pieces < 1:
            return
        taking = self.taking
        if taking is None or (taking.source == sender and taking.ahead.place != message.place):
            self.taking = taking = Taking(sender, message)
        if taking.source == sender:
            self._take_on(taking)

    def on_piece(self, sender: NodeId, message: Piece) -> None:
        taking = self.taking
        if taking is None or taking.source != sender:
            return
        if (message.place, message.index) != (taking.ahead.place, taking.index):
            return
        taking.index, taking.tries = taking.index + 1, 0
        taking.parts.append(message.data)
        if message.last:
            taking.chunks.append(b"".join(taking.parts))
            taking.parts.clear()
        if taking.index == taking.ahead.pieces and not taking.whole:
            # A source that restarts may cut the same state into other pieces.
            self.taking = None
            self.later(self.options.resend, Behind())
            return
        self._take_on(taking)

    def on_chosen(self, sender: NodeId, message: Chosen) -> None:
        taking = self.taking
        if taking is None or taking.index < taking.ahead.pieces or sender != taking.source:
            super().on_chosen(sender, message)
            return
        for slot, item in enumerate(message.items, message.first):
            if taking.ahead.needed <= slot <= taking.ahead.place:
                self.keep_learned(slot, item)
                taking.tries = 0
        self.known = max(self.known, message.known)
        self.say_stored()
        self._take_on(taking)

    def _take_on(self, taking: Taking) -> None:
        """Ask for what lacks; if nothing does, begin a new life from there."""
        ahead = taking.ahead
        self.later(self.options.resend, Behind())
        if taking.index < ahead.pieces:
            self.send(taking.source, WantPiece(ahead.place, taking.index, self.group), after=0)
            return
        while taking.slot <= ahead.place and self._has(taking.slot):
            taking.slot += 1
        if taking.slot <= ahead.place:
            self.send(taking.source, Want(taking.slot, ahead.place, self.group), after=0)
        else:
            self._install(ahead, tuple(taking.chunks))
            self.want_from(taking.source)

    def _has(self, slot: int) -> bool:
        """Whether what was chosen for it is here: what was only voted for may be something else."""
        if slot > self.applied:
            return slot in self.told
        return self.places.get(slot) is not None

    def _install(self, ahead: Ahead, state: tuple[bytes, ...]) -> None:
        self.taking = None
        if ahead.place > self.applied:
            self.giving = None  # what an older one needs may be gone with this
            self.overtaken()
            before = self.config
            self._jump(ahead)
            self.emit(Installed(ahead.place, state))
            self._save(ahead.place, ahead.needed, state, ahead.chain)
            self.tell_members(before)
        self.advance()

    def _jump(self, ahead: Ahead) -> None:
        self.applied = place = ahead.place
        self.certain = max(self.certain, place)
        self.append(Skipped(place))
        self.replaced += FORGOT  # votes and values of skipped slots count no more
        self.chain = ahead.chain
        self.chains.append((place, ahead.chain))
        self.memberships.start(place, ahead.config)
        for kept in (self.votes, self.told, self.tallies):
            for slot in [slot for slot in kept if slot <= place]:
                del kept[slot]
        for slot in [slot for slot in self.items if slot <= place and self.settled(slot)]:
            self.let_go(slot)
        self.wanting.clear()
        self.bereft.clear()

    def overtaken(self) -> None:
        """The others are so far ahead that whatever was proposed here is decided."""

    def on_behind(self) -> None:
        taking = self.taking
        if taking is not None:
            taking.tries += 1
            if taking.tries < self._tries:
                self._take_on(taking)
                return
            self.wanting[taking.source] = None
            self.taking = None
        super().on_behind()

    @property
    def _tries(self) -> int:
        """Return how often to ask: `resend` may be shorter than a round trip."""
        return max(TRIES, ceil(self.options.suspicion / self.options.resend))


def checksum(state: Iterable[bytes]) -> int:
    """Of all chunks with their lengths; never 0."""
    total = 0
    for chunk in state:
        total = google_crc32c.extend(total, b"%d " % len(chunk))
        total = google_crc32c.extend(total, chunk)
    return total or 1


def in_pieces(state: tuple[bytes, ...], size: int) -> list[tuple[bytes, bool]]:
    """The chunks, cut to size; each piece says whether its chunk ends with it."""
    return [
        (chunk[at : at + size], at + size >= len(chunk))
        for chunk in state
        for at in range(0, max(1, len(chunk)), size)
    ]
