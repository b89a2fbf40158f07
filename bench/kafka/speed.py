"""Compare the speed of puts and gets with one unmodified client: confluent-kafka.

    oncecast        `oncecast serve --kafka`: one node, and the front end in its process
    separate        the same node, and `oncecast kafka` in a process of its own
    Apache Kafka    one KRaft broker, from Maven, with log.flush.interval.messages=1
    Redis Streams   appendfsync always, with redis-py, pipelines of 1000 and a consumer group

All systems sync before they acknowledge. oncecast and Redis sync once for all messages that have
arrived meanwhile. With this setting, Kafka syncs after each batch that a producer has sent, which
is the nearest that it offers. Each round measures all systems, one after the other, and the result
is the median of all rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.interop.getting import Missing, java, kafka_tools
from bench.kafka.processes import Cluster, Killable, free_port
from bench.peers.redis_streams import Redis

PATIENCE = 120.0
HOME = Path(".venv/interop")

Measure = Callable[[list[bytes]], tuple[float, float]]  # returns the seconds of put and get

BROKER = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.flush.interval.messages=1
group.initial.rebalance.delay.ms=0
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=100_000, help="messages of 100 bytes")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024], help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")


def with_confluent(address: str) -> Measure:
    """Return the measurement for a Kafka cluster."""

    def measure(values: list[bytes]) -> tuple[float, float]:
        topic = f"speed-{uuid.uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(PATIENCE)
        put = put_all(address, topic, values)
        return put, get_all(address, topic, len(values))

    return measure


def put_all(address: str, topic: str, values: list[bytes]) -> float:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.list_topics(topic, PATIENCE)
    began = time.perf_counter()
    for value in values:
        producer.produce(topic, value)
    left = producer.flush(PATIENCE)
    took = time.perf_counter() - began
    assert left == 0, f"{left} messages were not acknowledged"
    return took


def get_all(address: str, topic: str, count: int) -> float:
    settings = {"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "fetch.max.bytes": 8 << 20})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, left = time.perf_counter(), count
    while left:
        found = consumer.consume(min(left, 10_000), PATIENCE)
        assert found, "no message arrives"
        left -= len(found)
    took = time.perf_counter() - began
    consumer.close()
    return took


@contextmanager
def oncecast(directory: Path, *, front: bool) -> Iterator[Measure]:
    directory.mkdir()
    with Cluster(directory, 1, front=front) as cluster:
        yield with_confluent(cluster.fronts[0].kafka if front else cluster.kafka)


@contextmanager
def apache_kafka(directory: Path) -> Iterator[Measure]:
    directory.mkdir()
    program, jars, port = java(), kafka_tools(HOME.absolute()), free_port()
    settings = directory / "server.properties"
    settings.write_text(BROKER.format(port=port, controller=free_port(), directory=directory))
    main = [program, "-Xmx1g", "-Xms1g", "-cp", jars]
    id_ = "MkU3OEVBNTcwNTJENDM2Qk"
    form = [*main, "kafka.tools.StorageTool", "format", "-t", id_, "-c", str(settings)]
    subprocess.run(form, check=True, capture_output=True, timeout=PATIENCE)
    words = [*main, "kafka.Kafka", str(settings)]
    broker = Killable(words, f"127.0.0.1:{port}", directory / "log")
    broker.start()
    try:
        yield with_confluent(broker.kafka)
    finally:
        broker.stop()


@contextmanager
def redis_streams(directory: Path) -> Iterator[Measure]:
    import asyncio

    if missing := Redis.missing():
        raise Missing(", ".join(missing))
    directory.mkdir()
    redis = Redis()
    redis.start(directory)
    try:
        yield lambda values: (asyncio.run(redis.put(values)), asyncio.run(redis.get(values)))
    finally:
        redis.stop()


def run(options: argparse.Namespace) -> int:
    systems = {
        "oncecast": lambda path: oncecast(path, front=False),
        "oncecast, separate": lambda path: oncecast(path, front=True),
        "Apache Kafka": apache_kafka,
        "Redis Streams": redis_streams,
    }
    with tempfile.TemporaryDirectory(prefix="oncecast-kafka-") as directory, ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for number, (name, start) in enumerate(systems.items()):
            try:
                measures[name] = stack.enter_context(start(Path(directory) / str(number)))
            except Missing as missing:
                print(f"{name} is not available: {missing}", file=sys.stderr)
        figures = [each for size in options.sizes for each in measured(measures, size, options)]
    show(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measured(
    measures: dict[str, Measure], size: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the rates of all systems for messages of one size."""
    count = max(1000, options.messages * 100 // max(size, 100))
    values = [b"%08d" % number + b"x" * (size - 8) for number in range(count)]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
    for turn in range(options.rounds + 1):
        for name, measure in measures.items():
            found = measure(values)
            if turn:  # The first round warms up all systems.
                times[name].append(found)
    return [
        {
            "system": name,
            "bytes": size,
            "messages": count,
            "puts_per_second": round(median(count / put for put, _ in rounds)),
            "gets_per_second": round(median(count / get for _, get in rounds)),
        }
        for name, rounds in times.items()
    ]


def show(figures: list[dict[str, Any]]) -> None:
    print(f"{'system':22}{'bytes':>8}{'puts/s':>12}{'gets/s':>12}")
    for each in figures:
        rates = f"{each['puts_per_second']:>12,}{each['gets_per_second']:>12,}"
        print(f"{each['system']:22}{each['bytes']:>8}{rates}")
