"""Test the front end in the process of a node (KAF-1)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest

import oncecast
from oncecast.errors import CannotListen, NotAllowed
from oncecast.kafka.beside import KafkaCompanion, check_exposure, mechanisms_of, serve_kafka
from oncecast.kafka.sasl import PLAIN, SCRAM
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.network.authority import Authority

PATIENCE = 20.0


@asynccontextmanager
async def node(path: Path, **settings: Any) -> AsyncIterator[tuple[Server, KafkaCompanion]]:
    found = Settings(data=str(path / "data"), listen="127.0.0.1:0", kafka="127.0.0.1:0", **settings)
    server = Server(found)
    companion = KafkaCompanion(server)
    server.companions.append(companion)
    async with server:
        yield server, companion


async def put(address: str, topic: str, **login: Any) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, **login) as producer:
        await producer.send_and_wait(topic, b"v")


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_kafka_client_puts_at_the_node_itself(tmp_path: Path) -> None:
    """KAF-1"""

    async def work() -> None:
        async with node(tmp_path) as (server, companion):
            await put(companion.address, "t")
            async with oncecast.connect(server.me) as client:
                assert (await client.describe("t")).next == 1
        assert companion.address == ""

    run(work())


def test_kafka_client_of_a_user_logs_in_at_the_node_itself(tmp_path: Path) -> None:
    """KAF-3, SEC-2: the front end needs no password of its own."""
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "tulip garden",
    }

    async def work() -> None:
        async with node(tmp_path, kafka_sasl=True) as (server, companion):
            async with oncecast.connect(server.me) as client:
                await client.access.add_user("root", "a long password", admin=True)
            async with oncecast.connect(
                server.me, user="root", password="a long password"
            ) as client:
                await client.access.add_user("bob", "tulip garden")
                await client.access.allow("bob", "put", "manage", "read", topic="bob*")
                await put(companion.address, "bob-1", **login)
                assert (await client.describe("bob-1")).next == 1

    run(work())


def test_front_end_of_a_node_with_tls_needs_no_client_certificate(tmp_path: Path) -> None:
    """KAF-3, SEC-1"""
    import ssl

    files = Authority(tmp_path).node("127.0.0.1", "localhost")
    tls = {"tls_certificate": str(files.certificate), "tls_key": str(files.key)}
    context = ssl.create_default_context(cafile=str(files.ca))

    async def work() -> None:
        settings = {**tls, "tls_ca": str(files.ca), "tls_clients": "optional"}
        async with node(tmp_path, **settings) as (_, companion):
            await put(companion.address, "t", security_protocol="SSL", ssl_context=context)

    run(work())


def test_occupied_address_stops_the_node(tmp_path: Path) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = Settings(data=str(tmp_path / "new"), kafka=f"127.0.0.1:{port}")
            with pytest.raises(CannotListen):
                Server(settings)
        assert not (tmp_path / "new").exists()

    run(work())


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, "do not log in and TLS is off"),
        ({"kafka_sasl": True}, "but TLS is off"),
        ({"tls_certificate": "c", "tls_key": "k"}, "do not log in"),
    ],
)
def test_address_that_other_machines_reach_needs_a_login_and_tls(
    settings: dict[str, Any], missing: str
) -> None:
    """SEC-1"""
    with pytest.raises(NotAllowed, match=missing):
        check_exposure(Settings(kafka="0.0.0.0:9092", **settings), "0.0.0.0")
    check_exposure(Settings(kafka="0.0.0.0:9092", insecure=True, **settings), "0.0.0.0")
    check_exposure(Settings(kafka="127.0.0.1:9092", **settings), "127.0.0.1")


def test_password_in_plain_text_is_accepted_only_over_tls_or_loopback() -> None:
    """SEC-2"""
    assert mechanisms_of("0.0.0.0", sasl=True, tls=False) == (SCRAM,)
    assert mechanisms_of("0.0.0.0", sasl=True, tls=True) == (SCRAM, PLAIN)
    assert mechanisms_of("127.0.0.1", sasl=True, tls=False) == (SCRAM, PLAIN)
    assert mechanisms_of("127.0.0.1", sasl=False, tls=True) == ()


def test_embedded_node_serves_kafka_clients(tmp_path: Path) -> None:
    """KAF-1"""

    async def work() -> None:
        async with oncecast.embedded(tmp_path) as client, serve_kafka(client) as address:
            await put(address, "t")
            assert (await client.describe("t")).next == 1
            with pytest.raises(NotAllowed):
                async with serve_kafka(client, "0.0.0.0:0"):
                    pass

    run(work())
