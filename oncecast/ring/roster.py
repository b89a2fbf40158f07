"""The ring's directory: processes and groups, spread by gossip, and the seats of replicas.

Every process publishes a card. It renews the card regularly, and whenever the content changes. A
process sends a new card to all neighbours immediately, and regularly compares its cards with those
of one random neighbour. A card that is not renewed is dropped, and its process counts as gone. Only
a newer card brings the process back. For each group in which any process has a seat, the roster
keeps the facts with the highest `applied`. It also keeps groups that are gone, because a replica
may return with an old disk.

The first processes at or after a group's position back up the group. These processes, and those
with a vote, take a seat. Other processes give up their seats. Seats are only suggestions: the group
decides its members, and the decision may arrive here later.

Needs NeighborUp, NeighborDown, and GroupFacts from its replicas. Serves Leave, and answers WhereIs.
Emits Seat, Unseat and Left.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import ClassVar, assert_never

from oncecast.dht.identifiers import BYTES, Key, distance, key_of, up_to
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.ring.events import GroupFacts, Leave, Left, RetireGroup, Seat, Unseat, WhereIs

NODES_MAX = 64  # maximum nodes per group
CARDS_MAX = 200  # maximum cards per message
STAMP_MAX = 1 << 62
GONE = 1 << 62  # higher than any real `applied`, so that no other facts replace it
ASKED_MAX = 1000  # maximum number of groups that this process looks up for its replicas
RENEWALS = 3  # number of times that a card without changes is renewed within `gone_after`


class Card(Value, tag=False):
    """Facts that a process publishes about itself. The card with the highest stamp is newest."""

    process: NodeId
    stamp: int
    version: str  # program version
    group: str  # the process's group
    # Facts about groups that the process leads, or that have no leader.
    facts: tuple[GroupFacts, ...]
    seats: tuple[str, ...]
    # Groups that are gone, and in which a process has a seat or which it looks up.
    gone: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()  # groups that the process cannot reach


class NewCards(Value, tag="News"):
    cards: tuple[Card, ...]


class Stamps(Value, tag="Stamps"):
    """The stamps of the sender's cards. The receiver sends back newer cards."""

    stamps: tuple[tuple[NodeId, int], ...]
    answer: bool  # whether the receiver also sends its own stamps


class Gossip(Value):
    """Timer: renew the card, compare cards and check the seats."""


