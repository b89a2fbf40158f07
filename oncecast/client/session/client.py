"""The client's side of the session with a node; pure, so simulator and network run it alike.

It keeps one link to each group, to the node that leads it (`ways`, `whereabouts`). Over the link go
calls (`calls`), batches of each topic (`producing`) and flows of deliveries (`reading`); what the
link or the node loses is sent again, and what comes twice is dropped. With a journal it writes its
outbox down before it sends, and the next life of the client goes on from there.

    life      text that no other process will ever choose: tells a repetition from a newcomer
    producer  the durable name under which it puts
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from oncecast.client.session import local
from oncecast.client.session.calls import Calls
from oncecast.client.session.outbox import Based, Outgoing, Queued, Settled
from oncecast.client.session.producing import Flow
from oncecast.client.session.reading import Reader
from oncecast.client.session.ways import Rebound, Sweep, Ways
from oncecast.client.session.whereabouts import AskAround, Redial, Whereabouts
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.wire.commands import PublishStaged
from oncecast.wire.errors import NotSubscribed, Overloaded
from oncecast.wire.frames import (
    Answer,
    Delivery,
    Elsewhere,
    FlowEnded,
    Govern,
    GroupView,
    LeaveRing,
    Look,
    LookGroup,
    LookRing,
    Owned,
    RingView,
    Scan,
    Scanned,
    View,
)

READ_AHEAD = 16_384  # messages of a subscription that wait at the client
TIDY_AFTER = 0.5  # when all is settled for so long, that is written down
OUTBOX_BYTES = 4 * 1024 * 1024  # written, before the settled part of it is given back


Seen = View | Scanned | GroupView | RingView
Question = Look | Scan | LookGroup | Govern | LookRing | LeaveRing
FromNode = Answer | Delivery | FlowEnded | Elsewhere | Owned | Seen


class Tick(Value):
    """Something is due."""


class Named(Value, tag="Named"):
    """Whose outbox this is, and what no other outbox is called."""

    producer: str
    books: str


class ClientState(Value, tag="ClientState"):
    producer: str
    books: str
    records: tuple[Queued | Based | Settled, ...]


class ClientSession(Protocol):
    name = "client"
    Request = local.Request
    Message = FromNode
    Timer = Tick | Redial | AskAround | Rebound | Sweep
    Record = Named | Queued | Based | Settled
    State = ClientState

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        node: NodeId,
        others: tuple[NodeId, ...] = (),  # of the same group, or ring
        producer: str,
        life: str,
        durable: bool = False,
        read_ahead: int = READ_AHEAD,
        outbox_bytes: int = OUTBOX_BYTES,
        moved: Callable[[NodeId], int] | None = None,
    ) -> None:
        super().__init__(me, rng)
        self.producer, self.life, self.durable = producer, life, durable
        self.books = life if durable else ""  # of the first life, for all that come after it
        self.home = Whereabouts(self, "", tuple(dict.fromkeys((node, *others))))
        self.ways = Ways(self, self.home)
        self._at = self.ways.at
        # Bytes over the link with a node so far, both ways.
        self.moved = moved
        self.restored = False  # there was an earlier life
        self.calls = Calls(self)
        self.flows: dict[str, Flow] = {}
        self.flying: dict[int, Outgoing] = {}  # batches under way, by the calls that carry them
        self.readers: dict[tuple[str, str], Reader] = {}
        self._readings = 0  # so far
        self._read_ahead, self._outbox_max = read_ahead, outbox_bytes
        self._alarm = local.NEVER
        self._outbox_bytes = self._written_bytes = 0  # unsettled; written since the last snapshot
        self._tidy_due = local.NEVER

    # -- life --

    def restore(self, record: ClientState | Named | Queued | Based | Settled) -> None:
        self.restored = True
        match record:
            case ClientState(producer, books, records):
                self.producer, self.books = producer, books
                for each in records:
                    self._flow(each.topic).restore(each)
            case Named(producer, books):
                self.producer, self.books = producer, books
            case _:
                self._flow(record.topic).restore(record)

    def connected(self, node: NodeId, producer: str) -> None:
        """Begin at `node`, which has confirmed or chosen the name. Call it before `start`."""
        self.home.node, self.producer = node, producer

    def start(self) -> None:
        if self.durable and not self.restored:
            self.append(Named(self.producer, self.books))
        self.ways.begin()
        for flow in self.flows.values():
            self._outbox_bytes += sum(len(each.batch) for each in flow.unsettled.values())
            flow.go_on()

    # -- inputs --

    def request(self, request: local.Request) -> None:
        match request:
            case local.Produce(ticket, topic, count, batch):
                self._flow(topic).produce(ticket, count, batch)
            case local.Do():
                self._do(request)
            case local.Show():
                self._show(request)
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
            case _:
                self._for_reader(request)

    def _read(self, read: local.Read) -> None:
        key = (read.topic, read.subscription)
        before = self.readers.get(key)
        if before is not None:
            before.give_up()
        self._readings += 1
        life = f"{self.life}.{self._readings}"
        self.readers[key] = Reader(self, *key, life, read.start_at, self._read_ahead, read.push)

    def _for_reader(
        self, request: local.Want | local.Settle | local.Again | local.Move | local.Leave
    ) -> None:
        reader = self.readers.get((request.topic, request.subscription))
        if reader is None:  # it has ended since, and the application was told why
            if not isinstance(request, local.Want | local.Again):
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

    def receive(self, sender: NodeId, message: FromNode) -> None:
        way = self._at.get(sender)
        if way is not None:
            way.heard = self.now
        else:
            way = self.ways.whose(sender)
            if way is None:
                return  # all that is of use will be said again, by who is asked now
        if way.astray and not isinstance(message, Elsewhere | GroupView | RingView):
            way.found()
        # By how often each comes: to see that a value is of another type takes long for structs.
        if isinstance(message, Answer):
            outgoing = self.flying.get(message.id)
            if outgoing is not None:
                outgoing.flow.answered(message.id, outgoing, message.result, way)
            else:
                self.calls.answered(message, way)
        elif isinstance(message, Delivery):
            reader = self.readers.get((message.topic, message.subscription))
            if reader is not None:
                reader.delivered(message)
        elif isinstance(message, FlowEnded):
            reader = self.readers.get((message.topic, message.subscription))
            if reader is not None:
                reader.flow_ended(message, way)
        elif isinstance(message, View | Scanned | RingView):
            self.calls.shown(message)
        elif isinstance(message, GroupView):
            way.seen(message)
            self.calls.shown(message)
        elif isinstance(message, Elsewhere):
            way.told(sender, message)
        elif way is self.home:
            self.ways.owned(message)

    def down(self, peer: NodeId) -> None:
        for way in list(self.ways):
            if peer == way.node:
                way.gone(peer)

    def timeout(self, timer: Tick | Redial | AskAround | Rebound | Sweep) -> None:
        if isinstance(timer, Tick):
            self._tick()
        elif isinstance(timer, Rebound | Sweep):
            self.ways.timeout(timer)
        elif way := self.ways.to(timer.group):  # or it was left meanwhile
            way.timeout(timer)

    def redial(self, way: Whereabouts) -> None:
        """Ask the node that leads now for all that was asked for."""
        self.watch(way.node)
        self.resend(lambda topic: self.ways.bound_to(topic) is way)
        if way is self.home:
            for reader in self.readers.values():
                if reader.push:
                    reader.link_lost()

    def resend(self, about: Callable[[str], bool]) -> None:
        """Ask again for what waits about these topics, as if nothing of it were under way."""
        self.calls.resend(about)
        for flow in self.flows.values():
            if about(flow.topic):
                flow.link_lost()
        for reader in self.readers.values():
            if about(reader.topic):
                reader.link_lost()

    def owing(self) -> set[Whereabouts]:
        """Those that owe an answer."""
        put = [flow.topic for flow in self.flows.values() if flow.epoch and flow.unsettled]
        return {self.ways.bound_to(topic) for topic in (*put, *self.calls.topics())}

    def topics_in_use(self) -> set[str]:
        """Of which anything is asked for, put or read."""
        put = [flow.topic for flow in self.flows.values() if flow.unsettled]
        return {*put, *self.calls.topics(), *[topic for topic, _ in self.readers]}

    def _tick(self) -> None:
        self._alarm = local.NEVER
        self.calls.tick(self.now)
        for flow in self.flows.values():
            flow.tick(self.now)
        for reader in list(self.readers.values()):
            reader.tick(self.now)
        owing = self.owing()
        for way in self.ways:
            way.look(owes=way in owing)
        if self.now >= self._tidy_due:
            self._tidy_when_idle()
        elif self._tidy_due < local.NEVER:
            self.due(self._tidy_due)

    # -- calls for the application --

    def _do(self, request: local.Do) -> None:
        command, ticket = request.command, request.ticket

        def then(outcome: local.Outcome) -> None:
            self._finished(ticket, outcome)

        if isinstance(command, PublishStaged):
            first = msgspec.structs.replace(command, expected=0)
            self.calls.publish(first, then, request.timeout)
        else:
            self.calls.do(command, then, request.timeout)

    def _finished(self, ticket: int, outcome: local.Outcome) -> None:
        self.emit(local.Finished(ticket, outcome), after=0)

    def _look(self, look: Question, ticket: int, timeout: float) -> None:
        def shown(outcome: Seen | local.Outcome) -> None:
            if isinstance(outcome, View | Scanned | GroupView | RingView):
                self.emit(local.Shown(ticket, outcome), after=0)
            else:
                self._finished(ticket, outcome)

        self.calls.look(look, shown, timeout)

    def _show(self, show: local.Show) -> None:
        where = (show.topic, show.prefix, show.after, show.limit, show.subscriptions)
        self._look(Look(self.calls.new_id(), *where), show.ticket, show.timeout)

    def _survey(self, survey: local.Survey) -> None:
        scan = msgspec.structs.replace(survey.scan, id=self.calls.new_id())
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
        farewells = [flow.farewell() for flow in self.flows.values()] if finish.forget else []
        commands = [command for command in farewells if command is not None]
        left = len(commands)
        if self.durable:
            self.tidy()

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
        """Return whether no group is known to be without a leader."""
        return all(way.led for way in self.ways)

    def node_of(self, topic: str) -> NodeId:
        """Return the node that is asked about the topic."""
        return self.ways.bound_to(topic).node

    @property
    def busy(self) -> Overloaded | None:
        """Why the node does not take what is put; None if it does, or says nothing."""
        return next((flow.busy for flow in self.flows.values() if flow.busy is not None), None)

    @property
    def unsettled(self) -> int:
        """Batches that were put and are neither stored nor refused: also those of earlier lives."""
        return sum(len(flow.unsettled) for flow in self.flows.values())

    # -- for flows and readers --

    def due(self, at: float) -> None:
        """Tick at that time, or sooner."""
        if at < self._alarm:
            self._alarm = at
            self.later(max(0.0, at - self.now), Tick())

    def wrote(self, size: int) -> None:
        self._outbox_bytes += size
        self._written_bytes += size
        if self._written_bytes > self._outbox_max + 4 * self._outbox_bytes:
            self.tidy()

    def settled(self, size: int) -> None:
        if self.durable:
            self._outbox_bytes -= size
            if self._tidy_due == local.NEVER:
                self._tidy_later()

    def _tidy_later(self) -> None:
        self._tidy_due = self.now + TIDY_AFTER
        self.due(self._tidy_due)

    def _tidy_when_idle(self) -> None:
        """As long as there is more to settle, each batch says what was settled before it."""
        if any(flow.unsettled for flow in self.flows.values()):
            self._tidy_later()
        else:
            self.tidy()

    def tidy(self) -> None:
        """Give back what the outbox holds of settled batches."""
        self._tidy_due = local.NEVER
        self._written_bytes = 0
        records = [record for flow in self.flows.values() for record in flow.records()]
        self.snapshot(ClientState(self.producer, self.books, tuple(records)))
        self.trim(self._records.last + 1)

    def _flow(self, topic: str) -> Flow:
        flow = self.flows.get(topic)
        if flow is None:
            flow = self.flows[topic] = Flow(self, topic)
        return flow
