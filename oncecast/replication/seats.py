"""Who sits in the group: changes are decided in the log, one at a time, by whoever leads.

A node that is no member offers itself. The leader takes one in when there are fewer members than
there should be, or when one has been silent for too long: beside that one, which goes only then.
It may come back, and its disk must count until another one does. If it is back by then, the last
one to come goes again. Only the earlier life of a node whose disk was lost goes first: it will
never vote again, and its node cannot sit twice.

The leader lets a newcomer catch up, because a seat is a vote; then it proposes the membership that
names it. Each membership has one member more or less than the one before, never two: that they have
a majority in common is what all rests on.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any, NamedTuple

from oncecast.kernel.protocol import NodeId
from oncecast.replication.core import encode_config
from oncecast.replication.events import Change, Suspected
from oncecast.replication.leader import Leader, Reign
from oncecast.replication.messages import (
    CONFIG,
    NOOP,
    Chosen,
    Guide,
    Heard,
    Item,
    Offer,
    OfferDue,
    Silence,
)
from oncecast.replication.quorum import Config, Member

OFFERS_MAX = 64


class Offered(NamedTuple):
    """A node that would have a seat, and what it last said to have applied. `lag` is how many slots
    it lacked then of what it had been told."""

    member: Member
    applied: int
    at: float
    lag: int = 0


class Seats(Leader):
    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.offers: dict[NodeId, Offered] = {}
        self.courted = NodeId("")  # whom the leader lets catch up
        self.courted_at = 0.0
        self.live = False  # it hears of each proposal, too
        self.beats: deque[tuple[float, int]] = deque(maxlen=8)  # when, and what was applied
        self.changes: list[Change] = []  # asked for, and not yet proposed
        self.last_heard: dict[NodeId, float] = {}
        self.reported: dict[Member, int] = {}  # what each said to have applied, and on disk
        self.silent: dict[NodeId, None] = {}
        self.guide = NodeId("")  # whom an outsider was told to ask

    # -- outside --

    def on_offer_due(self) -> None:
        if self.seated:
            return
        if self.now >= self.heard + 2 * self.options.suspicion:
            self._lose_leader()  # clients would be sent there for ever
        self._offer()
        self.later(self.options.heartbeat, OfferDue())

    def _offer(self) -> None:
        asked = self.leader or self.guide
        for node in [asked] if asked else self.sources():
            self.send(node, Offer(self.life, self.applied))
        self.guide = NodeId("")  # if it does not answer, somebody else may

    def on_chosen(self, sender: NodeId, message: Chosen) -> None:
        behind = self.known > self.applied
        super().on_chosen(sender, message)
        if behind and self.known <= self.applied and not self.seated:
            self._offer()  # under load it will not be as close again until it has a seat

    def on_guide(self, sender: NodeId, message: Guide) -> None:
        if self.seated or not message.config.members:
            return
        self.guide = message.leader if message.leader != self.me else NodeId("")
        nodes = [node for node in message.config.nodes() if node != self.me]
        self.contacts = tuple(dict.fromkeys((*nodes, *self.contacts)))[:OFFERS_MAX]

    # -- inside --

    def on_offer(self, sender: NodeId, message: Offer) -> None:
        self.send(sender, Guide(self.leader, self.config), after=0)
        reign = self.reign
        if reign is None or not reign.acting:
            return
        if self.config.member(sender) is None:
            self.last_heard[sender] = self.now  # who is taken in now was not silent before
        if self.config.member(sender) or sender in self.offers or len(self.offers) < OFFERS_MAX:
            self._note_offer(Member(sender, message.life), message.applied, self.applied)
        self.look_at_seats()

    def _note_offer(self, member: Member, applied: int, told: int) -> None:
        offered = Offered(member, applied, self.now, max(0, told - applied))
        self.offers[member.node] = offered
        if member.node == self.courted:
            self.live = self._may_follow(offered)

    def _may_follow(self, offered: Offered) -> bool:
        """Whether it is near enough to hear of each proposal: else it would drop what it hears."""
        return offered.lag <= self.options.ahead_slots // 2

    def on_heard(self, sender: NodeId, message: Heard) -> None:
        super().on_heard(sender, message)
        member = Member(sender, message.life)
        self.reported[member] = message.applied
        if member in self.config.members:
            self.last_heard[sender] = self.now
            if sender in self.silent:
                del self.silent[sender]
                self.emit(Suspected(sender, False), after=0)
        offered = self.offers.get(sender)
        if offered is not None and offered.member.life == message.life:
            self._note_offer(offered.member, message.applied, self._told_at(message.stamp))

    def _told_at(self, stamp: float) -> int:
        """Up to which slot the Beat of this time has told that all is chosen."""
        return next((known for at, known in self.beats if at == stamp), self.applied)

    def audience(self) -> list[NodeId]:
        return self._with_courted(self.courted)

    def followers(self) -> list[NodeId]:
        """A leader that is alone may lose its ballot in a crash, and use it again for something
        else: until it has company, nobody hears of its proposals."""
        alone = len(self.config.members) == 1
        return self._with_courted(self.courted if self.live and not alone else NodeId(""))

    def _with_courted(self, node: NodeId) -> list[NodeId]:
        others = self.others()
        return [*others, node] if node and node not in others else others

    def stand(self) -> None:
        self.reported.clear()  # what was heard in an earlier reign is old
        super().stand()

    def beat(self) -> None:
        self.beats.append((self.now, self.applied))
        super().beat()
        self.look_at_seats()

    def on_change(self, change: Change) -> None:
        self.changes.append(change)
        self.look_at_seats()

    def look_at_seats(self) -> None:
        reign = self.reign
        if reign is None or not reign.acting:
            self.changes.clear()  # who asked for them must ask the next leader
            return
        self._suspect(reign)
        for node in [node for node, each in self.offers.items() if self._is_old(each)]:
            del self.offers[node]
        known = {*self.offers, *self.nodes(), *self.others()}
        for node in [node for node in self.last_heard if node not in known]:
            del self.last_heard[node]
        if self.courted and self.courted not in self.offers:
            self._court(NodeId(""))
        if reign.changing is not None or any(item.kind == CONFIG for _, item in reign.queue):
            return
        config = self._wished(reign)
        if config is None:
            return
        if reign.proven == self.config.version or not self.others():
            # First in the queue: a group that is behind with its commands needs it most.
            reign.queue.appendleft((-1, Item(CONFIG, encode_config(config))))
        elif not reign.queue and not reign.flying:
            reign.queue.append((-1, Item(NOOP, b"")))  # first something else must be decided
        self.proceed()

    def progressed(self) -> None:
        super().progressed()
        if self.changes:
            self.look_at_seats()

    def _is_old(self, offered: Offered) -> bool:
        return self.now > offered.at + 2 * self.options.suspicion

    def _suspect(self, reign: Reign) -> None:
        for node in self.others():
            if node not in self.silent and self._silence(reign, node) > self.options.suspicion:
                self.silent[node] = None
                self.emit(Suspected(node, True), after=0)

    def _silence(self, reign: Reign, node: NodeId) -> float:
        return self.now - max(reign.since, self.last_heard.get(node, 0.0))

    def _wished(self, reign: Reign) -> Config | None:
        """The membership that should be next, if there is one and it can be had."""
        while self.changes:
            config = self._towards(self.changes[0])
            if config is not self.config:
                return config
            self.changes.pop(0)
        lost = self._lost_disk()
        if lost:
            left = self.config.removed(lost)
            return left if self._informed(left) else None
        if len(self.config.members) > self.config.size:
            return self._without_one(reign)
        return self._with_one(reign)

    def _towards(self, change: Change) -> Config | None:
        """The next step to what was asked for; None: it waits for a node that catches up; the
        present membership: nothing is left to do, or it cannot be done."""
        config, size = self.config, change.size
        if change.add and config.member(change.add) is None:
            if change.add not in self.offers:
                return config
            member = self.offers[change.add].member
            if self._caught_up(change.add):
                return config.added(member, size)
            self._court(change.add)
            return None
        if change.remove and config.member(change.remove):
            left = config.removed(change.remove, size)
            if not self._viable(left):
                return config
            return left if self._informed(left) else None
        if size and size != config.size:
            return config.successor(*config.members, size=size)
        return config

    def _lost_disk(self) -> NodeId:
        """A member that offers itself in another life; as long as the seated one is heard of, that
        is an old offer."""
        return next(
            (node for node in self.offers if node in self.silent and self.reborn(node)), NodeId("")
        )

    def reborn(self, node: NodeId) -> bool:
        """Return whether the node of a member offers itself in another life."""
        offered, seated = self.offers.get(node), self.config.member(node)
        return offered is not None and seated not in (None, offered.member)

    def absent(self, node: NodeId) -> bool:
        """Return whether a member may never vote again.

        A node that offers itself in another life counts at once. It may take the suspicion time
        until its seated life is silent, and no other member may go meanwhile.
        """
        return node in self.silent or self.reborn(node)

    def _without_one(self, reign: Reign) -> Config | None:
        """There is one too many: who is silent for longest goes, or else the last one to come."""
        config, patience = self.config, self.options.suspicion
        told = self.now - reign.since > patience  # or else it is not known who is silent
        if not told or not self._viable(config) or not self._covered(reign):
            return None  # who comes back first should stay
        longest = max(self.others(), key=lambda node: self._silence(reign, node))
        silent = self._silence(reign, longest) > patience
        left = config.removed(longest if silent else self.others()[-1])
        return left if self._viable(left) and self._informed(left) else None

    def _with_one(self, reign: Reign) -> Config | None:
        config, limit = self.config, self.options.replace_after
        free = len(config.members) < config.size
        if not free and all(self._silence(reign, node) <= limit for node in self.others()):
            self._court(NodeId(""))  # there is no seat to be had
            return None
        waiting = [node for node in self.offers if config.member(node) is None]
        for node in waiting:
            member = self.offers[node].member
            # Beside a silent member it is needed at once: it must hear us.
            if self._caught_up(node) and (free or reign.ends.get(member, 0.0) > self.now):
                return config.added(member)
        if waiting:
            self._court(self._next_to_court(waiting))
        return None

    def _next_to_court(self, waiting: list[NodeId]) -> NodeId:
        """Let each have its turn: a newcomer that never catches up must not keep others out."""
        if self.courted not in waiting:
            return waiting[0]
        if self.now < self.courted_at + self.options.replace_after:
            return self.courted
        return waiting[(waiting.index(self.courted) + 1) % len(waiting)]

    def _court(self, node: NodeId) -> None:
        """Let this newcomer catch up: it is told of what is chosen, and fetches it."""
        if node != self.courted:
            self.courted, self.courted_at = node, self.now
            self.live = node in self.offers and self._may_follow(self.offers[node])
            if node and self.reign is not None:
                self.beats.append((self.now, self.applied))
                self.beat_to(node, self.reign)  # or it would begin a heartbeat later

    def _informed(self, left: Config) -> bool:
        """Whether a majority of who is left has all that was decided before the present membership.
        What was decided since is on enough of their disks: the present majority has stored it."""
        since = self.memberships.since
        told = [each for each in left.members if self.reported.get(each, 0) >= since]
        return left.agreed([*told, self.self_as_member])

    def _viable(self, config: Config) -> bool:
        """Return whether a majority of its members is present."""
        return config.agreed([each for each in config.members if not self.absent(each.node)])

    def _caught_up(self, node: NodeId) -> bool:
        """Whether it had nearly all that it had been told of: under load no newcomer ever has all
        that is decided at this moment."""
        return self.offers[node].lag <= self.options.ahead_slots // 64

    def reconfigured(self, before: Config) -> None:
        for node in [node for node in self.silent if node not in self.config.nodes()]:
            del self.silent[node]
        for member in self.config.members:
            self.offers.pop(member.node, None)
        for gone in [member for member in self.reported if member not in self.config.members]:
            del self.reported[gone]
        if self.courted in self.config.nodes():
            self._court(NodeId(""))
        super().reconfigured(before)
        if not self.seated:
            self.later(self.options.heartbeat, OfferDue())
        elif self.self_as_member not in before.members:
            self._take_seat()

    def _take_seat(self) -> None:
        """Look out for a leader: the one that has given the seat may be gone."""
        self.later(self.patience(), Silence())
