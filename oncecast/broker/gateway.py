"""The node's side of the client protocol: answer calls and send messages to readers.

Rules
- A call is answered once its command is decided, so answers may arrive in any order.
- A repeated call has the same id. It is not executed again and gets the same answer. Commands are
  idempotent by sequence, epoch or token. The gateway keeps answers while the connection lasts, so
  a repeated call costs no slot of the log.
- Limits are checked first. A call over a limit gets Overloaded and is not executed.
- A flow sends decided messages in order, without gaps, within its credit. Flows take turns. A slow
  client fills its own window and does not delay other clients.
- A client that disconnects loses its flows. Its subscriptions do not change.
- Only the leader serves clients. It answers reads only while it holds its lease. Otherwise reads
  wait for the lease. When it stops leading, it drops all calls in flight and redirects its clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import merge
from random import Random
from typing import ClassVar, NamedTuple

from oncecast.broker.accounts import Account, Accounts, Budget
from oncecast.broker.chunks import chunks_of, lost
from oncecast.broker.delivery import Flow, Flows, Window, readable_subscription
from oncecast.broker.events import (
    AccessApplied,
    AccessChanged,
    Changed,
    Execute,
    Executed,
    LeaseDue,
    Pump,
)
from oncecast.broker.guard import PrincipalOf, anonymous
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.partitioning import ConsumerGroup
from oncecast.broker.queue import HOLDER, Queue
from oncecast.broker.service import Service
from oncecast.broker.sharing import dead_letters
from oncecast.broker.sizes import read_fault, size_fault
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.broker.topics import Topics
from oncecast.broker.transacting import ended_before
from oncecast.broker.usage import Usage
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import LeaderChanged, Mended, Missing
from oncecast.security.access import ACK, READ
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire.foreign import foreign_fault
from oncecast.wire.frames import (
    OPEN_SHOWN,
    Answer,
    Call,
    Chunk,
    ClientCommand,
    Delivery,
    Elsewhere,
    Fetch,
    FlowEnded,
    Look,
    SharedView,
    SubscriptionView,
    TopicView,
    View,
)
from oncecast.wire.results import Already, Staged, TransactionEnded
from oncecast.wire.sharing import runs_of
from oncecast.wire.transactions import EndTransaction, Output

LOOK_MAX = 100  # maximum topics per page; a page also ends after this many subscriptions
ANSWERED_MAX = 1000  # maximum answers that the gateway keeps for each client
WITH_BATCH = (do.Put, do.Stage, EndTransaction)


WithBatch = do.Put | do.Stage | EndTransaction


class ClientState:
    """A client's calls in flight, the bytes of their batches, and the window of its flows."""

    __slots__ = ("account", "account_name", "answered", "bytes", "calls", "window")

    def __init__(self, account_name: str, account: Account) -> None:
        self.account_name, self.account = account_name, account
        self.calls: dict[int, int] = {}  # tokens by call id
        self.answered: OrderedDict[int, Answer] = OrderedDict()
        self.bytes = 0
        self.window = Window()

    def remember(self, answer: Answer) -> None:
        self.answered[answer.id] = answer
        if len(self.answered) > ANSWERED_MAX:
            self.answered.popitem(last=False)


class Waiting(NamedTuple):
    """The client and call waiting for a token's result."""

    client: NodeId
    id: int
    bytes: int
    once: bool  # whether to keep the answer, because the command may not be idempotent
    since: float  # when the call arrived


