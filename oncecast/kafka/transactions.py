"""Kafka transactions: InitProducerId to EndTxn, as native transactions of one replica group.

A transactional id is a source. The Kafka producer id is the epoch of the source, so the node fences
an older producer. Batches are staged, and readers do not see them before the commit. The commit is
one command, which also moves the offsets of consumer groups. So no reader ever sees a message of an
aborted transaction, at any isolation level.

A front end that loses an open transaction, because it restarts, aborts it and tells the client. A
commit that it sent before stays committed, and the client learns its outcome.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from oncecast.client.session.local import NoAnswer
from oncecast.kafka import messages as m
from oncecast.kafka.backend import Backend, code_of
from oncecast.kafka.errors import Code
from oncecast.kafka.gather import Gather
from oncecast.kafka.groups import Groups
from oncecast.kafka.layout import Body
from oncecast.kafka.offsets import Offsets, Position
from oncecast.kafka.partitions import UNKNOWN_YET, Partitions
from oncecast.kafka.recovering import recover
from oncecast.kafka.transaction import ABORTED, State, Then, Transactional
from oncecast.kernel.protocol import Protocol, Value
from oncecast.kernel.topic_tag import tag_of
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import SourceOpened, Staged, TransactionEnded

TIMEOUT = 15.0
NEVER = 1e9  # a commit is repeated until its outcome is known
# Maximum transactional ids that the front end remembers; it looks up other ids again.
IDS_MAX = 10_000
FENCED = Code.INVALID_PRODUCER_EPOCH
EPOCH = 0  # the Kafka epoch of every producer id

# Error codes for requests about a transactional id.
SOURCE_CODES: dict[type[Value], Code] = {
    NoAnswer: Code.COORDINATOR_NOT_AVAILABLE,
    errors.Denied: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.LevelTooLow: Code.UNSUPPORTED_VERSION,
}

Reply = Callable[[Any], None]
Handler = Callable[[Any, Reply], None]


class Transactions:
    def __init__(
        self,
        host: Protocol,
        backend: Backend,
        offsets: Offsets,
        groups: Groups,
        partitions: Partitions,
        user: str,
    ) -> None:
        self._host, self._backend, self._partitions = host, backend, partitions
        self._offsets, self._groups = offsets, groups
        self._prefix = f"{user}/kafka-transactions/" if user else "kafka-transactions/"
        self._known: OrderedDict[str, Transactional] = OrderedDict()
        self._recovering: dict[tuple[str, int], list[Callable[[Transactional | Code], None]]] = {}

    def handlers(self) -> dict[type[Body], Handler]:
        return {
            m.AddPartitionsToTxnRequest: self.add_partitions,
            m.AddOffsetsToTxnRequest: self.add_offsets,
            m.TxnOffsetCommitRequest: self.commit_offsets,
            m.EndTxnRequest: self.end,
        }

    # -- the producer id --

    def open(self, request: m.InitProducerIdRequest, reply: Reply) -> None:
        """Give the transactional id to a new producer, and abort an open transaction."""
        id = request.transactional_id or ""
        if not id:
            reply(m.InitProducerIdResponse(error_code=Code.INVALID_REQUEST))
            return
        # A producer that wants a new epoch must still have the current one.
        expected = request.producer_id if request.producer_id >= 0 else do.ANY_EPOCH
        source, home = self._prefix + id, tag_of(id)
        incarnation = f"{self._host.rng.getrandbits(128):032x}"

        def opened(outcome: Value) -> None:
            if not isinstance(outcome, SourceOpened):
                code = SOURCE_CODES.get(type(outcome), code_of(outcome))
                reply(m.InitProducerIdResponse(error_code=code))
                return
            self._remember(id, Transactional(source, home, outcome.epoch, ring=outcome.ring))
            reply(m.InitProducerIdResponse(producer_id=outcome.epoch, producer_epoch=EPOCH))

        self._known.pop(id, None)
        command = do.OpenSource(source, incarnation, home, 0, expected)
        self._backend.do(command, opened, TIMEOUT)

    def _remember(self, id: str, opened: Transactional) -> None:
        self._known[id] = opened
        self._known.move_to_end(id)
        for name in list(self._known)[: max(0, len(self._known) - IDS_MAX)]:
            if self._known[name].state == State.READY:
                del self._known[name]

    def _find(
        self, id: str, producer: tuple[int, int], then: Callable[[Transactional | Code], None]
    ) -> None:
        """Call `then` with the state of a producer, or with an error code."""
        epoch, kafka_epoch = producer
        known = self._known.get(id)
        if epoch < 0 or kafka_epoch != EPOCH:
            then(FENCED)
        elif known is not None and known.epoch == epoch:
            self._known.move_to_end(id)
            then(known)
        elif known is not None and known.epoch > epoch:
            then(FENCED)
        elif (id, epoch) in self._recovering:
            self._recovering[id, epoch].append(then)
        else:
            self._recovering[id, epoch] = [then]

            def recovered(found: Transactional | Code) -> None:
                if isinstance(found, Transactional):
                    self._remember(id, found)
                for each in self._recovering.pop((id, epoch)):
                    each(found)

            recover(self._backend, self._prefix + id, tag_of(id), epoch, recovered)

    # -- the beginning --

    def add_partitions(self, request: m.AddPartitionsToTxnRequest, reply: Reply) -> None:
        def done(code: Code) -> None:
            reply(
                m.AddPartitionsToTxnResponse(
                    results=tuple(
                        m.AddedPartitions(
                            name=topic.name,
                            partitions=tuple(
                                m.AddedPartition(
                                    partition_index=each,
                                    error_code=self._code_of(topic.name, each, code),
                                )
                                for each in topic.partitions
                            ),
                        )
                        for topic in request.topics
                    )
                )
            )

        tags = [tag_of(topic.name) for topic in request.topics]
        self._join(request, tags, done)

    def _code_of(self, topic: str, index: int, code: Code) -> Code:
        place = self._partitions.place(topic, index)
        if isinstance(place, Code) and code == Code.NONE:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return code

    def add_offsets(self, request: m.AddOffsetsToTxnRequest, reply: Reply) -> None:
        def done(code: Code) -> None:
            reply(m.AddOffsetsToTxnResponse(error_code=code))

        self._join(request, [], done)

    def _join(
        self,
        request: m.AddPartitionsToTxnRequest | m.AddOffsetsToTxnRequest,
        tags: list[str],
        then: Then,
    ) -> None:
        """Begin a transaction unless one is open, then call `then`."""

        def found(known: Transactional | Code) -> None:
            if isinstance(known, Code):
                then(known)
            elif not all(map(known.allows, tags)):
                then(Code.POLICY_VIOLATION)
            elif known.state == State.OPEN:
                then(Code.NONE)
            elif known.state == State.LOST:
                then(ABORTED)
            elif known.state in (State.ENDING, State.IN_DOUBT):
                then(Code.CONCURRENT_TRANSACTIONS)
            else:
                known.waiting.append(then)
                if known.state == State.READY:
                    self._begin(known)

        producer = (request.producer_id, request.producer_epoch)
        self._find(request.transactional_id, producer, found)

    def _begin(self, known: Transactional) -> None:
        marker = known.marker()
        known.state = State.BEGINNING

        def begun(outcome: Value) -> None:
            if isinstance(outcome, TransactionEnded):
                known.finished(marker.number, committed=False)
                known.state = State.OPEN
                known.answer(Code.NONE)
            else:
                known.state = State.LOST
                known.answer(refusal_code(outcome))

        self._backend.do(marker, begun, NEVER)

    # -- the content --

    def stage(
        self,
        id: str,
        producer: tuple[int, int],
        topic: str,
        batch: tuple[int, int, bytes],  # sequence, count and the batch as it is stored
        timeout: float,
        then: Callable[[Code, str], None],
    ) -> None:
        """Add a batch to the open transaction. `then` gets an error code and a message."""

        def found(known: Transactional | Code) -> None:
            if isinstance(known, Code):
                then(known, "the producer is fenced or unknown")
            elif known.state != State.OPEN:
                code = ABORTED if known.state == State.LOST else Code.INVALID_TXN_STATE
                then(code, "the producer has no open transaction")
            elif not known.allows(tag_of(topic)):
                then(Code.POLICY_VIOLATION, "the topic needs the tag of the transactional id")
            else:
                self._backend.do(known.stage(topic, *batch), staged, timeout)

        def staged(outcome: Value) -> None:
            if isinstance(outcome, Staged):
                then(Code.NONE, "")
            else:
                then(code_of(outcome), str(outcome))

        self._find(id, producer, found)

    def commit_offsets(self, request: m.TxnOffsetCommitRequest, reply: Reply) -> None:
        wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]

        def done(codes: tuple[Code, ...]) -> None:
            answers = iter(codes)
            reply(
                m.TxnOffsetCommitResponse(
                    topics=tuple(
                        m.CommittedTopic(
                            name=topic.name,
                            partitions=tuple(
                                m.CommittedPartition(
                                    partition_index=each.partition_index, error_code=next(answers)
                                )
                                for each in topic.partitions
                            ),
                        )
                        for topic in request.topics
                    )
                )
            )

        def found(known: Transactional | Code) -> None:
            gather = Gather(len(wanted), done)
            for number, (topic, each) in enumerate(wanted):
                self._consume(known, request, topic, each, gather.slot(number))

        producer = (request.producer_id, request.producer_epoch)
        self._find(request.transactional_id, producer, found)

    def _consume(
        self,
        known: Transactional | Code,
        request: m.TxnOffsetCommitRequest,
        topic: str,
        partition: m.TxnCommitPartition,
        then: Then,
    ) -> None:
        code = self._fault(known, request, topic, partition)
        if code != Code.NONE or isinstance(known, Code):
            then(code)
            return
        group, upto, number = request.group_id, partition.committed_offset, known.number
        place = self._partitions.place(topic, partition.partition_index)
        assert isinstance(place, str), "checked by _fault"
        topic = place

        def attached(position: Position | Code) -> None:
            if isinstance(position, Code):
                then(position)
            elif known.state != State.OPEN or known.number != number:
                then(ABORTED)
            elif upto < position.cursor:
                then(Code.INVALID_REQUEST)  # A transaction cannot move a group backwards.
            else:
                known.consume(group, topic, position, upto)
                then(Code.NONE)

        generation = request.generation_id
        holder = f"{known.source}/{known.epoch}" if generation < 0 else ""
        holder = holder or self._groups.holder(generation)
        self._offsets.attach(group, holder, topic, 0, attached)

    def _fault(
        self,
        known: Transactional | Code,
        request: m.TxnOffsetCommitRequest,
        topic: str,
        partition: m.TxnCommitPartition,
    ) -> Code:
        if isinstance(known, Code):
            return known
        if known.state != State.OPEN:
            return ABORTED if known.state == State.LOST else Code.INVALID_TXN_STATE
        if not known.allows(tag_of(topic)):
            return Code.POLICY_VIOLATION
        place = self._partitions.place(topic, partition.partition_index)
        if isinstance(place, Code):
            return Code.COORDINATOR_LOAD_IN_PROGRESS if place == UNKNOWN_YET else place
        if partition.committed_offset < 0:
            return Code.INVALID_REQUEST
        return self._groups.generation_fault(request)

    # -- the end --

    def end(self, request: m.EndTxnRequest, reply: Reply) -> None:
        def then(code: Code) -> None:
            reply(m.EndTxnResponse(error_code=code))

        def found(known: Transactional | Code) -> None:
            if isinstance(known, Code):
                then(known)
            elif known.state in (State.OPEN, State.IN_DOUBT):
                known.waiting.append(then)
                self._end(known, commit=request.committed)
            elif known.state in (State.ENDING, State.BEGINNING):
                then(Code.CONCURRENT_TRANSACTIONS)
            elif not request.committed:
                known.state = State.READY
                then(Code.NONE)
            else:  # The client repeats a request whose response was lost.
                then(Code.NONE if known.committed else ABORTED)

        producer = (request.producer_id, request.producer_epoch)
        self._find(request.transactional_id, producer, found)

    def _end(self, known: Transactional, *, commit: bool) -> None:
        command = known.end(commit=commit)
        # An earlier copy of the commit may have been executed, so a refusal proves nothing.
        doubted = known.state == State.IN_DOUBT
        doubtful = (NoAnswer, errors.Denied) if doubted else (NoAnswer,) if commit else ()
        known.state = State.ENDING

        def ended(outcome: Value) -> None:
            if isinstance(outcome, doubtful):
                known.state = State.IN_DOUBT  # A repeated commit gets the same result.
                known.answer(refusal_code(outcome))
                return
            committed = isinstance(outcome, TransactionEnded) and outcome.committed
            if isinstance(outcome, errors.NotAcknowledged):
                for group, topic in known.groups():
                    self._offsets.forget(group, topic)
            known.finished(command.number, committed=committed)
            known.state = State.READY if committed or not commit else State.LOST
            known.answer(Code.NONE if committed == commit else refusal_code(outcome))

        self._backend.do(command, ended, NEVER)


def refusal_code(outcome: Value) -> Code:
    """Return the error code for a transaction that the node has not committed."""
    if isinstance(outcome, errors.Fenced) and outcome.epoch:
        return FENCED
    return SOURCE_CODES.get(type(outcome), ABORTED)