class Roster(Protocol):
    name = "roster"
    Message: ClassVar = NewCards | Stamps | GroupFacts | WhereIs
    Request = Leave
    Observed: ClassVar = NeighborUp | NeighborDown
    Timer = Gossip

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        group: str,
        version: str = "",
        epoch_us: int = 0,
        replicas: int = 3,
        gossip_every: float = 1.0,
        gone_after: float = 10.0,
        cards_max: int = 10_000,
    ) -> None:
        super().__init__(me, rng)
        self._group, self._version, self._epoch_us = group, version, epoch_us
        self.replicas, self._every, self._gone_after = replicas, gossip_every, gone_after
        self._cards_max = cards_max
        self.cards: dict[NodeId, Card] = {}
        self.heard: dict[NodeId, float] = {}  # time of the last renewal of each card
        # By process: the stamp of the dropped card, and the time of the drop.
        self._dropped: dict[NodeId, tuple[int, float]] = {}
        self.groups: dict[str, GroupFacts] = {}
        self.here: dict[str, GroupFacts] = {}  # what the replicas of this process have reported
        self._seated: dict[str, None] = {}  # groups with a replica running or starting here
        self._asked: dict[str, None] = {}  # groups requested since the last card
        self._neighbors: dict[NodeId, None] = {}
        self._stamp = 0
        self._renewed = 0.0
        self._leaving = False

    def seated(self, groups: tuple[str, ...]) -> None:
        """Register the replicas that are already running in this process."""
        self._seated.update(dict.fromkeys(groups))

    def start(self) -> None:
        self._renew()
        self.later(self._every, Gossip())

    # -- processes and owners --

    def positions(self) -> list[tuple[Key, NodeId]]:
        """Return the processes, sorted by position on the ring."""
        return sorted((key_of(card.group), card.process) for card in self.cards.values())

    def backups(self, group: str, ring: list[tuple[Key, NodeId]] | None = None) -> list[NodeId]:
        """Return the first processes at or after the group's position."""
        ring = self.positions() if ring is None else ring
        at = bisect_left(ring, (key_of(group), NodeId("")))
        return [process for _, process in (ring[at:] + ring[:at])[: self.replicas]]

    def owner(self, key: Key) -> GroupFacts | None:
        """Return the known owner of a key, or None.

        During a move, two groups may claim the key. The nearer group imported it last.
        """
        owners = [
            facts
            for facts in self.groups.values()
            if facts.low is not None and up_to(facts.low, key, key_of(facts.group))
        ]
        return min(owners, key=lambda facts: distance(key, key_of(facts.group)), default=None)

    # -- inputs --

    def receive(self, sender: NodeId, message: NewCards | Stamps | GroupFacts | WhereIs) -> None:
        match message:
            case NewCards(cards):
                self._learn(sender, cards[:CARDS_MAX])
            case Stamps():
                self._compare(sender, message)
            case GroupFacts():
                if sender.startswith(f"{self.me}/"):
                    self._hear_replica(sender, message)
            case WhereIs(group):
                self._tell(sender, group)
            case _:
                assert_never(message)

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        if isinstance(event, NeighborUp):
            self._neighbors[event.peer] = None
            self.send(event.peer, self._stamps(answer=True))
        else:
            self._neighbors.pop(event.peer, None)

    def timeout(self, timer: Gossip) -> None:
        self.later(self._every, timer)
        self._renew_if_due()
        self._drop_old()
        if self._neighbors:
            peer = self.rng.choice(list(self._neighbors))
            self.send(peer, self._stamps(answer=True))
        self._look_at_seats()
        self._go_away()

    # -- cards --

    def _renew(self) -> None:
        self._stamp = max(self._stamp + 1, self._epoch_us + int(self.now * 1e6))
        self._renewed = self.now
        self._take(self._card())
        self._spread(NewCards((self.cards[self.me],)), NodeId(""))

    def _renew_if_due(self) -> None:
        """Renew the card if its content has changed or other processes would soon drop it.

        Renewals are rare, because each one sends a message to every process.
        """
        last, now = self.cards[self.me], self._card()
        due = self.now + self._every > self._renewed + self._gone_after / RENEWALS
        if due or says(last) != says(now) or last.stamp < self._stamp:
            self._renew()

    def _card(self) -> Card:
        known = [facts for facts in self.here.values() if self._tells(facts)]
        cards = self.cards.values()
        named = {group for card in cards for group in (*card.seats, *card.asks)}
        gone = [name for name, facts in self.groups.items() if facts.gone and name in named]
        mine = (self.me, self._stamp, self._version, self._group)
        groups = (tuple(known), tuple(self._seated), tuple(gone), tuple(self._asked))
        return Card(*mine, *groups)

    def _drop_old(self) -> None:
        """Drop cards that were not renewed, and groups without seats."""
        for process, at in list(self.heard.items()):
            if self.now > at + self._gone_after:
                self._dropped[process] = self.cards.pop(process).stamp, self.now
                del self.heard[process]
        # After three times `gone_after`, every process has dropped the card.
        forget = self.now - 3 * self._gone_after
        self._dropped = {each: was for each, was in self._dropped.items() if was[1] > forget}
        seats = {group for card in self.cards.values() for group in card.seats}
        for group, facts in list(self.groups.items()):
            if not facts.gone and group not in seats:
                del self.groups[group]
        self._asked.clear()

    def _tells(self, facts: GroupFacts) -> bool:
        """Return whether to publish the facts: only if the local replica leads, or none does."""
        return facts.leader in ("", f"{self.me}/{facts.group}")

    def _learn(self, sender: NodeId, cards: tuple[Card, ...]) -> None:
        new: list[Card] = []
        for card in cards:
            if not self._is_new(card):
                continue
            if card.process == self.me:
                # A card from before a restart. The next stamp must be newer.
                self._stamp = max(self._stamp, card.stamp)
            else:
                self._take(card)
                new.append(card)
        if new:
            self._spread(NewCards(tuple(new)), sender)

    def _is_new(self, card: Card) -> bool:
        known = self.cards.get(card.process)
        if known is not None:
            return known.stamp < card.stamp < STAMP_MAX
        dropped, _ = self._dropped.get(card.process, (-1, 0.0))
        return dropped < card.stamp < STAMP_MAX and len(self.cards) < self._cards_max

    def _take(self, card: Card) -> None:
        self.cards[card.process], self.heard[card.process] = card, self.now
        gone = [GroupFacts(group, None, NodeId(""), (), GONE, retired=True) for group in card.gone]
        for facts in (*[facts for facts in card.facts if may_tell(card, facts)], *gone):
            if not self._contradicted(facts):
                self._keep(facts)

    def _contradicted(self, facts: GroupFacts) -> bool:
        """Return whether a local replica has better facts, because it follows the group's leader.

        While the group's members decide, no card can declare the group gone or report another
        leader. Once the local replica knows no leader, the card is accepted.
        """
        mine = self.here.get(facts.group)
        if mine is None or not mine.leader or mine.gone:
            return False
        return facts.leader not in mine.nodes if facts.leader else facts.gone

    def _keep(self, facts: GroupFacts) -> None:
        """Store the facts if they are newer. If both are equally new, prefer those with a leader.

        Ignore an unknown group that owns everything while other groups own parts, because it
        belongs to another ring. A known group in this state has not yet released an exported part.
        """
        known = self.groups.get(facts.group)
        if known is None and facts.owns_all and self._others_own(facts.group):
            return
        if known is None or (facts.applied, bool(facts.leader)) >= (
            known.applied,
            bool(known.leader),
        ):
            self.groups[facts.group] = facts

    def _others_own(self, group: str) -> bool:
        """Return whether a group owns a part, not counting `group` and this process's group."""
        owners = [facts.group for facts in self.groups.values() if facts.low is not None]
        return any(owner not in (group, self._group) for owner in owners)

    def _spread(self, news: NewCards, but: NodeId) -> None:
        for peer in self._neighbors:
            if peer != but:
                self.send(peer, news)

    def _stamps(self, *, answer: bool) -> Stamps:
        cards = list(self.cards.values())
        if len(cards) > CARDS_MAX:
            cards = self.rng.sample(cards, CARDS_MAX)
        return Stamps(tuple((card.process, card.stamp) for card in cards), answer)

    def _compare(self, sender: NodeId, theirs: Stamps) -> None:
        known = dict(theirs.stamps)
        newer = [card for card in self.cards.values() if card.stamp > known.get(card.process, -1)]
        if len(newer) > CARDS_MAX:
            newer = self.rng.sample(newer, CARDS_MAX)
        if newer:
            self.send(sender, NewCards(tuple(newer)))
        if theirs.answer:
            self.send(sender, self._stamps(answer=False))

    # -- replicas of this process --

    def _hear_replica(self, replica: NodeId, facts: GroupFacts) -> None:
        self._keep(facts)
        if facts.group not in self._seated:
            return  # the last report of a replica that was stopped in the meantime
        before = self.here.get(facts.group)
        self.here[facts.group] = facts
        leads = facts.leader == replica
        if leads and (before is None or news_of(before) != news_of(facts)):
            self._renew()

    def _tell(self, replica: NodeId, group: str) -> None:
        """Answer a replica that cannot reach a group, and ask other processes via the card."""
        facts = self.groups.get(group)
        if facts is not None:
            self.send(replica, facts)
        if (facts is None or not facts.gone) and len(self._asked) < ASKED_MAX:
            self._asked[group] = None

    def _look_at_seats(self) -> None:
        ring = self.positions()
        for group, facts in list(self.groups.items()):
            if facts.gone:
                # Only the local replica's log proves that its data is no longer needed.
                mine = self.here.get(group)
                self._give_up(group, gone=mine is not None and mine.gone)
                continue
            if not facts.nodes:
                continue
            member = f"{self.me}/{group}" in facts.nodes
            wanted = member or self.me in self.backups(group, ring)
            if wanted and group not in self._seated:
                self._seated[group] = None
                self.emit(Seat(group, facts.nodes))
            if not wanted and group != self._group:
                self._give_up(group, gone=False)

    def _give_up(self, group: str, *, gone: bool) -> None:
        if group in self._seated:
            del self._seated[group]
            self.here.pop(group, None)
            self.emit(Unseat(group, gone))

    # -- leaving --

    def request(self, request: Leave) -> None:
        self._leaving = True
        self._go_away()

    def _go_away(self) -> None:
        mine = self.groups.get(self._group)
        if not self._leaving or mine is None:
            return
        if mine.gone:
            self._leaving = False
            self.emit(Left())
        elif not mine.retired:
            for node in mine.nodes:
                self.send(node, RetireGroup())


def may_tell(card: Card, facts: GroupFacts) -> bool:
    """Return whether a card may contain these facts.

    The card's process must lead the group, or the group must have no leader.
    """
    sound = 0 <= facts.applied < GONE and len(facts.nodes) <= NODES_MAX
    sound = sound and (facts.low is None or len(facts.low) == BYTES)
    return sound and facts.leader in ("", f"{card.process}/{facts.group}")


def news_of(facts: GroupFacts) -> tuple[object, ...]:
    """Return the facts that are published immediately when they change."""
    return facts.low, facts.leader, facts.nodes


def says(card: Card) -> tuple[object, ...]:
    """Return a card's content without its stamp and its groups' `applied`."""
    groups = tuple((facts.group, facts.retired, *news_of(facts)) for facts in card.facts)
    return groups, card.seats, card.gone, card.asks
