"""Who sits in the group: changes are decided in the log, one at a time, by whoever leads.

A node that is no member offers itself. The leader takes one in when a seat is free: when there are
fewer members than there should be, when one has been silent for too long, or when a member comes
back in a new life, because its disk was lost. First it lets the newcomer catch up, because a seat
is a vote; then it proposes the membership that names it.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import msgspec

from oncecast.kernel.protocol import NodeId
from oncecast.replication.core import encode_config
from oncecast.replication.events import Change, Suspected
from oncecast.replication.leader import Leader, Reign
from oncecast.replication.messages import CONFIG, Guide, Heard, Item, Offer, OfferDue
from oncecast.replication.quorum import Config, Member

OFFERS_MAX = 64


class Offered(NamedTuple):
    member: Member
    applied: int
    at: float


class Seats(Leader):
    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.offers: dict[NodeId, Offered] = {}
        self.courted = NodeId("")  # whom the leader lets catch up
        self.changes: list[Change] = []  # asked for, and not yet proposed
        self.last_heard: dict[NodeId, float] = {}
        self.reported: dict[NodeId, int] = {}  # what each said to have applied
        self.silent: dict[NodeId, None] = {}
        self.guide = NodeId("")  # whom an outsider was told to ask

    # -- outside --

    def on_offer_due(self) -> None:
        if self.seated:
            return
        asked = self.leader or self.guide
        for node in [asked] if asked else self.sources():
            self.send(node, Offer(self.life, self.applied))
        self.guide = NodeId("")  # if it does not answer, somebody else may
        self.later(self.options.heartbeat, OfferDue())

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
        self.last_heard[sender] = self.now  # who is taken in now was not silent before
        if sender in self.offers or len(self.offers) < OFFERS_MAX:
            member = Member(sender, message.life)
            self.offers[sender] = Offered(member, message.applied, self.now)
        self.look_at_seats()

    def on_heard(self, sender: NodeId, message: Heard) -> None:
        super().on_heard(sender, message)
        self.last_heard[sender], self.reported[sender] = self.now, message.applied
        if sender in self.silent:
            del self.silent[sender]
            self.emit(Suspected(sender, False), after=0)
        offered = self.offers.get(sender)
        if offered is not None and offered.member.life == message.life:
            self.offers[sender] = Offered(offered.member, message.applied, self.now)

    def audience(self) -> list[NodeId]:
        others = self.others()
        return [*others, self.courted] if self.courted and self.courted not in others else others

    def beat(self) -> None:
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
        if reign.changing is not None or any(item.kind == CONFIG for _, item in reign.queue):
            return
        config = self._wished(reign)
        if config is not None:
            reign.queue.append((-1, Item(CONFIG, encode_config(config))))
            self.proceed()

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
            change = self.changes[0]
            config = self._asked_for(change)
            if config is None and change.add in self.offers:
                break  # it waits for a node that catches up
            self.changes.pop(0)
            if config is None:
                continue  # whom it was to add is gone
            if config != self.config:
                return config
        if self.changes:
            return None
        for node, offered in self.offers.items():
            seat = self._seat_for(reign, offered.member)
            if seat is not None and self._caught_up(node):
                return self.config.changed(add=offered.member, remove=seat or None)
        return None

    def _asked_for(self, change: Change) -> Config | None:
        config = self.config
        if change.size:
            config = msgspec.structs.replace(config, size=change.size)
        if change.remove and config.member(change.remove) and len(config.members) > 1:
            config = config.changed(remove=change.remove)
        if change.add and config.member(change.add) is None:
            offered = self.offers.get(change.add)
            if offered is None or not self._caught_up(change.add):
                return None
            config = config.changed(add=offered.member)
        if config == self.config:
            return config
        return msgspec.structs.replace(config, version=self.config.version + 1)

    def _seat_for(self, reign: Reign, member: Member) -> NodeId | None:
        """Whose seat it may have; an empty name is a free one, None is none."""
        config = self.config
        known = config.member(member.node)
        if known is not None:
            return member.node if known != member else None
        if len(config.members) < config.size:
            return NodeId("")
        for node in self.silent:
            if node in config.nodes() and self._silence(reign, node) > self.options.replace_after:
                return node
        return None

    def _caught_up(self, node: NodeId) -> bool:
        """Near enough; otherwise it is told of what is chosen, and fetches it."""
        if self.applied - self.offers[node].applied <= self.options.window_slots // 4:
            return True
        self.courted = node
        return False

    def reconfigured(self, before: Config) -> None:
        for node in [node for node in self.silent if node not in self.config.nodes()]:
            del self.silent[node]
        for member in self.config.members:
            self.offers.pop(member.node, None)
        if self.courted in self.config.nodes():
            self.courted = NodeId("")
        super().reconfigured(before)
        if not self.seated:
            self.later(self.options.heartbeat, OfferDue())
