"""Scripted Kafka clients for the simulator: producers, transactional producers, and consumers.

A client sends one request at a time. If the answer does not arrive, it connects to another front
end and repeats the request, or starts again, as a real client does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from google_crc32c import value as crc32c

from oncecast.kafka import messages as m
from oncecast.kafka.errors import Code
from oncecast.kafka.layout import Body, codec
from oncecast.kafka.transaction import ABORTED
from oncecast.simulator.violation import Violation
from oncecast.wire.kafka_records import TRANSACTIONAL, Record, decode, encode

if TYPE_CHECKING:
    from oncecast.lab.scenarios.kafka import World

TIMEOUT = 6.0  # seconds after which a client gives up an answer
PAUSE = 0.1
BATCH_MAX = 4  # messages
GETS_BEFORE_COMMIT = 3
UNKNOWN = -1  # the end of a topic before the first answer
OF_REQUEST = {api.request: api for api in m.APIS}
LENGTH_AT, LENGTH_END = 8, 12  # where a batch states its length

# A client repeats a request that is answered with one of these codes.
RETRIED = {
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REQUEST_TIMED_OUT,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LEADER_NOT_AVAILABLE,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,  # the group has not raised its feature level yet
    Code.UNSUPPORTED_VERSION,
    Code.CONCURRENT_TRANSACTIONS,
}

Answered = Callable[[Any], None]  # gets the response, or None


def request_bytes(request: Body, correlation: int) -> bytes:
    """Return a request in the newest version that the front end offers."""
    api = OF_REQUEST[type(request)]
    flexible = api.last >= api.flexible
    out = bytearray(struct.pack(">hhih", api.key, api.last, correlation, -1))
    if flexible:
        out.append(0)
    codec(api.request, api.last, flexible).write(out, request)
    return bytes(out)


def response_of(request: Body, data: bytes) -> Any:
    api = OF_REQUEST[type(request)]
    flexible = api.last >= api.flexible
    return codec(api.response, api.last, flexible).read(data, 9 if flexible else 8)[0]


def batch(values: list[bytes], producer: tuple[int, int], sequence: int, attributes: int) -> bytes:
    """Return a batch of an idempotent producer, which has an id and an epoch."""
    data = bytearray(encode([Record(0, None, value, ()) for value in values]))
    data[21:23] = struct.pack(">h", attributes)
    data[43:57] = struct.pack(">qhi", *producer, sequence)
    data[17:21] = struct.pack(">I", crc32c(bytes(data[21:])))
    return bytes(data)


def records_in(data: bytes) -> list[tuple[int, bytes]]:
    """Return the offsets and values of all batches in a Fetch response."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        size = LENGTH_END + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_END], "big")
        base = int.from_bytes(data[at : at + LENGTH_AT], "big")
        records = decode(data[at : at + size])
        found += [(base + delta, each.value or b"") for delta, each in enumerate(records)]
        at += size
    return found


class Script:
    """A client with one request in flight."""

    done: bool

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.rng = Random(f"{world.sim.seed}/{name}")
        self.connection = self._asked = 0
        self.front = world.fronts[0]
        self._request: Body | None = None
        self._then: Answered = lambda response: None

    def begin(self) -> None:
        raise NotImplementedError

    def ask(self, request: Body, then: Answered) -> None:
        """Send a request. `then` gets the response, or None if the answer is lost."""
        self._asked += 1
        asked = self._asked
        self._request, self._then = request, then
        if not self.connection:
            self.front = self.rng.choice(self.world.fronts)
            self.connection = self.world.connect(self)
        self.world.send(self, request_bytes(request, asked))
        self.world.sim.call(TIMEOUT, lambda: self._late(asked))

    def replied(self, data: bytes) -> None:
        request, correlation = self._request, int.from_bytes(data[4:8], "big")
        if request is not None and correlation == self._asked:
            self._request = None
            self._then(response_of(request, data))

    def lost(self) -> None:
        """Note that the connection is closed."""
        self.connection = 0
        if self._request is not None:
            self._request = None
            self.later(lambda: self._then(None))

    def _late(self, asked: int) -> None:
        if asked == self._asked and self._request is not None:
            self.world.disconnect(self)
            self.lost()

    def later(self, action: Callable[[], None]) -> None:
        self.world.sim.call(self.rng.uniform(0.0, PAUSE), action)


class Maker(Script):
    """Creates the topics, as clients do that ask for their metadata."""

    done = False

    def begin(self) -> None:
        def made(response: Any) -> None:
            if response is None or any(each.error_code for each in response.topics):
                self.later(self.begin)
            else:
                self.done = True

        topics = tuple(m.MetadataTopic(name=name) for name in self.world.topics)
        self.ask(m.MetadataRequest(topics=topics), made)


