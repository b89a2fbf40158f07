"""Plumtree: broadcast over a tree that repairs itself with lazy announcements.

Leitao, Pereira and Rodrigues, "Epidemic Broadcast Trees", SRDS 2007; names follow the paper.
Payloads travel on eager links, which form a tree: a node that gets a payload twice prunes the later
link. Lazy links carry only announcements. If an announced payload does not arrive, the node grafts
the announcer's link.

Needs NeighborUp and NeighborDown. Emits Received for the broadcasts of other nodes.

Plumtree is best effort, because its memory is bounded. A payload that has left the cache cannot be
grafted, and excess announcements are ignored. A node may emit Received twice for a message, with a
long time in between. The layer above (Recovery) filters duplicates and repairs losses.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, assert_never

from oncecast.kernel.compiling import mypyc_attr
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.overlay.events import Broadcast, MessageId, NeighborDown, NeighborUp, Received
from oncecast.overlay.memory import Numbers, Payloads
from oncecast.overlay.messages import Announce, Announcement, Gossip, Graft, IHave, Missing, Prune

ROUND_MAX = 2**31


@mypyc_attr(allow_interpreted_subclasses=True)
class Plumtree(Protocol):
    name = "plumtree"
    Request = Broadcast
    Message: ClassVar = Gossip | IHave | Graft | Prune
    Observed: ClassVar = NeighborUp | NeighborDown
    Timer: ClassVar = Missing | Announce

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        graft_after: float = 0.5,
        graft_again_after: float = 0.25,
        announce_after: float = 0.05,
        announce_max: int = 128,
        threshold: int = 7,
        cache_max: int = 1000,
        cache_bytes_max: int = 2**24,
        missing_max: int = 10_000,
        origins_max: int = 10_000,
        gaps_max: int = 256,
    ) -> None:
        super().__init__(me, rng)
        self.graft_after, self.graft_again_after = graft_after, graft_again_after
        self.announce_after, self.announce_max = announce_after, announce_max
        self.threshold, self.missing_max = threshold, missing_max
        self.origins_max, self.gaps_max = origins_max, gaps_max
        # Dicts serve as ordered sets: a set of strings iterates differently in each process.
        self.eager: dict[NodeId, None] = {}
        self.lazy: dict[NodeId, None] = {}
        self.seen: dict[NodeId, Numbers] = {}
        self.cache = Payloads(cache_max, cache_bytes_max)
        # By message: its announcers, each with the round of its announcement.
        self.missing: dict[MessageId, dict[NodeId, int]] = {}
        # Announcements to send, each with the sender of the payload.
        self.unannounced: list[tuple[Announcement, NodeId]] = []
        self.dropped = 0  # invalid messages

    def request(self, request: Broadcast) -> None:
        self._note_seen(request.id)
        self._spread(Gossip(request.id, 0, request.payload), self.me)

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        match event:
            case NeighborUp(peer):
                self.lazy.pop(peer, None)
                self.eager[peer] = None
            case NeighborDown(peer):
                self.eager.pop(peer, None)
                self.lazy.pop(peer, None)
                for announcers in self.missing.values():
                    announcers.pop(peer, None)
            case _:
                assert_never(event)

    def receive(self, sender: NodeId, message: Gossip | IHave | Graft | Prune) -> None:
        match message:
            case Gossip():
                self._receive_gossip(sender, message)
            case IHave(announcements):
                for announcement in announcements:
                    self._note_announcement(sender, announcement)
            case Graft():
                self._receive_graft(sender, message)
            case Prune():
                self._make_lazy(sender)
            case _:
                assert_never(message)

    def timeout(self, timer: Missing | Announce) -> None:
        match timer:
            case Missing():
                self._graft(timer)
            case Announce():
                self._announce()
            case _:
                assert_never(timer)

    def _receive_gossip(self, sender: NodeId, gossip: Gossip) -> None:
        if not (gossip.id.possible and 0 <= gossip.round < ROUND_MAX):
            self.dropped += 1
        elif self._note_seen(gossip.id):
            self._make_eager(sender)
            self.emit(Received(gossip.id, gossip.payload))
            self._spread(gossip, sender)
            self._forget_announcements(gossip, sender)
        else:
            self._make_lazy(sender)
            self.send(sender, Prune())

    def _receive_graft(self, sender: NodeId, graft: Graft) -> None:
        if not 0 <= graft.round < ROUND_MAX:
            self.dropped += 1
            return
        self._make_eager(sender)
        if graft.id is not None:
            payload = self.cache.by_id.get(graft.id)
            if payload is not None:
                self.send(sender, Gossip(graft.id, graft.round, payload))

    def _note_announcement(self, sender: NodeId, announcement: Announcement) -> None:
        key = announcement.id
        if not (key.possible and 0 <= announcement.round < ROUND_MAX):
            self.dropped += 1
        elif not self._has_seen(key) and self._is_neighbor(sender):
            announcers = self.missing.get(key)
            if announcers is None:
                if len(self.missing) >= self.missing_max:
                    return
                announcers = self.missing[key] = {}
                self.later(self.graft_after, Missing(key))
            announcers.setdefault(sender, announcement.round)

    def _graft(self, timer: Missing) -> None:
        announcers = self.missing[timer.id]
        if not announcers:
            del self.missing[timer.id]  # all announcers were asked, so wait for a new announcement
            return
        peer = next(iter(announcers))
        round_announced = announcers.pop(peer)
        self._make_eager(peer)
        self.send(peer, Graft(timer.id, round_announced))
        self.later(self.graft_again_after, timer)

    def _spread(self, gossip: Gossip, sender: NodeId) -> None:
        """Send the payload to the eager peers and an announcement to the lazy peers."""
        self.cache.add(gossip.id, gossip.payload)
        onward = Gossip(gossip.id, gossip.round + 1, gossip.payload)
        for peer in self.eager:
            if peer != sender:
                self.send(peer, onward)
        if self.lazy:
            if not self.unannounced:
                self.later(self.announce_after, Announce())
            self.unannounced.append((Announcement(onward.id, onward.round), sender))
            if len(self.unannounced) >= self.announce_max:
                self._announce()

    def _announce(self) -> None:
        waiting, self.unannounced = self.unannounced, []
        for peer in self.lazy:
            news = tuple(announcement for announcement, sender in waiting if sender != peer)
            if news:
                self.send(peer, IHave(news))

    def _forget_announcements(self, gossip: Gossip, sender: NodeId) -> None:
        announcers = self.missing.pop(gossip.id, None)
        if announcers is not None:
            self.cancel(Missing(gossip.id))
        if announcers:
            self._optimize(gossip, sender, announcers)

    def _optimize(self, gossip: Gossip, sender: NodeId, announcers: dict[NodeId, int]) -> None:
        """Replace the sender's link with a lazy link that is `threshold` hops nearer the origin."""
        nearest = min(announcers, key=announcers.__getitem__)
        if nearest != sender and gossip.round - announcers[nearest] >= self.threshold:
            self._make_eager(nearest)
            self.send(nearest, Graft(None, announcers[nearest]))
            self._make_lazy(sender)
            self.send(sender, Prune())

    def _has_seen(self, key: MessageId) -> bool:
        numbers = self.seen.get(key.origin)
        return numbers is not None and key.number in numbers

    def _note_seen(self, key: MessageId) -> bool:
        """Record an id. Return False if it was already recorded or is too old to track."""
        numbers = self.seen.get(key.origin)
        if numbers is None:
            if len(self.seen) >= self.origins_max:
                del self.seen[next(iter(self.seen))]
            numbers = self.seen[key.origin] = Numbers()
        new = numbers.add(key.number)
        if len(numbers.gaps) > self.gaps_max:
            del numbers.gaps[0]
        return new

    def _is_neighbor(self, peer: NodeId) -> bool:
        return peer in self.eager or peer in self.lazy

    def _make_eager(self, peer: NodeId) -> None:
        if peer in self.lazy:
            self._announce()  # otherwise the peer would get neither payload nor announcement
            del self.lazy[peer]
            self.eager[peer] = None

    def _make_lazy(self, peer: NodeId) -> None:
        if peer in self.eager:
            del self.eager[peer]
            self.lazy[peer] = None
