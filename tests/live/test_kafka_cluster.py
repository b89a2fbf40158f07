"""Let Kafka clients use a group and a ring whose nodes all serve Kafka clients (KAF-3)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.network.talk import port_of, reserve

PATIENCE = 30.0
TOPICS = [f"t{number}" for number in range(4)]


class Member:
    """A node process that serves Kafka clients."""

    def __init__(self, data: Path, *flags: str) -> None:
        self._reserved = [reserve(), reserve()]
        self.at, self.kafka = (f"127.0.0.1:{port_of(each)}" for each in self._reserved)
        words = ("--data", str(data), "--listen", self.at, "--kafka", self.kafka, *flags)
        fast = ("--heartbeat", "0.3", "--suspicion", "1")
        with data.with_suffix(".log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "oncecast", "serve", *words, *fast], stderr=log
            )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for each in self._reserved:
            each.close()


class Members:
    def __init__(self, path: Path, *flags: str) -> None:
        self.all: list[Member] = []
        for number in range(3):
            join = ("--join", self.all[0].at) if self.all else ()
            self.all.append(Member(path / f"n{number}", *flags, *join))
        self.kafka = ",".join(each.kafka for each in self.all)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.kafka})
        while len(self.seen(admin).brokers) < 3:
            assert all(each.process.poll() is None for each in self.all)
        self.admin = admin

    def seen(self, admin: Any) -> Any:
        try:
            return admin.list_topics(timeout=1)
        except confluent_kafka.KafkaException:
            return confluent_kafka.admin.ClusterMetadata()

    def leaders(self) -> dict[str, str]:
        """Return the address of the broker that leads each topic."""
        seen = self.admin.list_topics(timeout=PATIENCE)
        at = {each.id: f"{each.host}:{each.port}" for each in seen.brokers.values()}
        return {name: at[seen.topics[name].partitions[0].leader] for name in TOPICS}

    def kill_leader(self, topic: str) -> None:
        address = self.leaders()[topic]
        next(each for each in self.all if each.kafka == address).kill()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Members]:
    members = Members(tmp_path)
    yield members
    for each in members.all:
        each.close()


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Members]:
    members = Members(tmp_path, "--own-group")
    yield members
    for each in members.all:
        each.close()


class Flow:
    """A producer and a group with one member, which put and get the same numbers."""

    def __init__(self, kafka: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka, "enable.idempotence": True}
        )
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe(TOPICS)
        self.found: dict[str, list[int]] = {name: [] for name in TOPICS}
        self._put = 0

    def run(self, count: int) -> None:
        for number in range(self._put, self._put + count):
            for name in TOPICS:
                self._producer.produce(name, b"%d" % number)
        assert self._producer.flush(PATIENCE) == 0
        self._put += count
        while sum(map(len, self.found.values())) < self._put * len(TOPICS):
            message = self._consumer.poll(PATIENCE)
            assert message is not None
            if message.error() is None:
                self.found[message.topic()].append(int(message.value()))

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def check_failover(members: Members) -> None:
    flow = Flow(members.kafka)
    flow.run(50)
    flow.commit()
    before = members.leaders()
    members.kill_leader("t0")
    flow.run(50)
    flow.close()
    assert flow.found == {name: list(range(100)) for name in TOPICS}
    assert members.leaders()["t0"] != before["t0"]


@pytest.mark.long
def test_failover_of_a_group_is_a_leader_change(group: Members) -> None:
    """KAF-3: nothing is lost, and nothing arrives twice."""
    check_failover(group)


@pytest.mark.soak
def test_failover_on_a_ring_is_a_leader_change(ring: Members) -> None:
    """KAF-3: each topic has its own leader."""
    check_failover(ring)
