"""Let unmodified Kafka clients log in through `oncecast kafka --sasl`, with and without TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from oncecast import blocking
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from tests.live.test_kafka import FrontEnd
from tests.live.test_serve import PATIENCE, Process
from tests.network.authority import Authority

pytestmark = pytest.mark.long

BOB = "tulip garden"


class Place(NamedTuple):
    node: str
    kafka: str
    ca: str

    def settings(self, mechanism: str, user: str = "bob", password: str = BOB) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.kafka,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Start a node with an administrator. The user bob may use topics that begin with `bob`."""
    path = tmp_path_factory.mktemp("logins")
    node = Process("--data", str(path / "data"))
    at, password = f"127.0.0.1:{node.port}", path / "root"
    password.write_text("a long password\n")
    files = Authority(path).node("127.0.0.1", "localhost")
    with blocking.connect(at) as client:
        client.access.add_user("root", "a long password", admin=True)
    with blocking.connect(at, user="root", password="a long password") as client:
        client.access.add_user("bob", BOB)
        client.access.allow("bob", "put", "read", "ack", "manage", topic="bob*")
    login = ("--user", "root", "--password-file", str(password))
    tls = ("--sasl", "--listen-tls", str(files.certificate), str(files.key))
    front = FrontEnd(at, "127.0.0.1:0", *login, *tls)
    yield Place(at, front.address, str(files.ca))
    front.end()
    node.process.kill()
    node.process.communicate()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_librdkafka_logs_in_and_has_the_permissions_of_its_user(
    place: Place, mechanism: str
) -> None:
    """SEC-2, KAF-3: the node checks the password, and each request of the user."""
    settings, topic = place.settings(mechanism), f"bob-{mechanism}"
    outcomes: list[Any] = []
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    producer.produce("secret", b"v", on_delivery=lambda error, _: outcomes.append(error.code()))
    assert producer.flush(PATIENCE) == 0
    assert sorted(outcomes, key=str) == [KafkaError.TOPIC_AUTHORIZATION_FAILED, None]
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "bob.billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = consumer.poll(PATIENCE)
    assert found is not None
    assert found.value() == b"v"
    consumer.commit(asynchronous=False)
    consumer.close()
    with blocking.connect(place.node, user="root", password="a long password") as client:
        (view,) = client.topics(topic)
        assert [each.name for each in view.subscriptions] == ["bob.billing"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(("user", "password"), [("bob", "wrong"), ("ghost", BOB)])
def test_unknown_user_and_wrong_password_are_refused(
    place: Place, mechanism: str, user: str, password: str
) -> None:
    """SEC-2"""
    refused = threading.Event()

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            assert "unknown user, wrong password" in error.str()
            refused.set()

    settings = place.settings(mechanism, user, password)
    producer = confluent_kafka.Producer({**settings, "error_cb": failed})
    while not refused.is_set():
        producer.poll(0.05)


def test_aiokafka_logs_in(place: Place) -> None:
    """KAF-3"""
    options = {
        "bootstrap_servers": place.kafka,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=place.ca),
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "bob",
        "sasl_plain_password": BOB,
    }

    async def work() -> Any:
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("bob-aio", b"v")
        consumer = aiokafka.AIOKafkaConsumer(
            "bob-aio", group_id="bob.aio", auto_offset_reset="earliest", **options
        )
        async with consumer:
            return (await consumer.getone()).value

    assert asyncio.run(asyncio.wait_for(work(), 2 * PATIENCE)) == b"v"


KAFKA_PYTHON = """
import sys
import kafka

address, ca, password = sys.argv[1:]
producer = kafka.KafkaProducer(
    bootstrap_servers=address,
    security_protocol="SASL_SSL",
    ssl_cafile=ca,
    sasl_mechanism="SCRAM-SHA-256",
    sasl_plain_username="bob",
    sasl_plain_password=password,
)
print(producer.send("bob-python", b"v").get(20).offset)
producer.close()
"""


def test_kafka_python_logs_in(place: Place) -> None:
    """KAF-3"""
    words = [sys.executable, "-c", KAFKA_PYTHON, place.kafka, place.ca, BOB]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_removed_user_loses_its_connections(place: Place) -> None:
    """SEC-2: the session of a user ends with the user."""
    with blocking.connect(place.node, user="root", password="a long password") as client:
        client.access.add_user("carl", BOB)
        client.access.allow("carl", "put", "manage", topic="carl")
        ended = threading.Event()

        def failed(error: KafkaError) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                ended.set()

        settings = {**place.settings("SCRAM-SHA-256", "carl"), "error_cb": failed}
        producer = confluent_kafka.Producer({**settings, "reconnect.backoff.max.ms": 200})
        producer.produce("carl", b"v")
        assert producer.flush(PATIENCE) == 0
        client.access.remove_user("carl")
        while not ended.is_set():  # it reconnects, and its login is refused
            producer.poll(0.05)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "Kafka clients do not log in and TLS is off"),
        (["--sasl"], "TLS is off"),
        (["--listen-tls", "cert", "key"], "Kafka clients do not log in"),
    ],
)
def test_front_end_listens_beyond_loopback_only_with_tls_and_logins(
    flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-1"""
    assert main(["kafka", "--listen", "0.0.0.0:0", *flags]) == ExitStatus.NOT_ALLOWED
    assert f"other machines can reach this address, but {reason};" in capsys.readouterr().err