class Putter(Script):
    """Puts numbered values, each exactly once and in order."""

    def __init__(self, world: World, name: str, topic: str, count: int) -> None:
        super().__init__(world, name)
        self.topic, self.count, self.put = topic, count, 0
        self._producer = (-1, 0)
        self._request_bytes = b""
        self._next = 0

    @property
    def done(self) -> bool:  # type: ignore[override]
        return self.put >= self.count

    def values(self) -> list[bytes]:
        return [f"{self.name}/{number}".encode() for number in range(self.count)]

    def begin(self) -> None:
        def opened(response: Any) -> None:
            if response is None or response.error_code:
                self.later(self.begin)
            else:
                self._producer = (response.producer_id, response.producer_epoch)
                self._put()

        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        self.ask(request, opened)

    def _put(self) -> None:
        if self.done:
            return
        size = min(self.rng.randint(1, BATCH_MAX), self.count - self.put)
        values = self.values()[self.put : self.put + size]
        self._send(batch(values, self._producer, self.put, 0), size)

    def _send(self, data: bytes, size: int) -> None:
        def answered(response: Any) -> None:
            code = None if response is None else code_of_put(response)
            if code is None or code in RETRIED:
                self.later(lambda: self._send(data, size))
            elif code == Code.NONE:
                self.put += size
                self.later(self._put)
            else:
                raise Violation(f"{self.name}: put {self.put} was answered with {Code(code).name}")

        self.ask(produce(self.topic, data), answered)


class Transactor(Script):
    """Puts values in transactions, and remembers which of them are committed."""

    def __init__(self, world: World, name: str, topic: str, count: int) -> None:
        super().__init__(world, name)
        self.topic, self.count, self.turn, self._sequence = topic, count, 0, 0
        self.committed: list[list[bytes]] = []
        self.unknown: list[list[bytes]] = []
        self.aborted: list[list[bytes]] = []
        self._values: list[bytes] = []
        self._producer = (-1, 0)

    @property
    def done(self) -> bool:  # type: ignore[override]
        return self.turn >= self.count

    def begin(self) -> None:
        """Open the transactional id, which aborts an open transaction."""

        def opened(response: Any) -> None:
            if response is None or response.error_code:
                self.later(self.begin)
            else:
                self._producer, self._sequence = (response.producer_id, response.producer_epoch), 0
                self._turn()

        self.ask(
            m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=1000),
            opened,
        )

    def _turn(self) -> None:
        if self.done:
            return
        self._values = []
        topic = m.AddedTopic(name=self.topic, partitions=(0,))

        def added(response: Any) -> None:
            if response is None or response.results[0].partitions[0].error_code:
                self.later(self.begin)
            else:
                self._put(self.rng.randint(1, 3))

        id_, epoch = self._producer
        self.ask(
            m.AddPartitionsToTxnRequest(
                transactional_id=self.name, producer_id=id_, producer_epoch=epoch, topics=(topic,)
            ),
            added,
        )

    def _put(self, left: int) -> None:
        if not left:
            self._end(commit=self.rng.random() < 0.7, tries=5)
            return
        size = self.rng.randint(1, BATCH_MAX)
        first = len(self._values)
        values = [f"{self.name}/{self.turn}/{first + each}".encode() for each in range(size)]
        self._values += values
        data = batch(values, self._producer, self._sequence, TRANSACTIONAL)

        def answered(response: Any) -> None:
            if response is None or code_of_put(response):
                self._over(self.aborted, again=True)
            else:
                self._sequence += size
                self._put(left - 1)

        self.ask(produce(self.topic, data, self.name), answered)

    def _end(self, *, commit: bool, tries: int) -> None:
        def ended(response: Any) -> None:
            code = None if response is None else Code(response.error_code)
            if not commit:
                self._over(self.aborted, again=code != Code.NONE)
            elif code == Code.NONE:
                self._over(self.committed, again=False)
            elif code == ABORTED:
                self._over(self.aborted, again=True)
            elif tries and (code is None or code in RETRIED):
                self.later(lambda: self._end(commit=True, tries=tries - 1))
            else:
                self._over(self.unknown, again=True)

        id_, epoch = self._producer
        self.ask(
            m.EndTxnRequest(
                transactional_id=self.name, producer_id=id_, producer_epoch=epoch, committed=commit
            ),
            ended,
        )

    def _over(self, kind: list[list[bytes]], *, again: bool) -> None:
        kind.append(self._values)
        self.turn += 1
        self.later(self.begin if again else self._turn)


