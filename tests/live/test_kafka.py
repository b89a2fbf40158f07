"""Let unmodified Kafka clients use a node through `oncecast kafka` (KAF-1 to KAF-4)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from oncecast import EARLIEST, blocking
from tests.live.test_serve import PATIENCE, Process

pytestmark = pytest.mark.long


class FrontEnd:
    """A process that serves Kafka clients."""

    def __init__(self, node: str, listen: str = "127.0.0.1:0", *flags: str) -> None:
        words = ("-m", "oncecast", "kafka", "--server", node, "--listen", listen, *flags)
        self.process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"on (\S+)", line)
        assert found is not None, self.process.communicate()
        self.address = found[1]

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


class Place:
    """A node and its front end. Both can be killed and restarted."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.node = Process("--data", str(data))
        self.at = f"127.0.0.1:{self.node.port}"
        self.front = FrontEnd(self.at)
        self.kafka = self.front.address

    def restart_front(self) -> None:
        self.front.end()
        self.front = FrontEnd(self.at, self.kafka)

    def restart_node(self) -> None:
        self.node.end(signal.SIGKILL)
        assert self.node.process.stderr is not None
        self.node.process.stderr.close()
        self.node = Process("--data", str(self._data), "--listen", self.at)

    def close(self) -> None:
        if self.front.process.poll() is None:
            self.front.end()
        self.node.end(signal.SIGKILL)
        assert self.node.process.stderr is not None
        self.node.process.stderr.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("kafka") / "data")
    yield place
    place.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "data")
    yield place
    place.close()


class Errors(list[Any]):
    """The errors that a producer reports."""

    def report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.append(error)


def produced(place: Place, topic: str, values: list[bytes], **options: Any) -> list[Any]:
    """Put the values with librdkafka. Return the errors."""
    errors = Errors()
    settings = {"bootstrap.servers": place.kafka, "enable.idempotence": True, **options}
    producer = confluent_kafka.Producer(settings)
    for each in values:
        producer.produce(topic, each, on_delivery=errors.report)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    return errors


def consumed(place: Place, topic: str, group: str, count: int, *, commit: bool = True) -> list[Any]:
    """Return `count` messages that a consumer group gets through librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": place.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=PATIENCE)
        assert messages, f"{len(found)} of {count} messages arrived"
        found += [each for each in messages if each.error() is None]
    if commit:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_librdkafka_puts_and_a_group_gets_each_message_once(shared: Place) -> None:
    """KAF-1, KAF-2, KAF-3: confluent-kafka with idempotence, a group and committed offsets."""
    values = [b"%d" % number for number in range(2000)]
    assert produced(shared, "rdkafka", values[:1500]) == []
    first = consumed(shared, "rdkafka", "g", 1500)
    assert [each.value() for each in first] == values[:1500]
    assert [each.offset() for each in first] == list(range(1500))
    assert produced(shared, "rdkafka", values[1500:]) == []
    rest = consumed(shared, "rdkafka", "g", 500)
    assert [each.value() for each in rest] == values[1500:]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_reach_kafka_and_native_readers(shared: Place, compression: str) -> None:
    """KAF-3, KAF-4"""
    topic = f"compressed-{compression}"
    values = [b"value %d " % number * 20 for number in range(50)]
    options = {"compression.type": compression, "linger.ms": 50}
    assert produced(shared, topic, values, **options) == []
    assert [each.value() for each in consumed(shared, topic, "g", 50)] == values
    with blocking.connect(shared.at) as client:
        native = client.subscribe(topic, "native", start=EARLIEST)
        assert [each.value for each in native.get_many(50, timeout=PATIENCE)] == values


def test_kafka_client_reads_native_messages(shared: Place) -> None:
    """KAF-4: keys, headers and times are converted."""
    with blocking.connect(shared.at) as client:
        client.create_subscription("native", "keep")
        client.put("native", b"v", key=b"k", headers={"h": b"x"})
        stored = next(client.scan("native"))
    (found,) = consumed(shared, "native", "g", 1)
    assert (found.value(), found.key(), found.headers()) == (b"v", b"k", [("h", b"x")])
    assert found.timestamp()[1] == stored.messages()[0].timestamp // 1000


def test_aiokafka_puts_and_gets(shared: Place) -> None:
    """KAF-1"""

    async def work() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=shared.kafka, enable_idempotence=True
        )
        async with producer:
            for number in range(300):
                await producer.send("aiokafka", b"%d" % number)
            await producer.flush()
        consumer = aiokafka.AIOKafkaConsumer(
            "aiokafka",
            bootstrap_servers=shared.kafka,
            group_id="aio",
            auto_offset_reset="earliest",
        )
        async with consumer:
            return [(await consumer.getone()).value for _ in range(300)]

    found = asyncio.run(asyncio.wait_for(work(), 2 * PATIENCE))
    assert found == [b"%d" % number for number in range(300)]


# In a separate process, because importing kafka-python warns about deprecated functions.
KAFKA_PYTHON = """
import sys
import kafka

