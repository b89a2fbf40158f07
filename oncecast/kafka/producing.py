"""Produce and InitProducerId.

A record batch is stored unchanged. The sequence of an idempotent producer is the sequence of our
own producer `kafka/ID/EPOCH`, so the state machine detects resent batches, without a time window.
Batches of other producers are put under the name of the front end's session.

Every response waits until the batch is on disk, even with acks=1. A request with acks=0 gets no
response.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from oncecast.client.session import local
from oncecast.kafka.backend import Backend, code_of
from oncecast.kafka.brokers import Brokers
from oncecast.kafka.conversion import native_batch
from oncecast.kafka.errors import Code, clipped
from oncecast.kafka.gather import Gather
from oncecast.kafka.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from oncecast.kafka.partitions import Partitions
from oncecast.kafka.transaction import SEQUENCES
from oncecast.kafka.transactions import Transactions
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire import commands as do
from oncecast.wire import errors, kafka_records
from oncecast.wire.batch import BadBatch
from oncecast.wire.kafka_records import NO_PRODUCER, RecordBatch
from oncecast.wire.partitions import MARK
from oncecast.wire.results import Already, Appended, Opened

# Maximum producers that the front end remembers; it opens other producers again.
PRODUCERS_MAX = 10_000
ID_BITS = 62
ACKS = (-1, 0, 1)
TIMEOUT_MAX = 60.0  # seconds
# Maximum bytes in flight over all clients; further batches are refused.
IN_FLIGHT_BYTES_MAX = 512 << 20

Answer = Callable[[ProduceResponsePartition], None]


class Batch:
    """An unanswered batch of an idempotent producer."""

    __slots__ = ("answer", "attempts", "count", "data", "index", "sequence", "timeout")

    def __init__(
        self, index: int, sequence: int, count: int, data: bytes, timeout: float, answer: Answer
    ) -> None:
        self.index, self.sequence, self.count, self.data = index, sequence, count, data
        self.timeout, self.answer, self.attempts = timeout, answer, 0


class Producer:
    """An idempotent producer of one topic: `queue` waits for the open or for earlier batches."""

    __slots__ = ("epoch", "in_flight", "next", "opening", "queue")

    def __init__(self) -> None:
        self.epoch = self.next = 0
        self.opening = False
        self.in_flight: list[Batch] = []
        self.queue: deque[Batch] = deque()

    def unwrapped(self, sequence: int) -> int:
        """Return the sequence without wrapping, closest to the next expected one."""
        turns = (self.next - sequence + SEQUENCES // 2) // SEQUENCES
        return sequence + max(turns, 0) * SEQUENCES

    @property
    def idle(self) -> bool:
        return not (self.opening or self.in_flight or self.queue)


class Producing:
    def __init__(
        self,
        host: Protocol,
        backend: Backend,
        transactions: Transactions,
        brokers: Brokers,
        partitions: Partitions,
        user: str,
    ) -> None:
        self._host, self._backend, self._transactions = host, backend, transactions
        self._brokers, self._partitions = brokers, partitions
        self._prefix = f"{user}/" if user else ""  # a user owns the names that begin with it
        self._producers: OrderedDict[tuple[str, int, int], Producer] = OrderedDict()
        self._bytes = 0  # number of bytes in flight

    def init_producer_id(
        self, request: InitProducerIdRequest, reply: Callable[[InitProducerIdResponse], None]
    ) -> None:
        if request.transactional_id is not None:
            self._transactions.open(request, reply)
            return
        # The id is random, so that front ends need no agreement to keep ids unique.
        reply(
            InitProducerIdResponse(
                producer_id=self._host.rng.getrandbits(ID_BITS), producer_epoch=0
            )
        )

    def produce(self, request: ProduceRequest, reply: Callable[[ProduceResponse], None]) -> None:
        """Put all batches and reply when each of them is on disk or refused."""
        wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]

        def done(found: tuple[ProduceResponsePartition, ...]) -> None:
            answers = iter(found)
            reply(
                ProduceResponse(
                    topics=tuple(
                        ProduceResponseTopic(
                            name=topic.name,
                            partitions=tuple(next(answers) for _ in topic.partitions),
                        )
                        for topic in request.topics
                    )
                )
            )

        timeout = min(max(request.timeout_ms, 1) / 1000, TIMEOUT_MAX)
        gather = Gather(len(wanted), done)
        for number, (topic, each) in enumerate(wanted):
            if request.acks not in ACKS:
                gather.slot(number)(failed(each.index, Code.INVALID_REQUIRED_ACKS))
                continue
            id = request.transactional_id
            self._put(topic, each.index, each.records, id, timeout, gather.slot(number))

    def _put(
        self,
        topic: str,
        index: int,
        records: bytes | None,
        transactional_id: str | None,
        timeout: float,
        answer: Answer,
    ) -> None:
        place = self._partitions.place(topic, index)
        if isinstance(place, Code):
            answer(failed(index, place))
            return
        topic = place
        if self._brokers.is_elsewhere(topic):
            answer(failed(index, Code.NOT_LEADER_OR_FOLLOWER))
            return
        try:
            header = kafka_records.check(records or b"")
        except BadBatch as bad:
            answer(failed(index, Code.CORRUPT_MESSAGE, str(bad)))
            return
        if header.transactional and transactional_id is None:
            message = "the batch is transactional, but the request has no transactional id"
            answer(failed(index, Code.INVALID_TXN_STATE, message))
            return
        data = native_batch(records or b"", header)
        if self._bytes and self._bytes + len(data) > IN_FLIGHT_BYTES_MAX:
            answer(failed(index, Code.REQUEST_TIMED_OUT, "too many bytes are in flight"))
            return
        answer = self._counted(len(data), answer)
        if header.transactional:
            self._stage(transactional_id or "", topic, index, header, data, timeout, answer)
        elif header.producer_id == NO_PRODUCER:
            self._put_plain(topic, index, header.count, data, answer)
        else:
            self._put_idempotent(topic, index, header, data, timeout, answer)

    def _counted(self, size: int, answer: Answer) -> Answer:
        """Count the bytes as in flight until the answer."""
        self._bytes += size

        def done(response: ProduceResponsePartition) -> None:
            self._bytes -= size
            answer(response)

        return done

    def _put_plain(self, topic: str, index: int, count: int, data: bytes, answer: Answer) -> None:
        def then(outcome: Value) -> None:
            if isinstance(outcome, local.Stored):
                answer(ProduceResponsePartition(index=index, base_offset=outcome.offset))
            else:
                answer(failed(index, code_of(outcome), str(outcome)))

        self._backend.produce(topic, count, data, then)

    def _stage(
        self,
        transactional_id: str,
        topic: str,
        index: int,
        header: RecordBatch,
        data: bytes,
        timeout: float,
        answer: Answer,
    ) -> None:
        """Put a batch of a transaction. Its offset is not known before the commit."""

        def staged(code: Code, message: str) -> None:
            answer(failed(index, code, message or None))

        producer = (header.producer_id, header.producer_epoch)
        batch = (header.base_sequence, header.count, data)

        def checked(here: bool) -> None:
            if here:
                self._transactions.stage(transactional_id, producer, topic, batch, timeout, staged)
            else:
                staged(Code.NOT_LEADER_OR_FOLLOWER, "")

        # Only the coordinator knows the open transaction.
        self._brokers.check(transactional_id, checked)

    # -- idempotent producers --

    def _put_idempotent(
        self,
        topic: str,
        index: int,
        header: RecordBatch,
        data: bytes,
        timeout: float,
        answer: Answer,
    ) -> None:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            answer(failed(index, Code.INVALID_RECORD, "the sequence or the epoch is negative"))
            return
        key = (topic, header.producer_id, header.producer_epoch)
        producer = self._producers.get(key)
        if producer is None:
            producer = self._producers[key] = Producer()
            self._forget_idle()
        else:
            self._producers.move_to_end(key)
        producer.queue.append(
            Batch(index, header.base_sequence, header.count, data, timeout, answer)
        )
        self._advance(key, producer)

    def _forget_idle(self) -> None:
        for key in list(self._producers)[: max(0, len(self._producers) - PRODUCERS_MAX)]:
            if self._producers[key].idle:
                del self._producers[key]

    def _advance(self, key: tuple[str, int, int], producer: Producer) -> None:
        """Open the producer, or send the queued batches."""
        if not producer.queue:
            return
        if not producer.epoch:
            self._open(key, producer)
            return
        while producer.queue:
            self._send(key, producer, producer.queue.popleft())

    def _open(self, key: tuple[str, int, int], producer: Producer) -> None:
        if producer.opening:
            return
        producer.opening = True
        topic, name = key[0], self._prefix + name_of(*key[1:])
        # A partition that was deleted must not become a topic of its own.
        create = MARK not in topic
        open_ = do.OpenProducer(topic, name, name, 0, create, directory_id=name, expected=0)

        def opened(outcome: Value) -> None:
            producer.opening = False
            if isinstance(outcome, Opened):
                producer.epoch, producer.next = outcome.epoch, outcome.next_sequence
                self._advance(key, producer)
                return
            waiting, producer.queue = producer.queue, deque()
            for each in waiting:
                each.answer(failed(each.index, code_of(outcome), str(outcome)))

        self._backend.do(open_, opened, producer.queue[0].timeout)

    def _send(self, key: tuple[str, int, int], producer: Producer, batch: Batch) -> None:
        producer.in_flight.append(batch)
        batch.attempts += 1
        topic, name = key[0], self._prefix + name_of(*key[1:])
        sequence = producer.unwrapped(batch.sequence)
        put = do.Put(
            topic, name, producer.epoch, sequence, batch.count, len(batch.data), 0, batch.data
        )

        def stored(outcome: Value) -> None:
            earlier = producer.in_flight.index(batch) > 0
            producer.in_flight.remove(batch)
            match outcome:
                case Appended(offset) | Already(offset):
                    producer.next = max(producer.next, sequence + batch.count)
                    batch.answer(ProduceResponsePartition(index=batch.index, base_offset=offset))
                case errors.Gap() if earlier or producer.queue:
                    # A batch before this one was delayed, so this one is sent again after it.
                    producer.queue.append(batch)
                case errors.Gap(0):  # The record of the producer was deleted, so it starts again.
                    batch.answer(failed(batch.index, Code.UNKNOWN_PRODUCER_ID, str(outcome)))
                case errors.Unopened() if batch.attempts == 1:
                    producer.epoch = 0  # The topic was deleted, or the record was idle for days.
                    producer.queue.append(batch)
                case _:
                    batch.answer(failed(batch.index, code_of(outcome), str(outcome)))
            if producer.queue and not producer.in_flight:
                producer.queue = deque(
                    sorted(producer.queue, key=lambda each: producer.unwrapped(each.sequence))
                )
                self._advance(key, producer)

        self._backend.do(put, stored, batch.timeout)


def name_of(producer_id: int, epoch: int) -> str:
    """Return the name of our producer for a Kafka producer id and epoch, without the user."""
    return f"kafka/{producer_id}/{epoch}"


def failed(index: int, code: Code, message: str | None = None) -> ProduceResponsePartition:
    return ProduceResponsePartition(index=index, error_code=code, error_message=clipped(message))