class Gateway(Protocol):
    name = "gateway"
    Message: ClassVar = Call | Fetch | Look | Pump
    Observed: ClassVar = Executed | Changed | LeaderChanged | Mended | AccessChanged
    Timer = LeaseDue

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        version: str = "",  # program version, shown to clients
        budget: Budget = Budget(),  # noqa: B008  # frozen
        delivery_bytes: int = 1 << 20,  # maximum bytes per Delivery, unless one batch is larger
        window_bytes: int = 8 << 20,  # maximum bytes in flight to one client, whatever its credit
        # Minimum free disk space, reserved for acks and deletions.
        free_disk_bytes_min: int = 8 << 20,
        # Returns how many more bytes the log can store.
        free_disk_bytes: Callable[[], int] | None = None,
        principal_of: PrincipalOf = anonymous,
    ) -> None:
        super().__init__(me, rng)
        self._principal_of = principal_of
        self._service, self._version = service, version
        self.accounts = Accounts(budget, principal_of)
        self._delivery_bytes, self._window_bytes = delivery_bytes, window_bytes
        self._free_disk_bytes_min = free_disk_bytes_min
        self.free_disk_bytes = free_disk_bytes
        self._clients: dict[NodeId, ClientState] = {}
        self._tokens = 0
        self._calls: dict[int, Waiting] = {}  # by token
        self.flows, self.usage = Flows(), Usage()
        self._changed: dict[str, None] = {}
        self._ready: dict[Flow, None] = {}
        self._unreadable: dict[Flow, None] = {}  # flows that wait for a batch from another replica
        self._awaiting_lease: LeaseQueue[Fetch | Look] = LeaseQueue(self, LeaseDue())
        self._pumping = False
        self._answers: list[tuple[NodeId, Answer]] = []  # answers that the next pump sends
        self.refused = 0

    def receive(self, sender: NodeId, message: Call | Fetch | Look | Pump) -> None:
        if isinstance(message, Pump):
            if sender == self.me:
                self._pump()
            return
        state = self._clients.get(sender)
        if state is None:
            account = self.accounts.join(sender, self.now)
            state = self._clients[sender] = ClientState(*account)
            self.watch(sender)
        if not self._service.leading:
            self.send(sender, self._elsewhere())
        elif isinstance(message, Call):
            self._call(sender, state, message.id, message.command)
        elif (fault := read_fault(message)) is not None:
            self._refuse_read(sender, message, fault)
        elif not self._leased:
            self._awaiting_lease.add(sender, message)
        elif isinstance(message, Fetch):
            self._fetch(sender, message)
        else:
            self._look(sender, message)

    def _refuse_read(
        self,
        client: NodeId,
        question: Fetch | Look,
        fault: errors.InvalidTopic | errors.InvalidName,
    ) -> None:
        self.refused += 1
        if isinstance(question, Look):
            self.send(client, Answer(question.id, fault))
        else:  # leave out the names, which may be too long for a frame
            self.send(client, FlowEnded("", "", question.epoch, fault))

    def down(self, client: NodeId) -> None:
        state = self._clients.pop(client, None)
        if state is not None:
            self.accounts.leave(state.account_name, len(state.calls), state.bytes)
        self._awaiting_lease.forget(client)
        for flow in self.flows.of_client(client):
            self._drop(flow)
            self.flows.note_lost(flow)

    # -- leading --

    def _elsewhere(self) -> Elsewhere:
        return Elsewhere(self._service.leader, self._service.group.nodes())

    def _lead(self, leader: NodeId) -> None:
        if leader == self.me:
            for client in self._clients:  # some clients may be waiting for a leader
                self.send(client, self._elsewhere())
            return
        self._calls.clear()
        self._awaiting_lease.take()
        for client, state in self._clients.items():
            self.accounts.end(state.account, len(state.calls), state.bytes)
            state.calls.clear()
            state.bytes = 0
            for flow in self.flows.of_client(client):
                self._drop(flow)
            self.send(client, self._elsewhere())

    @property
    def _leased(self) -> bool:
        return self._service.group.leads(self.now)

    def timeout(self, timer: LeaseDue) -> None:
        for client, question in self._awaiting_lease.due(leased=self._leased):
            self.receive(client, question)
        if self._ready:
            self._pump_soon()

    # -- calls --

    def _call(self, client: NodeId, state: ClientState, id: int, command: ClientCommand) -> None:
        if id in state.calls:
            return
        if id in state.answered:
            self.send(client, state.answered[id])
            return
        refusal = self._refusal(state, command)
        if refusal is not None:
            self.refused += 1
            self.send(client, Answer(id, refusal))
            return
        size = size_of(command) if isinstance(command, WITH_BATCH) else 0
        self._tokens += 1
        once = not isinstance(command, WITH_BATCH)
        self._calls[self._tokens] = Waiting(client, id, size, once, self.now)
        state.calls[id] = self._tokens
        state.bytes += size
        self.accounts.begin(state.account, size)
        self.ask(Execute(self._tokens, command))

    def _refusal(
        self, state: ClientState, command: ClientCommand
    ) -> errors.AnyRefusal | Already | Staged | TransactionEnded | None:
        refusal = self.accounts.refusal(state.account, 0, self.now) or size_fault(command)
        if refusal is not None or not isinstance(command, WITH_BATCH):
            return refusal
        size, limit = size_of(command), self._service.machine.registry.limits.batch_bytes_max
        if size > limit:
            return self._answer_to_large(command, limit)
        if size and self.disk_is_full:
            return (self._leased and self._known(command)) or errors.Overloaded(errors.DISK)
        refusal = self.accounts.refusal(state.account, size, self.now)
        if refusal is not None:
            return refusal
        for each in command.outputs if isinstance(command, EndTransaction) else (command,):
            bad = batch_fault(each)
            if bad is not None:
                return bad
        return None

    def _answer_to_large(
        self, command: WithBatch, limit: int
    ) -> errors.AnyRefusal | Already | Staged | TransactionEnded:
        """Return the answer to a batch over the size limit.

        The batch may have been stored while the limit was higher. A node without a lease cannot
        know, so it answers Overloaded and the client retries.
        """
        if not self._leased:
            return errors.Overloaded("bytes in flight from one client")
        return self._known(command) or errors.TooLarge("bytes", limit)

    @property
    def disk_is_full(self) -> bool:
        """Return whether the node refuses puts for lack of disk space."""
        return not self._has_space(self._free_disk_bytes_min)

    @property
    def disk_is_roomy(self) -> bool:
        """Return whether there is disk space for more than a few puts."""
        return self._has_space(2 * self._free_disk_bytes_min)

    def _has_space(self, size: int) -> bool:
        return self.free_disk_bytes is None or self.free_disk_bytes() >= size

    def _known(
        self, command: WithBatch
    ) -> errors.AnyRefusal | Already | Staged | TransactionEnded | None:
        """Return the answer if the command was executed before, otherwise None."""
        registry = self._service.machine.registry
        if isinstance(command, EndTransaction):
            return ended_before(registry, command)
        if isinstance(command, do.Put):
            topic = registry.topics.get(command.topic)
            return None if topic is None else topic.already(command)
        key = registry.stage_key(command)
        part = registry.staging.find(key, command.number, command.part)
        return None if part is None else Staged(already=True)

    def observe(self, event: Executed | Changed | LeaderChanged | Mended | AccessChanged) -> None:
        if isinstance(event, Executed):
            self._answer(event)
        elif isinstance(event, Changed):
            if event.topic in self.flows:
                self._changed[event.topic] = None
                self._pump_soon()
        elif isinstance(event, LeaderChanged):
            self._lead(event.leader)
        elif isinstance(event, AccessChanged):
            self._check_readers()
        else:
            self._ready.update(dict.fromkeys(self._unreadable))
            self._unreadable.clear()
            self._pump_soon()

    def _answer(self, event: Executed) -> None:
        waiting = self._calls.pop(event.token, None)
        if waiting is None:
            return  # proposed by another layer
        client, id, size, once, since = waiting
        if not once:
            self.usage.stored.observe(self.now - since)
        state = self._clients.get(client)
        # The client may be gone, or may have reconnected and reused the id for a new call.
        if state is not None and state.calls.get(id) == event.token:
            del state.calls[id]
            state.bytes -= size
            self.accounts.end(state.account, 1, size)
            answer = Answer(id, event.result)
            if once and not isinstance(event.result, errors.NotHere | errors.Overloaded):
                state.remember(answer)
            if self._pumping:
                self._answers.append((client, answer))
            else:
                self.send(client, answer)

    # -- flows --

    def _fetch(self, client: NodeId, fetch: Fetch) -> None:
        machine = self._service.machine
        found = readable_subscription(machine, fetch.topic, fetch.subscription, fetch.epoch)
        _, end = machine.bounds(fetch.topic)
        if isinstance(found, Subscription) and not 0 <= fetch.offset <= end:
            found = errors.OutOfRange(end)
        if not isinstance(found, Subscription):
            self.send(client, FlowEnded(fetch.topic, fetch.subscription, fetch.epoch, found))
            return
        if found.cursor < fetch.ack <= end:
            if not self._may(client, ACK, fetch.topic):
                self._deny(client, fetch)
                return
            self.ask(do.Ack(fetch.topic, fetch.subscription, fetch.epoch, fetch.ack))
        flow = self._flow(client, fetch)
        flow.renew(fetch.offset, max(0, fetch.messages), max(0, fetch.bytes))
        if not flow.window.starved:
            self._serve(flow)
            return
        flow.window.starved[flow] = None  # queue behind flows that have waited longer
        self._ready.update(flow.window.starved)
        flow.window.starved.clear()
        self._pump_soon()

    def _may(self, client: NodeId, verb: str, topic: str, name: str = "") -> bool:
        access = self._service.machine.registry.access
        registry = self._service.machine.registry
        return access.open or registry.permits(self._principal_of(client), verb, topic, name)

    def _deny(self, client: NodeId, reader: Fetch | Flow) -> None:
        """Tell a client that it lacks permission, and end its flow."""
        where = (reader.topic, reader.subscription, reader.epoch)
        self.send(client, FlowEnded(*where, errors.Denied()))
        flow = self.flows.find(reader.topic, reader.subscription)
        if flow is not None and flow.client == client:
            self._drop(flow)

    def _check_readers(self) -> None:
        """End flows whose clients may no longer read. Drop queued reads; clients repeat them."""
        self._awaiting_lease.take()
        for client in self._clients:
            for flow in self.flows.of_client(client):
                if not self._may(client, READ, flow.topic, flow.subscription):
                    self._deny(client, flow)
        self.emit(AccessApplied(self._service.machine.registry.access.version))

    def _flow(self, client: NodeId, fetch: Fetch) -> Flow:
        flow = self.flows.find(fetch.topic, fetch.subscription)
        if flow is not None and (flow.client, flow.epoch) == (client, fetch.epoch):
            return flow
        if flow is not None:
            self._end(flow)
        flow = Flow(
            client, self._clients[client].window, fetch.topic, fetch.subscription, fetch.epoch
        )
        self.flows.add(flow)
        return flow

    def _end(self, flow: Flow) -> None:
        """End a flow that was replaced or whose epoch is over, and tell its client."""
        found = readable_subscription(
            self._service.machine, flow.topic, flow.subscription, flow.epoch
        )
        why = errors.Fenced(flow.epoch) if isinstance(found, Subscription) else found
        self.send(flow.client, FlowEnded(flow.topic, flow.subscription, flow.epoch, why))
        self._drop(flow)

    def _drop(self, flow: Flow) -> None:
        self.flows.drop(flow)
        self._ready.pop(flow, None)
        self._unreadable.pop(flow, None)

    def _pump_soon(self) -> None:
        """Pump after the inputs that are already queued, because they may affect the same flows."""
        if not self._pumping:
            self._pumping = True
            self.send(self.me, Pump())

    def _pump(self) -> None:
        self._pumping = False
        changed, self._changed = self._changed, {}
        ready, self._ready = self._ready, {}
        for topic in changed:
            ready.update(dict.fromkeys(self.flows.of_topic(topic)))
        for flow in ready:
            self._serve(flow)
        # Serve readers before publishers, which only wait for a receipt.
        answers, self._answers = self._answers, []
        for client, answer in answers:
            self.send(client, answer)

    def _serve(self, flow: Flow) -> None:
        """Send one Delivery if the client has credit. Reschedule the flow if more remains."""
        if not self._leased:
            self._ready[flow] = None
            self._awaiting_lease.watch()
            return
        machine = self._service.machine
        found = readable_subscription(machine, flow.topic, flow.subscription, flow.epoch)
        if not isinstance(found, Subscription):
            self._end(flow)
            return
        messages_left, bytes_left = flow.messages_left, flow.bytes_left
        if messages_left <= 0 or bytes_left <= 0:
            return
        budget = self._window_bytes - flow.window.outstanding
        if budget <= 0:
            flow.window.starved[flow] = None
            return
        budget = min(budget, bytes_left, self._delivery_bytes)
        extents = machine.fetch(flow.topic, flow.next, messages_left, budget)
        if not extents:
            self._tell_gone(flow, found)
            return
        if extents[0].offset == flow.next and flow.soon_renewed(extents[-1].offset):
            extents = machine.uncut(flow.topic, extents)
            if not extents:
                return  # wait until the client has received the messages in flight
        try:
            chunks, sizes = chunks_of(self._service, flow.topic, extents, budget)
        except Missing:
            self._unreadable[flow] = None
            return
        except Corrupt as damage:
            self._tell_lost(flow, damage)
            return
        self._deliver(flow, found, chunks, sizes)

    def _deliver(
        self, flow: Flow, found: Subscription, chunks: tuple[Chunk, ...], sizes: list[int]
    ) -> None:
        _, end = self._service.machine.bounds(flow.topic)
        self.send(
            flow.client,
            Delivery(flow.topic, flow.subscription, flow.epoch, chunks, found.suspect_below, end),
        )
        usage = self.usage
        usage.note_delivery(flow.topic, flow.subscription, chunks, sizes, found.suspect_below)
        for chunk, size in zip(chunks, sizes, strict=True):
            flow.sent(chunk.offset + chunk.count, size)
        if flow.next < end:
            self._ready[flow] = None
            self._pump_soon()

    def _tell_lost(self, flow: Flow, damage: Corrupt) -> None:
        """End the flow because no replica can read its next batch. The reader may skip it."""
        where = (flow.topic, flow.subscription, flow.epoch)
        why = lost(flow.topic, flow.next, damage)
        self.send(flow.client, FlowEnded(*where, why))
        self._drop(flow)

    def _tell_gone(self, flow: Flow, found: Subscription) -> None:
        """Send an empty Delivery if the topic has dropped all messages left to send."""
        first, end = self._service.machine.bounds(flow.topic)
        if flow.next < first:
            where = (flow.topic, flow.subscription, flow.epoch)
            self.send(flow.client, Delivery(*where, (), found.suspect_below, end))
            flow.sent(end, 0)

    # -- listing topics --

    def _look(self, client: NodeId, look: Look) -> None:
        elsewhere = self._service.machine.registry.elsewhere(look.topic) if look.topic else None
        if elsewhere is not None:
            self.send(client, Answer(look.id, elsewhere))
            return
        views, more = self._page(client, look)
        self.send(client, View(look.id, views, more, self.me, self._version))

    def _page(self, client: NodeId, look: Look) -> tuple[tuple[TopicView, ...], bool]:
        """Return a page of topics, and whether more topics follow."""
        views: list[TopicView] = []
        left = min(max(look.limit, 1), LOOK_MAX)
        subscriptions = 0
        for topic in self._topics(client, look):
            if left <= 0 or subscriptions >= LOOK_MAX:
                return tuple(views), True
            views.append(topic_view(topic, look.subscriptions, self.flows, alone=bool(look.topic)))
            subscriptions += len(views[-1].subscriptions)
            left -= 1
        return tuple(views), False

    def _topics(self, client: NodeId, look: Look) -> Iterator[Topic]:
        """Yield the topics that match a Look and that the client may see, sorted by name."""
        registry = self._service.machine.registry
        topics, holdings = registry.topics, registry.holdings
        if look.topic:
            found = topics.get(look.topic)
            if found is not None and not is_closing(found):
                yield found
            return
        names = self._names(client, look, topics)
        if holdings is None:
            yield from (topics[name] for name in names if not is_closing(topics[name]))
            return
        outgoing = holdings.outgoing  # a moving topic still belongs to this group
        for name in merge(names, self._names(client, look, outgoing)):
            found = topics.get(name) or outgoing[name]
            if not is_closing(found):
                yield found

    def _names(self, client: NodeId, look: Look, topics: Topics) -> Iterator[str]:
        registry = self._service.machine.registry
        access = registry.access
        if access.open:
            yield from topics.names(look.prefix, look.after)
            return
        principal = self._principal_of(client)
        for prefix in access.prefixes(principal, look.prefix):
            for name in topics.names(prefix, look.after):
                base = registry.base_of(name)
                if access.sees(principal, name) or (base and access.sees(principal, base)):
                    yield name


