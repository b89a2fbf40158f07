"""HyParView: membership with a small active view and a larger random passive view.

Leitao, Pereira and Rodrigues, "HyParView: a membership protocol for reliable gossip-based
broadcast", DSN 2007. Names follow the paper. Broadcasts use the active view, which is symmetric.
Each node watches the links to its active peers. The passive view is a reserve of candidates that
replace lost neighbours. Shuffles along random walks keep it fresh.

Needs links (watch), and a contact for every node except the first. Emits NeighborUp and
NeighborDown alternately for each peer.

The network may lose, repeat or delay messages, and nodes may restart. So we add to the paper:

- A walk uses only links in the active view. If a walk comes from a node that is not a neighbour,
  the receiver answers Disconnect. This tells the sender that the link is one-sided.
- A node draws an incarnation when it starts. A neighbour with a new incarnation has restarted, so
  the node emits NeighborDown and NeighborUp for it. A repeated request changes nothing.
- A node asks a neighbour again after their link broke. If only the network failed, nothing else
  would join the two halves again.
- Occasionally, a node trades a neighbour for a peer from its passive view. Otherwise two parts of
  the overlay whose views are all full would never connect again.
- A node that finds no neighbour in its passive view joins again through its contacts.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import ClassVar, assert_never

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import ORIGIN_LENGTH_MAX, NeighborDown, NeighborUp
from oncecast.overlay.messages import (
    Accepted,
    Alone,
    Cycle,
    Disconnect,
    ForwardJoin,
    HyParViewMessage,
    Join,
    Neighbor,
    Refused,
    Shuffle,
    ShuffleReply,
    Unanswered,
    Walk,
)

WALK_MAX = 64  # maximum steps that a peer may request for a walk
SAMPLE_MAX = 256  # maximum names per message


class HyParView(Protocol):
    name = "hyparview"
    Message = HyParViewMessage
    Timer: ClassVar = Cycle | Unanswered | Alone

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        contacts: Iterable[NodeId],
        active_max: int = 5,
        passive_max: int = 30,
        active_walk: int = 6,
        passive_walk: int = 3,
        shuffle_active: int = 3,
        shuffle_passive: int = 4,
        shuffle_every: float = 10.0,
        answer_within: float = 2.0,
        retry_every: float = 1.0,
        refill_at_once: bool = False,
        trade_chance: float = 0.01,
    ) -> None:
        super().__init__(me, rng)
        assert min(active_max, passive_max) > 0, "active_max and passive_max must be at least 1"
        self.contacts = [contact for contact in dict.fromkeys(contacts) if contact != me]
        self.active_max, self.passive_max = active_max, passive_max
        self.active_walk, self.passive_walk = active_walk, passive_walk
        self.shuffle_active, self.shuffle_passive = shuffle_active, shuffle_passive
        self.shuffle_every, self.answer_within = shuffle_every, answer_within
        self.retry_every, self.refill_at_once = retry_every, refill_at_once
        self.trade_chance = trade_chance
        self.incarnation = 0
        # Dicts serve as ordered sets: a set of strings iterates differently in each process.
        self.active: dict[NodeId, int] = {}  # incarnation by neighbour
        self.passive: dict[NodeId, None] = {}
        self.asked: dict[NodeId, bool] = {}  # pending neighbour requests; True for high priority
        self.tried: dict[NodeId, None] = {}  # peers that had a full view in this cycle
        # The last peers that did not answer, or whose link broke.
        self.lost: dict[NodeId, None] = {}
        self.lacking = False  # whether a neighbour was lost and no candidate is left
        self.offered: tuple[NodeId, ...] = ()  # the names in the last shuffle that this node sent
        self.dropped = 0  # invalid messages

    def start(self) -> None:
        self.incarnation = self.rng.getrandbits(62)
        self._next_cycle()
        self._join()

    def receive(self, sender: NodeId, message: HyParViewMessage) -> None:
        if sender == self.me or not possible(message):
            self.dropped += 1
            return
        match message:
            case Shuffle() | ForwardJoin():
                self._receive_walk(sender, message)
            case ShuffleReply(sample):
                self._receive_reply(sample)
            case Join(incarnation):
                if self._welcome(sender, incarnation):
                    for peer in self._others(sender):
                        self.send(peer, ForwardJoin(sender, self.active_walk))
            case Neighbor(incarnation, urgent):
                if urgent or sender in self.active or self._has_vacancy():
                    self._welcome(sender, incarnation)
                else:
                    self.send(sender, Refused())
            case Accepted(incarnation):
                self._receive_accepted(sender, incarnation)
            case Refused():
                if sender in self.asked:
                    self._spare(sender)
                    self._fill()
            case Disconnect():
                if sender in self.active or sender in self.asked:
                    self._spare(sender)
                    # We understand the paper to fill the view only in the next cycle.
                    if self.refill_at_once or not self.active:
                        self._fill()
            case _:
                assert_never(message)

    def timeout(self, timer: Cycle | Unanswered | Alone) -> None:
        match timer:
            case Cycle():
                self.tried.clear()
                self._ask_a_lost_one()
                self._trade()
                self._fill()
                self._shuffle()
                self._next_cycle()
            case Unanswered(peer):
                self._lose(peer)
            case Alone():
                if not self.active and not self.asked:
                    self._join()
            case _:
                assert_never(timer)

    def down(self, peer: NodeId) -> None:
        self._lose(peer)

    # -- joining --

    def _join(self) -> None:
        if self.contacts:
            self._ask(self.rng.choice(self.contacts), Join(self.incarnation), reserved=True)

    def _welcome(self, peer: NodeId, incarnation: int) -> bool:
        """Make a peer a neighbour and notify it. Return False if it was already a neighbour."""
        new = self._make_active(peer, incarnation)
        self.send(peer, Accepted(self.incarnation))
        return new

    def _receive_walk(self, sender: NodeId, walk: Walk) -> None:
        if sender not in self.active and sender not in self.asked:
            self.send(sender, Disconnect())
            return
        match walk:
            case ForwardJoin(newcomer, steps):
                onward = self._others(sender, newcomer)
                if steps == 0 or not onward:
                    self._adopt(newcomer)
                    return
                if steps == self.passive_walk:
                    self._remember(newcomer)
                self.send(self._any(onward), ForwardJoin(newcomer, steps - 1))
            case Shuffle(origin, steps, sample):
                onward = self._others(sender, origin)
                if steps > 1 and onward:
                    self.send(self._any(onward), Shuffle(origin, steps - 1, sample))
                elif origin != self.me:
                    self._exchange(origin, sample)
            case _:
                assert_never(walk)

    def _adopt(self, newcomer: NodeId) -> None:
        if newcomer == self.me or newcomer in self.active or newcomer in self.asked:
            return
        if len(self.asked) < 2 * self.active_max:
            self._ask(newcomer, Neighbor(self.incarnation, urgent=True), reserved=True)
        else:
            self._remember(newcomer)

    # -- asking --

    def _ask(self, peer: NodeId, request: Join | Neighbor, *, reserved: bool) -> None:
        self.asked[peer] = reserved
        self.watch(peer)
        self.send(peer, request)
        self.later(self.answer_within, Unanswered(peer))

    def _receive_accepted(self, peer: NodeId, incarnation: int) -> None:
        if peer in self.active or self._has_vacancy() or self.asked.get(peer, False):
            self._make_active(peer, incarnation)
        else:
            self.send(peer, Disconnect())
            self._spare(peer)
            self._fill()

    def _fill(self) -> None:
        """Ask peers from the passive view to fill vacancies in the active view."""
        self.lacking = False
        vacancies = self.active_max - len(self.active) - len(self.asked)
        if vacancies > 0:
            urgent = not self.active  # no peer rejects an urgent request, so also ask tried peers
            tried = () if urgent else self.tried
            free = [p for p in self.passive if p not in tried and p not in self.asked]
            for peer in self.rng.sample(free, min(vacancies, len(free))):
                self._ask(peer, Neighbor(self.incarnation, urgent), reserved=False)
        if not self.active and not self.asked:
            # Without jitter, nodes that were cut off at the same time would join in lockstep.
            self.later(self.retry_every * self.rng.uniform(0.75, 1.25), Alone())

    def _ask_a_lost_one(self) -> None:
        if self.lost and len(self.asked) < self.active_max:
            peer = next(iter(self.lost))
            del self.lost[peer]
            self.lost[peer] = None  # move it to the end, so that other lost peers are tried first
            if peer not in self.asked:
                self._ask(peer, Neighbor(self.incarnation, urgent=True), reserved=True)

    def _trade(self) -> None:
        """Occasionally replace a neighbour with a peer from the passive view.

        Evictions can cut the last link between two parts of the overlay. If all views in both parts
        are full, nothing else would connect them again.
        """
        if self._has_vacancy() or not self.trade_chance or self.rng.random() >= self.trade_chance:
            return
        free = [peer for peer in self.passive if peer not in self.asked]
        if free:
            self._ask(self._any(free), Neighbor(self.incarnation, urgent=True), reserved=True)

    # -- shuffling --

    def _next_cycle(self) -> None:
        self.later(self.shuffle_every * self.rng.uniform(0.75, 1.25), Cycle())

    def _shuffle(self) -> None:
        if not self.active:
            return
        peer = self._any(list(self.active))
        active = self._some(self._others(peer), self.shuffle_active)
        self.offered = (self.me, *active, *self._some(list(self.passive), self.shuffle_passive))
        self.send(peer, Shuffle(self.me, self.active_walk, self.offered))

    def _exchange(self, origin: NodeId, sample: tuple[NodeId, ...]) -> None:
        given = tuple(self._some(list(self.passive), len(sample)))
        self.send(origin, ShuffleReply(given))
        self._integrate(sample, given)

    def _receive_reply(self, sample: tuple[NodeId, ...]) -> None:
        offered, self.offered = self.offered, ()
        if not offered:
            self.dropped += 1  # this node sent no shuffle that the message could answer
            return
        self._integrate(sample, offered)
        if self.lacking:
            self._fill()

    def _integrate(self, sample: tuple[NodeId, ...], given: tuple[NodeId, ...]) -> None:
        """Add a sample to the passive view. A full view evicts the peers in `given` first."""
        if not all(map(_is_name, sample)):  # checked here only, not at each step of a walk
            self.dropped += 1
            return
        spare = [peer for peer in given if peer in self.passive]
        for peer in sample:
            self._remember(peer, spare)

    # -- the views: each kind of change is in one place --

    def _make_active(self, peer: NodeId, incarnation: int) -> bool:
        """Make a peer a neighbour. Return False if it already is one and has not restarted."""
        self._answered(peer)
        if peer in self.active:
            if self.active[peer] == incarnation:
                return False
            self._make_inactive(peer)
        elif not self._has_vacancy():
            evicted = self._any(list(self.active))
            self.send(evicted, Disconnect())
            self._make_inactive(evicted)
            self._remember(evicted)
        self.passive.pop(peer, None)
        self.lost.pop(peer, None)
        self.active[peer] = incarnation
        self.watch(peer)
        self.emit(NeighborUp(peer))
        return True

    def _make_inactive(self, peer: NodeId) -> None:
        if self.active.pop(peer, None) is not None:
            self.emit(NeighborDown(peer))
        if peer not in self.asked:
            self.unwatch(peer)

    def _spare(self, peer: NodeId) -> None:
        """Move a live peer to the passive view, and do not ask it again in this cycle."""
        self._answered(peer)
        self._make_inactive(peer)
        self.lost.pop(peer, None)
        self._note(peer, self.tried, self.passive_max)
        self._remember(peer)

    def _lose(self, peer: NodeId) -> None:
        """Drop a peer that did not answer or whose link broke."""
        missed = peer in self.active or peer in self.passive
        self._answered(peer)
        self._make_inactive(peer)
        self.passive.pop(peer, None)
        self._note(peer, self.lost, self.active_max)
        self._fill()
        if missed and self._has_vacancy() and not self.asked:
            self.lacking = True
            self._shuffle()  # the next cycle may be far away, and other nodes know candidates

    def _answered(self, peer: NodeId) -> None:
        if self.asked.pop(peer, None) is not None:
            self.cancel(Unanswered(peer))

    def _remember(self, peer: NodeId, spare: list[NodeId] | None = None) -> None:
        if peer == self.me or peer in self.active or peer in self.passive:
            return
        if len(self.passive) >= self.passive_max:
            del self.passive[spare.pop() if spare else self._any(list(self.passive))]
        self.passive[peer] = None

    def _note(self, peer: NodeId, peers: dict[NodeId, None], count_max: int) -> None:
        peers[peer] = None
        if len(peers) > count_max:
            del peers[next(iter(peers))]

    def _has_vacancy(self) -> bool:
        return len(self.active) < self.active_max

    def _others(self, *but: NodeId) -> list[NodeId]:
        return [peer for peer in self.active if peer not in but]

    def _any(self, peers: list[NodeId]) -> NodeId:
        return self.rng.choice(peers)

    def _some(self, peers: list[NodeId], count: int) -> list[NodeId]:
        return self.rng.sample(peers, min(count, len(peers)))


def possible(message: Value) -> bool:
    """Return whether an honest node could have sent `message`."""
    match message:
        case Shuffle(origin, steps, sample):
            return 0 <= steps <= WALK_MAX and len(sample) <= SAMPLE_MAX and _is_name(origin)
        case ForwardJoin(newcomer, steps):
            return 0 <= steps <= WALK_MAX and _is_name(newcomer)
        case ShuffleReply(sample):
            return len(sample) <= SAMPLE_MAX
        case _:
            return True


def _is_name(name: str) -> bool:
    return 0 < len(name) <= ORIGIN_LENGTH_MAX
