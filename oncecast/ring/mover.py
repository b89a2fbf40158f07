"""Move arcs between groups: the importer copies messages, then takes over ownership (REP-6).

A group that owns nothing looks up the owner of its position, and claims the part of the arc up to
that position. The importer copies batches in rounds while the exporter still serves them. When
little is left, the exporter freezes the part. The importer copies the rest and adopts the part.
Each step is decided and becomes part of its group's holdings, so any later leader can continue the
move. A move that cannot finish is abandoned, and the exporter thaws its part. A group that cannot
reach the other one looks it up in the ring by name. If the other group is gone, the move ends.

Needs the group's service, links, and the process's ring stack. Sends GroupFacts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar, assert_never

from oncecast.broker import moves as do
from oncecast.broker.events import Execute, Executed
from oncecast.broker.holdings import Holdings, PeerGroup
from oncecast.broker.service import Service
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
from oncecast.ring.neighbors import Neighbors, group_of
from oncecast.wire.results import MoveStep

TOKENS = 1 << 48  # the first token; high, so that no other layer uses the same tokens


class Pace(Value):
    """Timer: report the group's state, and continue a move."""


class Mover(Protocol):
    name = "mover"
    Message: ClassVar = MoveMessage | KeyOwner | GroupFacts | RetireGroup
    Observed: ClassVar = Executed | LeaderChanged
    Timer = Pace

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        process: NodeId,  # the ring stack of the process
        group: str,
        first: bool = False,  # whether the group starts a new ring
        replicas: int = 3,  # number of replicas per group
        every: float = 0.25,
        report_every: float = 1.0,
        pull_bytes: int = 1 << 20,  # maximum bytes per answer, unless one batch is larger
        # Once a round copies at most this many bytes, the part is frozen.
        little_bytes: int = 1 << 18,
    ) -> None:
        super().__init__(me, rng)
        self._service, self.process, self.group, self._first = service, process, group, first
        self._replicas = replicas
        self._every, self._report_every = every, report_every
        self._reported = -report_every
        self.pull_bytes, self.little_bytes = pull_bytes, little_bytes
        self._tokens = TOKENS
        self._pending: dict[int, Callable[[bool], None]] = {}
        self._once: dict[str, None] = {}  # types of commands in flight
        self._exporter, self._importer = Exporter(self, service), Importer(self, service)
        self._neighbors = Neighbors(self, process)

    def start(self) -> None:
        self.later(self._every, Pace())

    # -- decided state --

    @property
    def holdings(self) -> Holdings | None:
        return self._service.machine.registry.holdings

    @property
    def has_lease(self) -> bool:
        """Return whether this replica leads with a lease, and so knows everything decided."""
        return self._service.leading and self._service.group.leads(self.now)

    def execute(self, command: do.Move, then: Callable[[bool], None]) -> None:
        self._tokens += 1
        self._pending[self._tokens] = then
        self.ask(Execute(self._tokens, command))

    def execute_once(self, command: do.Move, then: Callable[[bool], object] = bool) -> None:
        """Execute a command, unless another command of the same type is in flight."""
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
            self._neighbors.forget()
            self.report()
        elif event.token in self._pending:
            result = event.result
            self._pending.pop(event.token)(isinstance(result, MoveStep) and result.done)

    # -- timer --

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
        """Send facts about the group to this process's ring stack."""
        self._reported = self.now
        holdings, group = self.holdings, self._service.group
        if holdings is not None:
            facts = (self._service.leader, group.nodes(), group.applied)
            # With a claim, the group may still adopt a part.
            retired = holdings.retired and holdings.claim is None
            self.send(
                self.process, GroupFacts(holdings.group, holdings.low, *facts, retired), after=0
            )

    # -- messages --

    # Long, because it has one case per message type.
    def receive(
        self, sender: NodeId, message: MoveMessage | KeyOwner | GroupFacts | RetireGroup
    ) -> None:
        if isinstance(message, NotLeader):
            if not self._importer.redirect(sender, message):
                self._exporter.redirect(sender, message)
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
            case GroupFacts() | KeyOwner() if sender != self.process:
                pass
            case GroupFacts():
                self._importer.located(holdings, message)
                self._exporter.located(holdings, message)
                for node, waited in self._neighbors.located(message):
                    self.receive(node, waited)  # type: ignore[arg-type]
            case KeyOwner() if holdings.retired:
                nodes = self._service.group.nodes()
                if message.owner.group != self.group and message.owner.leader:
                    self.send(message.owner.leader, ImportAll(PeerGroup(self.group, nodes)))
            case KeyOwner():
                self._claim(holdings, message)
            case ImportAll(exporter):
                idle = holdings.claim is None and not holdings.retired
                next_to = holdings.low == key_of(exporter.group)
                named = sender in exporter.nodes and group_of(sender) == exporter.group
                if idle and next_to and named and self._neighbors.knows(sender, message):
                    self.execute_once(do.Claim(self._new_move(), exporter))
            case Survey() | Pull() | PullParts() | Export() | Adopted() | Abandoned():
                if self._neighbors.knows(sender, message):
                    self._exporter.receive(sender, holdings, message)
            case Surveyed() | Pulled() | PulledParts() | Exported() | ExportRefused() | Released():
                self._importer.receive(sender, holdings, message)
            case StillWanted(move):
                if holdings.claim is None or holdings.claim.move != move:
                    self.send(sender, Abandoned(move))
                elif holdings.claim.adopted:
                    self.send(sender, Adopted(move))
            case _:
                assert_never(message)

    def _claim(self, holdings: Holdings, found: KeyOwner) -> None:
        """Claim a part from the owner of this position, once this group has all its replicas."""
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