class Getter(Script):
    """The only member of a group, which reads a topic and commits its offset."""

    def __init__(self, world: World, name: str, topic: str) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.found: dict[int, bytes] = {}
        self.acknowledged = self.tried = 0  # the offset whose commit was answered, and the highest
        self.position, self.end = 0, UNKNOWN
        self._member, self._generation, self._gets = "", 0, 0

    @property
    def done(self) -> bool:  # type: ignore[override]
        return self.acknowledged == self.end

    def begin(self) -> None:
        self._join()

    def _join(self) -> None:
        def joined(response: Any) -> None:
            if response is None:
                self.later(self._join)
            elif response.error_code:
                required = response.error_code == Code.MEMBER_ID_REQUIRED
                self._member = response.member_id if required else ""
                self.later(self._join)
            else:
                self._member, self._generation = response.member_id, response.generation_id
                self._sync()

        self.ask(
            m.JoinGroupRequest(
                group_id=self.name,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=1000,
                member_id=self._member,
                protocol_type="consumer",
                protocols=(m.JoinProtocol(name="range", metadata=b""),),
            ),
            joined,
        )

    def _sync(self) -> None:
        mine = m.SyncAssignment(member_id=self._member, assignment=b"all")
        self.ask(
            m.SyncGroupRequest(
                group_id=self.name,
                generation_id=self._generation,
                member_id=self._member,
                assignments=(mine,),
            ),
            lambda response: (
                self._begin_at_offset()
                if response is not None and not response.error_code
                else self.later(self._join)
            ),
        )

    def _begin_at_offset(self) -> None:
        wanted = m.OffsetFetchTopic(name=self.topic, partition_indexes=(0,))

        def fetched(response: Any) -> None:
            found = None if response is None else response.topics[0].partitions[0]
            if found is None or found.error_code or response.error_code:
                self.later(self._join)
                return
            offset = max(found.committed_offset, 0)
            if not self.acknowledged <= offset <= self.tried:
                raise Violation(
                    f"{self.name}: committed offset {offset} is not in "
                    f"{self.acknowledged}..{self.tried}"
                )
            self.position = offset
            self._get()

        self.ask(m.OffsetFetchRequest(group_id=self.name, topics=(wanted,)), fetched)

    def _get(self) -> None:
        part = m.FetchPartition(
            partition=0, fetch_offset=self.position, partition_max_bytes=self.rng.choice((1, 4096))
        )
        topic = m.FetchTopic(topic=self.topic, partitions=(part,))
        request = m.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=4096, topics=(topic,))
        self.ask(request, self._got)

    def _got(self, response: Any) -> None:
        part = None if response is None else response.responses[0].partitions[0]
        if part is None or part.error_code:
            if part is not None and part.error_code not in RETRIED:
                raise Violation(f"{self.name}: a fetch was answered with {part.error_code}")
            self.later(self._get)
            return
        self.end = max(self.end, part.high_watermark)
        for offset, value in records_in(part.records or b""):
            if offset < self.position:
                continue
            if offset != self.position:
                raise Violation(f"{self.name}: offset {offset} follows {self.position - 1}")
            if self.found.setdefault(offset, value) != value:
                raise Violation(f"{self.name}: offset {offset} has two values")
            self.position += 1
        self._gets += 1
        if self._gets % GETS_BEFORE_COMMIT:
            self.later(self._get)
        else:
            self._commit()

    def _commit(self) -> None:
        offset = self.position
        self.tried = max(self.tried, offset)
        part = m.CommitPartition(partition_index=0, committed_offset=offset)

        def committed(response: Any) -> None:
            code = None if response is None else response.topics[0].partitions[0].error_code
            if code == Code.NONE:
                self.acknowledged = max(self.acknowledged, offset)
                self.later(self._get)
            else:
                self.later(self._join)

        self.ask(
            m.OffsetCommitRequest(
                group_id=self.name,
                generation_id=self._generation,
                member_id=self._member,
                topics=(m.CommitTopic(name=self.topic, partitions=(part,)),),
            ),
            committed,
        )


def produce(topic: str, data: bytes, transactional_id: str | None = None) -> m.ProduceRequest:
    part = m.ProducePartition(index=0, records=data)
    return m.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=3000,
        topics=(m.ProduceTopic(name=topic, partitions=(part,)),),
    )


def code_of_put(response: Any) -> Code:
    return Code(response.topics[0].partitions[0].error_code)
