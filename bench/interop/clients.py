"""The clients, and what each of them does with a node."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.interop import getting, programs

COUNT = 500
PATIENCE = 120.0
TOOLS = "org.apache.kafka.tools."

Check = Callable[[str], None]  # uses the node at an address, and raises an exception on failure


class Client(NamedTuple):
    name: str
    # Returns the checks by feature, or raises Missing.
    prepare: Callable[[Path], dict[str, Check]]


def told(*words: str, text: str | None = None) -> str:
    """Run a program, and return its output. Raise an error with its last lines if it fails."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, input=text)
    if ended.returncode:
        raise RuntimeError((ended.stdout + ended.stderr).strip()[-600:])
    return ended.stdout


def kcat(home: Path) -> dict[str, Check]:
    program = getting.kcat()
    numbers = [str(number) for number in range(COUNT)]

    def put(at: str) -> None:
        told(program, "-b", at, "-P", "-t", "kcat", text="\n".join(numbers))

    def get(at: str) -> None:
        found = told(program, "-b", at, "-C", "-t", "kcat", "-o", "beginning", "-e", "-q")
        assert found.split() == numbers, len(found.split())

    def group(at: str) -> None:
        words = ("-c", str(COUNT), "-X", "auto.offset.reset=earliest", "-q")
        assert told(program, "-b", at, *words, "-G", "kcat", "kcat").split() == numbers

    def show(at: str) -> None:
        assert 'topic "kcat" with 1 partitions' in told(program, "-b", at, "-L")

    return {"put": put, "get": get, "group": group, "admin": show}


def confluent(home: Path) -> dict[str, Check]:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient, NewTopic

    def put(at: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": at, "enable.idempotence": True})
        for number in range(COUNT):
            producer.produce("confluent", b"%d" % number)
        assert producer.flush(PATIENCE) == 0

    def group(at: str) -> None:
        settings = {"bootstrap.servers": at, "group.id": "c", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(["confluent"])
        found: list[int] = []
        while len(found) < COUNT:
            message = consumer.poll(PATIENCE)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(int(message.value()))
        consumer.close()
        assert found == list(range(COUNT))

    def transaction(at: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": at, "transactional.id": "ct"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("confluent-tx", b"v")
        producer.commit_transaction(PATIENCE)

    def admin(at: str) -> None:
        client = AdminClient({"bootstrap.servers": at})
        made = client.create_topics([NewTopic("confluent-3", num_partitions=3)])
        made["confluent-3"].result(PATIENCE)
        assert len(client.list_topics("confluent-3").topics["confluent-3"].partitions) == 3

    return {"put": put, "group": group, "transactions": transaction, "admin": admin}


def aiokafka(home: Path) -> dict[str, Check]:
    import aiokafka

    async def work(at: str, producer_options: dict[str, Any], topic: str) -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=at, **producer_options) as producer:
            if "transactional_id" in producer_options:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"0")
            else:
                for number in range(COUNT):
                    await producer.send(topic, b"%d" % number)
                await producer.flush()
        count = 1 if "transactional_id" in producer_options else COUNT
        settings = {"bootstrap_servers": at, "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer(topic, group_id=topic, **settings) as consumer:
            return [int((await consumer.getone()).value) for _ in range(count)]

    def flow(at: str) -> None:
        found = asyncio.run(work(at, {"enable_idempotence": True}, "aio"))
        assert found == list(range(COUNT))

    def transaction(at: str) -> None:
        assert asyncio.run(work(at, {"transactional_id": "aio"}, "aio-tx")) == [0]

    return {"put": flow, "group": flow, "transactions": transaction}


def kafka_python(home: Path) -> dict[str, Check]:
    def flow(at: str) -> None:
        told(sys.executable, "-W", "ignore", "-c", programs.KAFKA_PYTHON, at, str(COUNT))

    return {"put": flow, "group": flow}


def faststream(home: Path) -> dict[str, Check]:
    python = getting.faststream(home)

    def flow(at: str) -> None:
        told(python, "-c", programs.FASTSTREAM, at, str(COUNT))

    return {"put": flow, "group": flow}


def java(home: Path) -> dict[str, Check]:
    program, jars = getting.java(), getting.kafka_tools(home)

    def tool(name: str, *words: str) -> str:
        return told(program, "-Xmx512m", "-cp", jars, TOOLS + name, *words)

    def topics(at: str, *words: str) -> str:
        return tool("TopicCommand", "--bootstrap-server", at, *words)

    def admin(at: str) -> None:
        topics(at, "--create", "--topic", "java", "--partitions", "3")
        topics(at, "--alter", "--topic", "java", "--partitions", "4")
        assert "PartitionCount: 4" in topics(at, "--describe", "--topic", "java")
        assert "java" in topics(at, "--list").split()

    def put(at: str) -> None:
        topic = ("--topic", "java", "--max-messages", str(COUNT), "--acks", "-1")
        found = tool("VerifiableProducer", "--bootstrap-server", at, *topic)
        assert f'"acked":{COUNT}' in found, found[-300:]

    def group(at: str) -> None:
        words = ("--group-id", "java", "--max-messages", str(COUNT), "--reset-policy", "earliest")
        at_server = ("--bootstrap-server", at)
        found = tool("VerifiableConsumer", *at_server, "--topic", "java", *words)
        assert '"success":true' in found, found[-300:]
        group = ("--describe", "--group", "java")
        shown = tool("consumer.group.ConsumerGroupCommand", *at_server, *group)
        ends = sum(int(each.split()[3]) for each in shown.splitlines() if "java  " in each)
        assert ends == COUNT, shown

    def transactions(at: str) -> None:
        """Copy a topic with consume-transform-produce transactions."""
        topics(at, "--create", "--topic", "java-in", "--partitions", "1")
        words = ("--topic", "java-in", "--max-messages", str(COUNT))
        tool("VerifiableProducer", "--bootstrap-server", at, *words)
        ids = ("--transactional-id", "java-copier", "--consumer-group", "java-copier")
        way = ("--input-topic", "java-in", "--input-partition", "0", "--output-topic", "java-out")
        size = ("--max-messages", str(COUNT), "--transaction-size", "50")
        found = tool("TransactionalMessageCopier", "--broker-list", at, *ids, *way, *size)
        assert f'"totalProcessed":{COUNT},"consumed":{COUNT},"remaining":0' in found, found[-300:]
        offsets = tool("GetOffsetShell", "--bootstrap-server", at, "--topic", "java-out")
        assert f"java-out:0:{COUNT}" in offsets, offsets

    def performance(at: str) -> None:
        words = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
        server = ("--producer-props", f"bootstrap.servers={at}")
        assert "20000 records sent" in tool(
            "ProducerPerformance", "--topic", "java-perf", *words, *server
        )

    return {
        "admin": admin,
        "put": put,
        "group": group,
        "transactions": transactions,
        "load": performance,
    }


def spark(home: Path) -> dict[str, Check]:
    getting.java()
    python, jars = getting.spark(home)

    def flow(at: str) -> None:
        with tempfile.TemporaryDirectory() as where:
            told(python, "-c", programs.SPARK, at, ",".join(jars), where, str(COUNT))

    return {"put": flow, "get": flow}


CLIENTS = (
    Client("confluent-kafka", confluent),
    Client("aiokafka", aiokafka),
    Client("kafka-python", kafka_python),
    Client("kcat", kcat),
    Client("FastStream", faststream),
    Client(f"Java client {getting.KAFKA}", java),
    Client(f"Spark connector {getting.SPARK}", spark),
)
