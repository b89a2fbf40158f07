"""Answer Fetch and ListOffsets with scans, which move no cursor."""

from __future__ import annotations

from collections.abc import Callable

from oncecast.client.session.local import NoAnswer
from oncecast.kafka.backend import Backend, code_of
from oncecast.kafka.brokers import Brokers
from oncecast.kafka.conversion import kafka_batch
from oncecast.kafka.errors import Code
from oncecast.kafka.gather import Gather
from oncecast.kafka.messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from oncecast.kafka.partitions import Partitions
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire import commands as do
from oncecast.wire.batch import BadBatch
from oncecast.wire.errors import NoSuchTopic
from oncecast.wire.frames import Scan, Scanned
from oncecast.wire.kafka_records import MILLISECOND

LATEST, EARLIEST = -1, -2  # special timestamps of ListOffsets
WAIT_MAX = 60.0  # seconds
NO_PARTITION = NoSuchTopic("")  # the answer for a partition that does not exist
ELSEWHERE = NoAnswer(0.0)  # the answer if another broker leads the topic
TIME_MAX = (1 << 63) - 1  # microseconds
GRACE = 10.0  # seconds that a scan may take beyond its wait
PAUSE = 0.02  # seconds before a scan is repeated, if an older node answers it without waiting


FETCH_BYTES_MAX = 50 << 20  # maximum size of a response, unless its first batch is larger


def read_code(outcome: Value) -> Code:
    """Return the error code for a read. Consumers repeat it if no node has answered."""
    code = code_of(outcome)
    return Code.NOT_LEADER_OR_FOLLOWER if code == Code.REQUEST_TIMED_OUT else code


class FetchAgain(Value):
    """Timer: scan the partitions of a fetch again."""

    number: int


class Fetch:
    """An unanswered fetch of one or more partitions."""

    def __init__(
        self,
        host: Protocol,
        backend: Backend,
        request: FetchRequest,
        reply: Callable[[FetchResponse], None],
        pause: Callable[[Fetch], None],
        alive: Callable[[], bool],  # whether the client is still connected
        brokers: Brokers,
        partitions: Partitions,
    ) -> None:
        self._host, self._backend, self._request, self._reply = host, backend, request, reply
        self._brokers, self._partitions = brokers, partitions
        self._pause, self._alive, self._waited = pause, alive, False
        self._bytes_max = min(request.max_bytes, FETCH_BYTES_MAX)
        self._wanted = [
            (topic.topic, each) for topic in request.topics for each in topic.partitions
        ]
        self._found: dict[int, FetchResponsePartition] = {}
        self._bytes = 0
        self._over = False
        self._deadline = host.now + min(max(request.max_wait_ms, 0) / 1000, WAIT_MAX)

    def start(self) -> None:
        # A single partition waits at once. Several are looked at first, so that a partition
        # without new messages does not delay a partition that has some.
        waits = len(self._wanted) == 1 and self._request.min_bytes > 0
        self._scan_all(waits=waits)

    def again(self) -> None:
        """Scan all partitions again, and wait for a message."""
        self._bytes = 0
        self._scan_all(waits=True)

    def _scan_all(self, *, waits: bool) -> None:
        self._waited = waits
        self._found.clear()
        if not self._wanted:
            self._finish()
        for at, (topic, partition) in enumerate(self._wanted):
            self._scan(at, topic, partition, waits=waits)

    def _scan(self, at: int, topic: str, partition: FetchPartition, *, waits: bool) -> None:
        def then(outcome: Value) -> None:
            if not self._over:
                self._found[at] = found = self._answer(topic, partition, outcome)
                self._bytes += len(found.records or b"")
                self._check(ready=waits and (bool(found.records) or found.error_code != 0))

        place = self._partitions.place(topic, partition.partition)
        if isinstance(place, Code):
            then(NO_PARTITION if place == Code.UNKNOWN_TOPIC_OR_PARTITION else ELSEWHERE)
            return
        if self._brokers.is_elsewhere(place):
            then(ELSEWHERE)
            return
        wait = max(0.0, self._deadline - self._host.now) if waits else 0.0
        size = max(1, min(partition.partition_max_bytes, self._bytes_max))
        start = do.FromOffset(max(partition.fetch_offset, 0))
        scan = Scan(0, place, start, bytes=size, wait_ms=int(wait * 1000))
        self._backend.scan(scan, then, wait + GRACE)

    def _check(self, *, ready: bool) -> None:
        """Answer, wait for more partitions, or scan again."""
        complete = len(self._found) == len(self._wanted)
        if not (ready or complete):
            return
        failed = any(each.error_code for each in self._found.values())
        enough = self._bytes >= self._request.min_bytes or failed
        if ready or enough or self._host.now >= self._deadline:
            self._finish()
        elif not self._alive():
            self._over = True
        elif self._waited:
            self._pause(self)
        else:
            self.again()

    def _answer(
        self, topic: str, partition: FetchPartition, outcome: Value
    ) -> FetchResponsePartition:
        index = partition.partition
        if not isinstance(outcome, Scanned):
            return FetchResponsePartition(partition_index=index, error_code=read_code(outcome))
        code, records = Code.NONE, b""
        if outcome.offset != partition.fetch_offset:
            code = Code.OFFSET_OUT_OF_RANGE
        elif self._bytes < self._bytes_max:
            try:
                records = b"".join(kafka_batch(chunk, topic) for chunk in outcome.chunks)
            except BadBatch:
                code = Code.CORRUPT_MESSAGE
        return FetchResponsePartition(
            partition_index=index,
            error_code=code,
            high_watermark=outcome.next,
            last_stable_offset=outcome.next,
            log_start_offset=outcome.first,
            records=records,
        )

    def _finish(self) -> None:
        self._over = True
        answers = iter(
            self._found.get(at) or _empty(each) for at, (_, each) in enumerate(self._wanted)
        )
        self._reply(
            FetchResponse(
                responses=tuple(
                    FetchResponseTopic(
                        topic=topic.topic,
                        partitions=tuple(next(answers) for _ in topic.partitions),
                    )
                    for topic in self._request.topics
                )
            )
        )


