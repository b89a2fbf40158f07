"""How arcs of the ring change hands: the leader of the taker copies, then asks to be given (REP-6).

A group that owns nothing looks for the owner of its position and claims what lies before it there.
While the giver serves on, the taker copies batches, round after round, until little is left; then
the giver freezes the part, the rest is copied, and the taker adopts it. What is done and decided is
in the estates of both groups, so any leader of either goes on from there. A move that cannot be
done is abandoned, and the giver thaws what it had frozen for it. A group that has lost sight of the
other asks the ring for it by its name; of one that is gone it knows how their move has ended.

Needs the service of its group, links, and the ring stack of its process. Gives GroupFacts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

from oncecast.broker import moves as do
from oncecast.broker.estate import Estate, Party
from oncecast.broker.service import Execute, Executed, Service
from oncecast.dht.identifiers import after, key_of
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import LeaderChanged
from oncecast.ring.events import GiveUp, GroupFacts, KeyOwner, WhoseKey
from oncecast.ring.giver import Giver
from oncecast.ring.moves import (
    Dropped,
    Follow,
    Give,
    Given,
    Gone,
    MoveMessage,
    NotGiven,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Survey,
    Surveyed,
    TakeAll,
    Taken,
    Waiting,
)
from oncecast.ring.taker import Taker
from oncecast.wire.results import MoveStep

TOKENS = 1 << 48  # from here on, so that they are nobody else's


class Pace(Value):
    """Timer."""


class Mover(Protocol):
    name = "mover"
    Message = MoveMessage | KeyOwner | GroupFacts | GiveUp
    Observed = Executed | LeaderChanged
    Timer = Pace

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        home: NodeId,  # the ring stack of its process
        group: str,
        first: bool = False,  # of a new ring
        replicas: int = 3,  # that a group should have
        every: float = 0.25,
        report_every: float = 1.0,
        pull_bytes: int = 1 << 20,  # in one answer of a giver, unless one batch is larger
        little_bytes: int = 1 << 18,  # of a round after which the rest may be copied while frozen
    ) -> None:
        super().__init__(me, rng)
        self._service, self.home, self.group, self._first = service, home, group, first
        self._replicas = replicas
        self._every, self._report_every = every, report_every
        self._reported = -report_every
        self.pull_bytes, self.little_bytes = pull_bytes, little_bytes
        self._tokens = TOKENS
        self._pending: dict[int, Callable[[bool], None]] = {}
        self._once: dict[str, None] = {}  # kinds of commands that are under way
        self._giver, self._taker = Giver(self, service), Taker(self, service)

    def start(self) -> None:
        self.later(self._every, Pace())

    # -- what the group has decided --

    @property
    def estate(self) -> Estate | None:
        return self._service.machine.registry.estate

    @property
    def speaks(self) -> bool:
        """Whether what is known here is all that was ever decided, and it may say so."""
        return self._service.leading and self._service.group.leads(self.now)

    def execute(self, command: do.Move, then: Callable[[bool], None]) -> None:
        self._tokens += 1
        self._pending[self._tokens] = then
        self.ask(Execute(self._tokens, command))

    def execute_once(self, command: do.Move, then: Callable[[bool], object] = bool) -> None:
        """Unless one of its kind is under way."""
        kind = type(command).__name__
        if kind in self._once:
            return
        self._once[kind] = None

        def done(so: bool) -> None:
            self._once.pop(kind, None)
            then(so)

        self.execute(command, done)

    def under_way(self, kind: type[do.Move]) -> bool:
        return kind.__name__ in self._once

    def observe(self, event: Executed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self._pending.clear()
            self._once.clear()
            self._taker.forget()
            self.report()
        elif event.token in self._pending:
            result = event.result
            self._pending.pop(event.token)(isinstance(result, MoveStep) and result.so)

    # -- in time --

    def timeout(self, timer: Pace) -> None:
        self.later(self._every, timer)
        if self.now >= self._reported + self._report_every:
            self.report()
        if not self.speaks:
            return
        estate = self.estate
        if estate is None:
            self.execute_once(do.Found(self.group, self._first), lambda _: self.report())
        elif estate.claim is not None and estate.retired and not estate.claim.adopted:
            self._taker.abandon(estate.claim)
        elif estate.claim is not None:
            self._taker.take(estate, estate.claim)
        elif estate.retired:
            if estate.low is not None and estate.frozen is None:
                self.send(self.home, WhoseKey(after(estate.position)))
        elif estate.low is None:
            self.send(self.home, WhoseKey(estate.position))
        if estate is not None:
            self._giver.remind(estate)

    def report(self) -> None:
        """To the ring stack of this process."""
        self._reported = self.now
        estate, group = self.estate, self._service.group
        if estate is not None:
            facts = (self._service.leader, group.nodes(), group.applied)
            retired = estate.retired and estate.claim is None  # it may still come to own something
            self.send(self.home, GroupFacts(estate.group, estate.low, *facts, retired), after=0)

    # -- messages --

    def receive(
        self, sender: NodeId, message: MoveMessage | KeyOwner | GroupFacts | GiveUp
    ) -> None:
        if isinstance(message, Follow):
            if not self._taker.follow(message):
                self._giver.follow(message)
            return
        if not self.speaks:
            if not isinstance(message, KeyOwner | GroupFacts | GiveUp | TakeAll):
                group = self._service.group
                follow = Follow(message.move, self._service.leader, group.nodes())
                self.send(sender, follow, after=0)
            return
        estate = self.estate
        if estate is None:
            return
        match message:
            case GiveUp():
                nodes = self._service.group.nodes()
                if not estate.retired and any(node.startswith(f"{sender}/") for node in nodes):
                    self.execute_once(do.Retire())
            case GroupFacts():
                if sender == self.home:
                    self._taker.found_again(estate, message)
                    self._giver.found_again(estate, message)
            case KeyOwner() if estate.retired:
                nodes = self._service.group.nodes()
                if message.owner.group != self.group and message.owner.leader:
                    self.send(message.owner.leader, TakeAll(Party(self.group, nodes)))
            case KeyOwner():
                self._claim(estate, message)
            case TakeAll(giver):
                idle = estate.claim is None and not estate.retired
                if idle and giver.nodes and estate.low == key_of(giver.group):
                    self.execute_once(do.Claim(self._new_move(), giver))
            case Survey() | Pull() | PullParts() | Give() | Taken() | Dropped():
                self._giver.receive(sender, estate, message)
            case Surveyed() | Pulled() | PulledParts() | Given() | NotGiven() | Gone():
                self._taker.told(estate, message)
            case Waiting(move):
                if estate.claim is None or estate.claim.move != move:
                    self.send(sender, Dropped(move))
                elif estate.claim.adopted:
                    self.send(sender, Taken(move))
            case _:
                assert_never(message)

    def _claim(self, estate: Estate, found: KeyOwner) -> None:
        """What others rely on is taken over only by a group with all its replicas."""
        owner, replicas = found.owner, len(self._service.group.nodes())
        whole = replicas >= min(self._replicas, found.processes)
        idle = estate.claim is None and estate.low is None and found.key == estate.position
        if whole and idle and owner.nodes and owner.group != self.group:
            move = self._new_move()
            nodes = dict.fromkeys((owner.leader, *owner.nodes))
            giver = Party(owner.group, tuple(node for node in nodes if node))
            self.execute_once(do.Claim(move, giver))

    def _new_move(self) -> str:
        return f"{self.group}-{self.rng.getrandbits(64):016x}"