address, count = sys.argv[1], int(sys.argv[2])
producer = kafka.KafkaProducer(bootstrap_servers=address)
for number in range(count):
    producer.send("kafka-python", b"%d" % number)
producer.flush()
producer.close()
consumer = kafka.KafkaConsumer(
    "kafka-python", bootstrap_servers=address, group_id="kp", auto_offset_reset="earliest"
)
for _, message in zip(range(count), consumer):
    print(message.offset, message.value.decode())
consumer.close()
"""


def test_kafka_python_puts_and_gets(shared: Place) -> None:
    """KAF-1"""
    words = [sys.executable, "-c", KAFKA_PYTHON, shared.kafka, "100"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("\n")[:-1] == [f"{number} {number}" for number in range(100)]


def test_two_consumers_in_a_group_get_each_message_once(shared: Place) -> None:
    """KAF-3: one consumer owns the partition. The other takes over when the first one leaves."""

    async def work() -> list[bytes]:
        def consumer() -> Any:
            return aiokafka.AIOKafkaConsumer(
                "pair",
                bootstrap_servers=shared.kafka,
                group_id="pair",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )

        found: list[bytes] = []
        first, second = consumer(), consumer()
        await first.start()
        await second.start()
        owner, other = (first, second) if first.assignment() else (second, first)
        while len(found) < 10:
            batches = await owner.getmany(timeout_ms=200, max_records=10 - len(found))
            found += [each.value for batch in batches.values() for each in batch]
            if not owner.assignment():
                owner, other = other, owner
        await owner.commit()
        await owner.stop()
        while len(found) < 20:
            batches = await other.getmany(timeout_ms=200)
            found += [each.value for batch in batches.values() for each in batch]
        await other.stop()
        return found

    values = [b"%d" % number for number in range(20)]
    assert produced(shared, "pair", values) == []
    assert asyncio.run(asyncio.wait_for(work(), 3 * PATIENCE)) == values


def test_admin_client_creates_describes_and_deletes_topics(shared: Place) -> None:
    """KAF-3"""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": shared.kafka})
    topic = confluent_kafka.admin.NewTopic(
        "managed", num_partitions=1, config={"retention.ms": "60000"}
    )
    (created,) = admin.create_topics([topic]).values()
    created.result(PATIENCE)
    (again,) = admin.create_topics([topic]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="already exists"):
        again.result(PATIENCE)
    resource = confluent_kafka.admin.ConfigResource("topic", "managed")
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(PATIENCE)["retention.ms"].value == "60000"
    assert "managed" in admin.list_topics(timeout=PATIENCE).topics
    (deleted,) = admin.delete_topics(["managed"]).values()
    deleted.result(PATIENCE)


def test_killed_front_end_and_node_neither_lose_nor_duplicate_messages(own: Place) -> None:
    """KAF-2: librdkafka resends, and each message is stored once and in order."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": own.kafka,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
        }
    )
    errors = Errors()
    count = 6000
    for number in range(count):
        producer.produce("t", b"%d" % number, on_delivery=errors.report)
        producer.poll(0)
        if number in (1500, 3000):
            own.restart_front()
        if number == 4500:
            own.restart_node()
    assert producer.flush(3 * PATIENCE) == 0
    assert errors == []
    with blocking.connect(own.at) as client:
        stored = [each.value for part in client.scan("t") for each in part.messages()]
    assert stored == [b"%d" % number for number in range(count)]


def test_committed_offset_survives_a_killed_front_end_and_node(own: Place) -> None:
    """KAF-3"""
    values = [b"%d" % number for number in range(20)]
    assert produced(own, "t", values) == []
    assert len(consumed(own, "t", "g", 10)) == 10
    own.restart_front()
    own.restart_node()
    rest = consumed(own, "t", "g", 10)
    assert [each.value() for each in rest] == values[10:]


def test_hostile_bytes_close_only_their_own_connection(shared: Place) -> None:
    """KAF-1: lengths are checked before memory is allocated."""
    host, port = shared.kafka.split(":")
    for data in (
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
    ):
        with socket.create_connection((host, int(port)), PATIENCE) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
    assert produced(shared, "after", [b"fine"]) == []


def test_front_end_stops_on_sigterm_with_status_0(own: Place) -> None:
    assert own.front.end(signal.SIGTERM) == 0


def test_node_process_serves_kafka_clients_itself(tmp_path: Path) -> None:
    """KAF-1: `oncecast serve --kafka` needs no second process."""
    node = Process("--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
    address = node.wait_for(r"kafka at=(\S+)")
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "enable.idempotence": True})
    producer.produce("t", b"v")
    assert producer.flush(PATIENCE) == 0
    assert node.end(signal.SIGTERM) == 0
    assert node.process.stderr is not None
    node.process.stderr.close()