def _empty(partition: FetchPartition) -> FetchResponsePartition:
    """Return the answer for a partition whose scan is still waiting."""
    offset = partition.fetch_offset
    return FetchResponsePartition(
        partition_index=partition.partition, high_watermark=offset, last_stable_offset=offset
    )


class Fetching:
    def __init__(
        self, host: Protocol, backend: Backend, brokers: Brokers, partitions: Partitions
    ) -> None:
        self._host, self._backend = host, backend
        self._brokers, self._partitions = brokers, partitions
        self._paused: dict[int, Fetch] = {}
        self._pauses = 0

    def fetch(
        self,
        request: FetchRequest,
        reply: Callable[[FetchResponse], None],
        alive: Callable[[], bool],
    ) -> None:
        if request.session_id != 0 and request.session_epoch > 0:
            # The client continues a session of another broker that had this address.
            reply(FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND, responses=()))
        else:
            session, places = (self._host, self._backend), (self._brokers, self._partitions)
            Fetch(*session, request, reply, self._pause, alive, *places).start()

    def _pause(self, fetch: Fetch) -> None:
        self._pauses += 1
        self._paused[self._pauses] = fetch
        self._host.later(PAUSE, FetchAgain(self._pauses))

    def timeout(self, timer: FetchAgain) -> None:
        self._paused.pop(timer.number).again()

    def list_offsets(
        self, request: ListOffsetsRequest, reply: Callable[[ListOffsetsResponse], None]
    ) -> None:
        wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]

        def done(found: tuple[ListOffsetsResponsePartition, ...]) -> None:
            answers = iter(found)
            reply(
                ListOffsetsResponse(
                    topics=tuple(
                        ListOffsetsResponseTopic(
                            name=topic.name,
                            partitions=tuple(next(answers) for _ in topic.partitions),
                        )
                        for topic in request.topics
                    )
                )
            )

        gather = Gather(len(wanted), done)
        for number, (topic, partition) in enumerate(wanted):
            self._locate(topic, partition, gather.slot(number))

    def _locate(
        self,
        topic: str,
        partition: ListOffsetsPartition,
        then: Callable[[ListOffsetsResponsePartition], None],
    ) -> None:
        place = self._partitions.place(topic, partition.partition_index)
        if isinstance(place, Code):
            missing = place == Code.UNKNOWN_TOPIC_OR_PARTITION
            then(offset_of(partition, NO_PARTITION if missing else ELSEWHERE))
            return
        if self._brokers.is_elsewhere(place):
            then(offset_of(partition, ELSEWHERE))
            return
        scan = Scan(0, place, start_of(partition.timestamp))
        self._backend.scan(scan, lambda outcome: then(offset_of(partition, outcome)), GRACE)


def start_of(timestamp: int) -> do.Start:
    if timestamp == LATEST:
        return do.FromNew()
    if timestamp < 0:
        return do.FromEarliest()
    return do.FromTime(min(timestamp * MILLISECOND, TIME_MAX))


def offset_of(partition: ListOffsetsPartition, outcome: Value) -> ListOffsetsResponsePartition:
    index, timestamp = partition.partition_index, partition.timestamp
    if not isinstance(outcome, Scanned):
        return ListOffsetsResponsePartition(partition_index=index, error_code=read_code(outcome))
    if timestamp < EARLIEST:
        code = Code.INVALID_REQUEST
        return ListOffsetsResponsePartition(partition_index=index, error_code=code)
    if timestamp >= 0 and not outcome.time:  # No message is as new as the timestamp.
        return ListOffsetsResponsePartition(partition_index=index)
    time = outcome.time // MILLISECOND if timestamp >= 0 else -1
    return ListOffsetsResponsePartition(
        partition_index=index, timestamp=time, offset=outcome.offset
    )
