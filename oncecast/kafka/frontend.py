"""The Kafka front end: requests of Kafka clients in, responses out.

It is a pure protocol above a client session in the same stack. So it runs both in its own process
and in the simulator. Each connection gets its responses in the order of its requests.

    listener → FrontEnd → ClientSession → nodes
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Any

from oncecast.client.session import local
from oncecast.errors import Malformed
from oncecast.kafka import messages as m
from oncecast.kafka.backend import Backend
from oncecast.kafka.brokers import Brokers, broker_id
from oncecast.kafka.coordinators import Coordinators
from oncecast.kafka.errors import Code
from oncecast.kafka.events import Connected, Disconnected, Handled, Hangup, Received, Reply
from oncecast.kafka.fetching import FetchAgain, Fetching
from oncecast.kafka.groups import Groups, GroupTimer
from oncecast.kafka.layout import Body
from oncecast.kafka.offsets import Offsets
from oncecast.kafka.partitions import Partitions
from oncecast.kafka.producing import Producing
from oncecast.kafka.requests import Incoming, offered_versions, parse
from oncecast.kafka.sasl import unexpected_handshake, unexpected_login
from oncecast.kafka.topics import Topics
from oncecast.kafka.transactions import Transactions
from oncecast.kernel.protocol import NodeId, Protocol

Handler = Callable[[Any, Callable[[Body], None]], None]


class Pending:
    """A request without a response, or with a response that waits for earlier responses."""

    __slots__ = ("response",)

    def __init__(self) -> None:
        self.response: bytes | None = None


class Client:
    """A connected Kafka client and its unanswered requests, in order."""

    def __init__(self, number: int, host: str) -> None:
        self.number, self.host = number, host
        self.pending: OrderedDict[int, Pending] = OrderedDict()
        self.received = 0


class FrontEnd(Protocol):
    name = "kafka"
    Request = Connected | Received | Disconnected
    Observed = local.Finished | local.Shown | local.Stored | local.NotStored
    Timer = GroupTimer | FetchAgain

    # Long because it lists and connects all parts of the front end.
    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        host: str,  # the address that clients connect to
        port: int,
        node_id: int = 0,
        auto_create: bool = True,
        user: str = "",  # owns the names of the producers; empty without a login
        retention_us: int = 7 * 24 * 3600 * 1_000_000,  # age limit of topics that it creates
        process: str = "",  # the node whose process it runs in; empty in a process of its own
        # Returns the node that requests about a topic go to.
        node_of: Callable[[str], str] = lambda topic: "",
    ) -> None:
        super().__init__(me, rng)
        self._backend = backend = Backend(self)
        self._clients: dict[int, Client] = {}
        id = broker_id(process) if process else node_id
        own = m.MetadataBroker(node_id=id, host=host, port=port)
        self.brokers = brokers = Brokers(self, backend, own, process=process, node_of=node_of)
        self.partitions = partitions = Partitions(backend)
        self.topics = Topics(
            backend, brokers, partitions, auto_create=auto_create, retention_us=retention_us
        )
        self.fetching = Fetching(self, backend, brokers, partitions)
        self.offsets = Offsets(self, backend)
        self.groups = Groups(self, self.offsets, self.topics, partitions)
        self.coordinators = Coordinators(brokers)
        self.transactions = Transactions(self, backend, self.offsets, self.groups, partitions, user)
        self.producing = Producing(self, backend, self.transactions, brokers, partitions, user)
        self._handlers: dict[type[Body], Handler] = {
            m.ProduceRequest: self.producing.produce,
            m.InitProducerIdRequest: self.producing.init_producer_id,
            m.ListOffsetsRequest: self.fetching.list_offsets,
            m.FindCoordinatorRequest: self.coordinators.find,
            m.SaslHandshakeRequest: unexpected_handshake,
            m.SaslAuthenticateRequest: unexpected_login,
            **self.topics.handlers(),
            **self.groups.handlers(),
            **self.transactions.handlers(),
        }

    # -- inputs --

    def request(self, request: Connected | Received | Disconnected) -> None:
        match request:
            case Connected(number, host):
                self._clients[number] = Client(number, host)
            case Received(number, data):
                client = self._clients.get(number)
                if client is not None:
                    self._received(client, data)
            case Disconnected(number):
                self._clients.pop(number, None)

    def observe(self, event: local.Finished | local.Shown | local.Stored | local.NotStored) -> None:
        self._backend.observe(event)

    def timeout(self, timer: GroupTimer | FetchAgain) -> None:
        if isinstance(timer, FetchAgain):
            self.fetching.timeout(timer)
        else:
            self.groups.timeout(timer)

    # -- requests and responses --

    def _received(self, client: Client, data: bytes) -> None:
        try:
            self._dispatch(client, data)
        except Malformed as error:
            self._hang_up(client, str(error))

    def _dispatch(self, client: Client, data: bytes) -> None:
        incoming = parse(data)
        request = incoming.request
        if isinstance(request, m.ProduceRequest) and request.acks == 0:
            self._produce_silently(client, request)
            return
        reply = self._reply(client, incoming)
        if isinstance(request, m.ApiVersionsRequest):
            reply(offered_versions(incoming.code))
        elif isinstance(request, m.JoinGroupRequest):
            self.coordinators.guide(request, reply, lambda: self._join(client, incoming, reply))
        elif isinstance(request, m.FetchRequest):
            self.fetching.fetch(request, reply, lambda: self._is_connected(client))
        else:
            handler = self._handlers[type(request)]
            self.coordinators.guide(request, reply, lambda: handler(request, reply))

    def _join(self, client: Client, incoming: Incoming, reply: Callable[[Body], None]) -> None:
        request, name = incoming.request, incoming.header.client_id or ""
        assert isinstance(request, m.JoinGroupRequest)
        self.groups.join(request, reply, name, client.host, incoming.version)

    def _produce_silently(self, client: Client, request: m.ProduceRequest) -> None:
        """Put batches whose client expects no response. Close the connection if a put fails."""

        def done(response: m.ProduceResponse) -> None:
            if not self._is_connected(client):
                return
            partitions = [each for topic in response.topics for each in topic.partitions]
            failed = next((each for each in partitions if each.error_code), None)
            if failed is None:
                self.emit(Handled(client.number))
            else:
                code = Code(failed.error_code).name
                self._hang_up(client, f"a batch with acks=0 was refused: {code}")

        self.producing.produce(request, done)

    def _is_connected(self, client: Client) -> bool:
        return self._clients.get(client.number) is client

    def _hang_up(self, client: Client, why: str) -> None:
        del self._clients[client.number]
        self.emit(Hangup(client.number, why))

    def _reply(self, client: Client, incoming: Incoming) -> Callable[[Body], None]:
        """Return a function that answers the request."""
        client.received += 1
        number = client.received
        client.pending[number] = Pending()
        return lambda response: self._finish(client, number, incoming.answer(response))

    def _finish(self, client: Client, number: int, response: bytes) -> None:
        """Send the response, and those behind it that waited for it."""
        if not self._is_connected(client):
            return
        client.pending[number].response = response
        while client.pending:
            first = next(iter(client.pending))
            ready = client.pending[first].response
            if ready is None:
                return
            del client.pending[first]
            self.emit(Reply(client.number, ready))
