"""The client side of a session with a cluster. It is pure: simulator and network both run it.

The session keeps one link to the leader of each group (`routes`, `route`). The link carries calls
(`calls`), batches of each topic (`producing`), deliveries (`reading`) and the jobs of workers
(`working`). The session resends whatever the link or a node has lost, and drops duplicates. A
durable client writes batches to its outbox before it sends them, and its next process continues
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import ClassVar

import msgspec

from oncecast.client.session import local
from oncecast.client.session.alarm import Alarm
from oncecast.client.session.calls import Calls
from oncecast.client.session.identity import Identity
from oncecast.client.session.outbox import Outbox, Outgoing
from oncecast.client.session.patience import Patience
from oncecast.client.session.producing import Flow
from oncecast.client.session.reading import Reader
from oncecast.client.session.records import (
    AskAround,
    Based,
    ClientState,
    Named,
    OutboxRecord,
    Queued,
    Rebound,
    Redial,
    Settled,
    Sweep,
    Tick,
    Withdrawn,
)
from oncecast.client.session.route import Route
from oncecast.client.session.routes import Routes
from oncecast.client.session.transacting import Transactions
from oncecast.client.session.working import Works
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.wire.commands import ANY_EPOCH, OpenSource, PublishStaged, Seek
from oncecast.wire.errors import NotSubscribed, Overloaded
from oncecast.wire.frames import (
    AccessView,
    Answer,
    ArcView,
    BrokerView,
    ClientCommand,
    Delivery,
    Elsewhere,
    FlowEnded,
    Govern,
    GroupView,
    Jobs,
    LeaveRing,
    Look,
    LookAccess,
    LookBroker,
    LookGroup,
    LookRing,
    Owned,
    RingView,
    Scan,
    Scanned,
    View,
    WorkEnded,
)

READ_AHEAD = 16_384  # maximum messages of a subscription in the client's queue
OUTBOX_BYTES = 4 * 1024 * 1024  # size of the outbox at which settled batches are dropped


Seen = View | Scanned | GroupView | RingView | AccessView | BrokerView
Question = Look | Scan | LookGroup | Govern | LookAccess | LookBroker | LookRing | LeaveRing
FromNode = Answer | Delivery | FlowEnded | Jobs | WorkEnded | Elsewhere | Owned | Seen


class ClientSession(Protocol):
    name = "client"
    Request = local.Request
    Message = FromNode
    Timer: ClassVar = Tick | Redial | AskAround | Rebound | Sweep
    Record: ClassVar = Named | Queued | Based | Settled | Withdrawn
    State = ClientState

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        node: NodeId,
        others: tuple[NodeId, ...] = (),  # other nodes of the same group or ring
        producer: str,
        incarnation: str,
        durable: bool = False,
        read_ahead: int = READ_AHEAD,
        outbox_bytes: int = OUTBOX_BYTES,
        moved: Callable[[NodeId], int] | None = None,  # bytes sent to and received from a node
        any_replica: bool = False,  # send scans to any replica, not only to the leader
    ) -> None:
        super().__init__(me, rng)
        self.identity = Identity(producer, incarnation, durable)
        self._alarm = Alarm(self)
        nodes = tuple(dict.fromkeys((node, *others)))
        self.routes = Routes(self, nodes, pending=self, moved=moved, any_replica=any_replica)
        self._at = self.routes.at
        self.calls = Calls(self, self.identity, self._alarm, self.routes)
        self.flows: dict[str, Flow] = {}
        self._outbox = Outbox(
            self, self._alarm, self.flows, self._save, durable=durable, bytes_max=outbox_bytes
        )
        self._in_flight: dict[int, Outgoing] = {}  # batches by call id
        self.readers: dict[tuple[str, str], Reader] = {}
        self._readers_made = 0
        self._transactions = Transactions(self, self.identity, self.calls)
        self.works = Works(self, self.identity, self._alarm, self.calls, self.routes)
        self._read_ahead = read_ahead
        self._restored = False  # whether an earlier process has used this outbox

    @property
    def producer(self) -> str:
        return self.identity.producer

    @property
    def entry(self) -> Route:
        """Return the route to the nodes that the application named."""
        return self.routes.entry

    # -- start --

    def restore(self, record: ClientState | Named | OutboxRecord) -> None:
        self._restored = True
        match record:
            case ClientState(producer, directory_id, records):
                self.identity.producer, self.identity.directory_id = producer, directory_id
                for each in records:
                    self._flow(each.topic).restore(each)
            case Named(producer, directory_id):
                self.identity.producer, self.identity.directory_id = producer, directory_id
            case _:
                self._flow(record.topic).restore(record)

    def connected(self, node: NodeId, producer: str) -> None:
        """Use `node`, which has confirmed or assigned the client's name. Call before `start`."""
        self.entry.node, self.identity.producer = node, producer

    def start(self) -> None:
        if self.identity.durable and not self._restored:
            self.append(Named(self.identity.producer, self.identity.directory_id))
        self.routes.begin()
        for flow in self.flows.values():
            self._outbox.restored(sum(len(each.batch) for each in flow.unsettled.values()))
            flow.go_on()

    # -- inputs --

    def request(self, request: local.Request) -> None:
        match request:
            case local.Produce(ticket, topic, count, batch, timing, create):
                self._flow(topic).produce(ticket, count, batch, timing, create)
            case local.Do():
                self._do(request)
            case local.Show():
                self._show(request)
            case local.ShowAccess():
                self._show_access(request)
            case local.ShowBroker():
                self._show_broker(request)
            case local.Survey():
                self._survey(request)
            case local.Group():
                self._show_group(request)
            case local.Ring():
                self._show_ring(request)
            case local.Read():
                self._read(request)
            case local.Finish():
                self._finish(request)
            case local.Begin():
                self._transactions.begin(request)
            case local.End():
                self._transactions.end(request)
            case local.EndAll():
                self._transactions.across.end(request)
            case local.Join():
                self.works.join(request)
            case local.Window() | local.Handle() | local.Confirm() | local.Part():
                gone = self.works.request(request)
                if gone is not None and isinstance(request, local.Confirm | local.Part):
                    self._finished(request.ticket, gone)
            case _:
                self._for_reader(request)

    def _read(self, read: local.Read) -> None:
        key = (read.topic, read.subscription)
        before = self.readers.get(key)
        if before is not None:
            before.give_up()
        self._readers_made += 1
        self.readers[key] = Reader(
            self,
            self._alarm,
            self.calls,
            self.routes,
            self.readers,
            Patience(self, self._alarm, self.routes, read.topic),
            read,
            f"{self.identity.incarnation}.{self._readers_made}",
            self._read_ahead,
        )

    def _for_reader(
        self,
        request: local.Want | local.Settle | local.Again | local.Move | local.Leave | local.Drop,
    ) -> None:
        reader = self.readers.get((request.topic, request.subscription))
        if reader is None:  # The reader has ended, and the application knows the reason.
            if not isinstance(request, local.Want | local.Again | local.Drop):
                gone = NotSubscribed(request.topic, request.subscription)
                self._finished(request.ticket, gone)
            return
        match request:
            case local.Want():
                reader.want(request)
            case local.Settle():
                reader.settle(request)
            case local.Again():
                reader.again(request)
            case local.Move():
                reader.move(request)
            case local.Leave():
                reader.leave(request)
            case local.Drop():
                reader.give_up(request)

    def receive(self, sender: NodeId, message: FromNode) -> None:
        route = self._at.get(sender)
        if route is not None:
            route.heard = self.now
        else:
            route = self.routes.whose(sender)
            if route is None:
                return  # the session no longer uses this node
        if route.astray and not isinstance(message, Elsewhere | GroupView | RingView):
            route.found()
        # Check the most frequent types first: isinstance is slow for structs when it fails.
        if isinstance(message, Answer):
            outgoing = self._in_flight.get(message.id)
            if outgoing is not None:
                outgoing.flow.answered(message.id, outgoing, message.result, route)
            else:
                self.calls.answered(message, route)
        elif isinstance(message, Delivery):
            reader = self.readers.get((message.topic, message.subscription))
            if reader is not None:
                reader.delivered(message)
        elif isinstance(message, FlowEnded):
            reader = self.readers.get((message.topic, message.subscription))
            if reader is not None:
                reader.flow_ended(message, route)
        elif isinstance(message, Jobs | WorkEnded):
            self.works.receive(message, route)
        elif isinstance(message, View | Scanned | RingView | AccessView | BrokerView):
            self.calls.shown(message)
        elif isinstance(message, GroupView):
            route.seen(message)
            self.calls.shown(message)
        elif isinstance(message, Elsewhere):
            route.elsewhere(sender, message)
        elif route is self.entry:
            self.routes.owned(message)

    def down(self, peer: NodeId) -> None:
        for route in list(self.routes):
            if peer == route.node:
                route.gone(peer)

    def timeout(self, timer: Tick | Redial | AskAround | Rebound | Sweep) -> None:
        if isinstance(timer, Tick):
            self._tick()
        elif isinstance(timer, Rebound | Sweep):
            self.routes.timeout(timer)
        elif route := self.routes.to(timer.group):  # None if the route has been dropped
            route.timeout(timer)

    def redial(self, route: Route) -> None:
        """Watch the route's node and resend all requests of the route."""
        self.watch(route.node)
        self.resend(lambda topic: self.routes.bound_to(topic) is route)
        if route is self.entry:
            for reader in self.readers.values():
                if reader.push:
                    reader.link_lost()

    def resend(self, about: Callable[[str], bool]) -> None:
        """Resend all requests for topics that match the predicate `about`."""
        self.calls.resend(about)
        for flow in self.flows.values():
            if about(flow.topic):
                flow.link_lost()
        for reader in (*self.readers.values(), *self.works):
            if about(reader.topic):
                reader.link_lost()

    def owing(self) -> set[Route]:
        """Return the routes with unanswered requests."""
        put = [flow.topic for flow in self.flows.values() if flow.epoch and flow.unsettled]
        return {self.routes.bound_to(topic) for topic in (*put, *self.calls.topics())}

    def topics_in_use(self) -> set[str]:
        """Return the topics of all calls, unsettled batches and readers."""
        put = [flow.topic for flow in self.flows.values() if flow.unsettled]
        read = [reader.topic for reader in (*self.readers.values(), *self.works)]
        return {*put, *self.calls.topics(), *read}

    def _tick(self) -> None:
        self._alarm.rang()
        self.calls.tick(self.now)
        for flow in self.flows.values():
            flow.tick(self.now)
        for reader in (*self.readers.values(), *self.works):
            reader.tick(self.now)
        owing = self.owing()
        for route in self.routes:
            route.look(owes=route in owing)
        self._outbox.tick(self.now)

    # -- calls for the application --

    def _do(self, request: local.Do) -> None:
        command, ticket = request.command, request.ticket

        def then(outcome: local.Outcome) -> None:
            self._finished(ticket, outcome)

        if isinstance(command, OpenSource) and command.expected != ANY_EPOCH:
            self.calls.do(command, then, request.timeout)
        elif isinstance(command, PublishStaged | Seek | OpenSource):
            first = msgspec.structs.replace(command, expected=0)
            self.calls.replace_epoch(first, then, request.timeout)
        else:
            self.calls.do(command, then, request.timeout)

    def _finished(self, ticket: int, outcome: local.Outcome) -> None:
        self.emit(local.Finished(ticket, outcome), after=0)

    def _look(
        self, look: Question, ticket: int, timeout: float, arc: ArcView | None = None
    ) -> None:
        def shown(outcome: Seen | local.Outcome) -> None:
            if isinstance(outcome, Seen):
                self.emit(local.Shown(ticket, outcome), after=0)
            else:
                self._finished(ticket, outcome)

        self.calls.look(look, shown, timeout, "" if arc is None else self.routes.pinned(arc))

    def _show(self, show: local.Show) -> None:
        where = (show.topic, show.prefix, show.after, show.limit, show.subscriptions)
        self._look(Look(self.calls.new_id(), *where), show.ticket, show.timeout, show.arc)

    def _show_access(self, show: local.ShowAccess) -> None:
        self._look(LookAccess(self.calls.new_id(), show.first), show.ticket, show.timeout)

    def _show_broker(self, show: local.ShowBroker) -> None:
        look = LookBroker(self.calls.new_id(), show.topic)
        self._look(look, show.ticket, show.timeout, show.arc)

    def _survey(self, survey: local.Survey) -> None:
        scan = msgspec.structs.replace(
            survey.scan, id=self.calls.new_id(), any_replica=self.routes.any_replica
        )
        self._look(scan, survey.ticket, survey.timeout)

    def _show_group(self, group: local.Group) -> None:
        id_ = self.calls.new_id()
        question = LookGroup(id_) if group.wish is None else Govern(id_, group.wish)
        self._look(question, group.ticket, group.timeout)

    def _show_ring(self, ring: local.Ring) -> None:
        id_ = self.calls.new_id()
        question = LeaveRing(id_) if ring.leave else LookRing(id_, ring.tree)
        self._look(question, ring.ticket, ring.timeout)

    def _finish(self, finish: local.Finish) -> None:
        closes = [flow.close_command() for flow in self.flows.values()] if finish.forget else []
        commands: list[ClientCommand] = [each for each in closes if each is not None]
        if finish.forget:
            commands += self._transactions.closes(f"{self.producer}.")
        left = len(commands)
        if self.identity.durable:
            self._outbox.tidy()

        def closed(_: local.Outcome) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.emit(local.AllDone(finish.ticket))

        for command in commands:
            self.calls.do(command, closed, finish.timeout)
        if not commands:
            self.emit(local.AllDone(finish.ticket))

    @property
    def led(self) -> bool:
        """Return whether every group has a leader, as far as the client knows."""
        return all(route.led for route in self.routes)

    def node_of(self, topic: str) -> NodeId:
        """Return the node that requests about the topic are sent to."""
        return self.routes.bound_to(topic).node

    @property
    def busy(self) -> Overloaded | None:
        """Return the refusal from a node that is too busy to store puts, or None if no node is."""
        return next((flow.busy for flow in self.flows.values() if flow.busy is not None), None)

    @property
    def unsettled(self) -> int:
        """Return the number of unanswered batches, including those of earlier processes."""
        return sum(len(flow.unsettled) for flow in self.flows.values())

    def _save(self, records: Iterable[OutboxRecord]) -> None:
        """Replace the outbox's log with a snapshot."""
        identity = self.identity
        self.snapshot(ClientState(identity.producer, identity.directory_id, tuple(records)))
        self.trim(self._records.last + 1)

    def _flow(self, topic: str) -> Flow:
        flow = self.flows.get(topic)
        if flow is None:
            flow = self.flows[topic] = Flow(
                self,
                self.identity,
                self.calls,
                self.routes,
                self._outbox,
                self._in_flight,
                Patience(self, self._alarm, self.routes, topic),
                topic,
            )
        return flow
