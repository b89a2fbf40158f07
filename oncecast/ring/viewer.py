"""Show the ring as seen by one process, and let the process leave the ring."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from oncecast.dht.identifiers import key_of, key_of_topic
from oncecast.dht.scribe import Scribe
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.ring.events import Leave
from oncecast.ring.relay import Relay
from oncecast.ring.roster import Roster
from oncecast.wire.errors import InvalidArgument
from oncecast.wire.frames import (
    Answer,
    ArcView,
    Govern,
    LeaveRing,
    LookGroup,
    LookRing,
    ProcessView,
    RingView,
    TreeView,
)


class Viewer(Protocol):
    name = "viewer"
    Message: ClassVar = LookRing | LeaveRing | LookGroup | Govern

    def __init__(
        self, me: NodeId, rng: Random, *, roster: Roster, scribe: Scribe, relay: Relay
    ) -> None:
        super().__init__(me, rng)
        self._roster, self._scribe, self._relay = roster, scribe, relay

    def receive(self, sender: NodeId, look: LookRing | LeaveRing | LookGroup | Govern) -> None:
        if isinstance(look, LookGroup | Govern):
            fact = f"{self.me} is a ring process, not a replica"
            self.send(
                sender, Answer(look.id, InvalidArgument(f"{fact}; ask a replica of the group"))
            )
            return
        tree = None
        if isinstance(look, LeaveRing):
            self.ask(Leave())
        elif look.tree:
            tree = self._tree(look.tree)
        self.send(sender, RingView(look.id, self.me, self._processes(), self._groups(), tree))

    def _processes(self) -> tuple[ProcessView, ...]:
        cards = sorted(self._roster.cards.values(), key=lambda card: key_of(card.group))
        return tuple(
            ProcessView(
                card.process, card.version, card.group, key_of(card.group).hex(), card.seats
            )
            for card in cards
        )

    def _groups(self) -> tuple[ArcView, ...]:
        known = [facts for facts in self._roster.groups.values() if not facts.gone]
        return tuple(
            ArcView(
                facts.group,
                facts.low.hex() if facts.low is not None else "",
                key_of(facts.group).hex(),
                facts.leader,
                facts.nodes,
                facts.applied,
                facts.retired,
            )
            for facts in sorted(known, key=lambda facts: key_of(facts.group))
        )

    def _tree(self, topic: str) -> TreeView:
        owner = self._roster.owner(key_of_topic(topic))
        name = owner.group if owner is not None else ""
        readers = len(self._relay.flows.of_topic(topic))
        tree = self._scribe.trees.get(topic)
        if tree is None:
            return TreeView(topic, name, False, "", (), readers)
        return TreeView(topic, name, tree.root, tree.parent or "", tuple(tree.children), readers)
