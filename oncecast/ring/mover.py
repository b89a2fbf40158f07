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
from oncecast.broker.holdings import Holdings, PeerGroup
from oncecast.broker.service import Execute, Executed, Service
from oncecast.dht.identifiers import after, key_of
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import LeaderChanged
from oncecast.ring.events import GroupFacts, KeyOwner, RetireGroup, WhoseKey
from oncecast.ring.exporter import Exporter
from oncecast.ring.importer import Importer
from oncecast.ring.moves import (
    Abandoned,
    Adopted,
    Export,
    Exported,
    ExportRefused,
    ImportAll,
    MoveMessage,
    NotLeader,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Released,
    StillWanted,
    Survey,
    Surveyed,
)
from oncecast.wire.results import MoveStep

TOKENS = 1 << 48  # from here on, so that they are nobody else's


class Pace(Value):
    """Timer."""


class Mover(Protocol):
    name = "mover"
    Message = MoveMessage | KeyOwner | GroupFacts | RetireGroup
    Observed = Executed | LeaderChanged
    Timer = Pace

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        process: NodeId,  # the ring stack of its process
        group: str,
        first: bool = False,  # of a new ring
        replicas: int = 3,  # that a group should have
        every: float = 0.25,
        report_every: float = 1.0,
        pull_bytes: int = 1 << 20,  # in one answer of a giver, unless one batch is larger
        little_bytes: int = 1 << 18,  # of a round after which the rest may be copied while frozen
    ) -> None:
        super().__init__(me, rng)
        self._service, self.process, self.group, self._first = service, process, group, first
        self._replicas = replicas
        self._every, self._report_every = every, report_every
        self._reported = -report_every
        self.pull_bytes, self.little_bytes = pull_bytes, little_bytes
        self._tokens = TOKENS
        self._pending: dict[int, Callable[[bool], None]] = {}
        self._once: dict[str, None] = {}  # kinds of commands that are under way
        self._exporter, self._importer = Exporter(self, service), Importer(self, service)

    def start(self) -> None:
        self.later(self._every, Pace())

    # -- what the group has decided --

    @property
    def holdings(self) -> Holdings | None:
        return self._service.machine.registry.holdings

    @property
    def has_lease(self) -> bool:
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

        def done(done: bool) -> None:
            self._once.pop(kind, None)
            then(done)

        self.execute(command, done)

    def in_flight(self, kind: type[do.Move]) -> bool:
        return kind.__name__ in self._once

    def observe(self, event: Executed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self._pending.clear()
            self._once.clear()
            self._importer.forget()
            self.report()
        elif event.token in self._pending:
            result = event.result
            self._pending.pop(event.token)(isinstance(result, MoveStep) and result.done)

    # -- in time --

    def timeout(self, timer: Pace) -> None:
        self.later(self._every, timer)
        if self.now >= self._reported + self._report_every:
            self.report()
        if not self.has_lease:
            return
        holdings = self.holdings
        if holdings is None:
            self.execute_once(do.Found(self.group, self._first), lambda _: self.report())
        elif holdings.claim is not None and holdings.retired and not holdings.claim.adopted:
            self._importer.abandon(holdings.claim)
        elif holdings.claim is not None:
            self._importer.take(holdings, holdings.claim)
        elif holdings.retired:
            if holdings.low is not None and holdings.frozen is None:
                self.send(self.process, WhoseKey(after(holdings.position)))
        elif holdings.low is None:
            self.send(self.process, WhoseKey(holdings.position))
        if holdings is not None:
            self._exporter.remind(holdings)

    def report(self) -> None:
        """To the ring stack of this process."""
        self._reported = self.now
        holdings, group = self.holdings, self._service.group
        if holdings is not None:
            facts = (self._service.leader, group.nodes(), group.applied)
            retired = (
                holdings.retired and holdings.claim is None
            )  # it may still come to own something
            self.send(
                self.process, GroupFacts(holdings.group, holdings.low, *facts, retired), after=0
            )

    # -- messages --

    def receive(
        self, sender: NodeId, message: MoveMessage | KeyOwner | GroupFacts | RetireGroup
    ) -> None:
        if isinstance(message, NotLeader):
            if not self._importer.redirect(message):
                self._exporter.redirect(message)
            return
        if not self.has_lease:
            if not isinstance(message, KeyOwner | GroupFacts | RetireGroup | ImportAll):
                group = self._service.group
                answer = NotLeader(message.move, self._service.leader, group.nodes())
                self.send(sender, answer, after=0)
            return
        holdings = self.holdings
        if holdings is None:
            return
        match message:
            case RetireGroup():
                nodes = self._service.group.nodes()
                if not holdings.retired and any(node.startswith(f"{sender}/") for node in nodes):
                    self.execute_once(do.Retire())
            case GroupFacts():
                if sender == self.process:
                    self._importer.located(holdings, message)
                    self._exporter.located(holdings, message)
            case KeyOwner() if holdings.retired:
                nodes = self._service.group.nodes()
                if message.owner.group != self.group and message.owner.leader:
                    self.send(message.owner.leader, ImportAll(PeerGroup(self.group, nodes)))
            case KeyOwner():
                self._claim(holdings, message)
            case ImportAll(exporter):
                idle = holdings.claim is None and not holdings.retired
                if idle and exporter.nodes and holdings.low == key_of(exporter.group):
                    self.execute_once(do.Claim(self._new_move(), exporter))
            case Survey() | Pull() | PullParts() | Export() | Adopted() | Abandoned():
                self._exporter.receive(sender, holdings, message)
            case Surveyed() | Pulled() | PulledParts() | Exported() | ExportRefused() | Released():
                self._importer.receive(holdings, message)
            case StillWanted(move):
                if holdings.claim is None or holdings.claim.move != move:
                    self.send(sender, Abandoned(move))
                elif holdings.claim.adopted:
                    self.send(sender, Adopted(move))
            case _:
                assert_never(message)

    def _claim(self, holdings: Holdings, found: KeyOwner) -> None:
        """What others rely on is taken over only by a group with all its replicas."""
        owner, replicas = found.owner, len(self._service.group.nodes())
        whole = replicas >= min(self._replicas, found.processes)
        idle = holdings.claim is None and holdings.low is None and found.key == holdings.position
        if whole and idle and owner.nodes and owner.group != self.group:
            move = self._new_move()
            nodes = dict.fromkeys((owner.leader, *owner.nodes))
            exporter = PeerGroup(owner.group, tuple(node for node in nodes if node))
            self.execute_once(do.Claim(move, exporter))

    def _new_move(self) -> str:
        return f"{self.group}-{self.rng.getrandbits(64):016x}"