def size_of(command: WithBatch) -> int:
    """Return the total size of the batches in a command."""
    if isinstance(command, EndTransaction):
        return sum([len(each.batch) for each in command.outputs])
    return len(command.batch)


def batch_fault(command: do.Put | do.Stage | Output) -> errors.BadBatch | None:
    """Return a refusal if the batch is damaged or is not as declared, otherwise None."""
    try:
        header = batch.check(command.batch)
    except batch.BadBatch as bad:
        return errors.BadBatch(str(bad))
    if header.format != batch.COLUMNS:
        fault = foreign_fault(header, command.batch)
        if fault:
            return errors.BadBatch(fault)
    size = len(command.batch)
    if (command.count, command.size) != (header.count, size):
        return errors.BadBatch(
            f"the command declares {command.count} messages in {command.size} bytes, "
            f"but the batch has {header.count} in {size}"
        )
    return None


def shared_view(topic: str, name: str, queue: Queue, *, alone: bool) -> SharedView:
    leased, dead = queue.leased, len(queue.dead)
    shown = queue.open_offsets(OPEN_SHOWN) if alone else []
    return SharedView(
        queue.settings,
        dead_letters(topic, name, queue.settings),
        sum(1 for each in queue.workers.values() if each.held and each.name != HOLDER),
        leased,
        len(queue.open) - leased - dead,
        dead,
        queue.next,
        tuple([(first, count) for _, first, count in runs_of((0, each) for each in shown)]),
    )


def subscription_view(
    topic: Topic, name: str, subscription: Subscription, flows: Flows, *, alone: bool
) -> SubscriptionView:
    """Return the view of a subscription, with open offsets if the topic is shown `alone`."""
    index, queue = topic.index, subscription.queue
    lost = flows.has_lost(topic.name, name, subscription.epoch)
    cursor, attached = subscription.cursor, bool(subscription.incarnation) and not lost
    if queue is None:
        lag = index.next - max(cursor, index.first)
        return SubscriptionView(name, cursor, lag, subscription.epoch, attached)
    shared = shared_view(topic.name, name, queue, alone=alone)
    lag = len(queue.open) + index.next - max(queue.next, index.first)
    return SubscriptionView(name, cursor, lag, subscription.epoch, shared.workers > 0, shared)


def is_closing(topic: Topic) -> bool:
    """Return whether the topic is being deleted with its partitions."""
    return topic.descriptor is not None and topic.descriptor.closing


def group_view(name: str, group: ConsumerGroup) -> SubscriptionView:
    """Return the members of a consumer group. The partitions know how far it has read."""
    holders = tuple([each.holder for each in group.assignments])
    return SubscriptionView(name, 0, 0, 0, any(holders), holders=holders)


def topic_view(
    topic: Topic, of_subscriptions: bool, flows: Flows, *, alone: bool = False
) -> TopicView:
    index = topic.index
    subscriptions = tuple(
        [
            subscription_view(topic, name, each, flows, alone=alone)
            for name, each in (topic.subscriptions.items() if of_subscriptions else ())
        ]
    )
    descriptor = topic.descriptor
    if descriptor is not None and of_subscriptions:
        subscriptions = tuple([group_view(*each) for each in descriptor.groups.items()])
    return TopicView(
        topic.name,
        topic.id,
        index.first,
        index.next,
        index.size,
        topic.policy,
        subscriptions,
        len(topic.producers),
        topic.delays.messages,
        0 if descriptor is None else descriptor.count,
        topic.partition_of,
        0 if descriptor is None else descriptor.epoch,
    )
