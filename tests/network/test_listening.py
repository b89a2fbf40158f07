"""Test which addresses a node can listen on, and which need TLS."""

from __future__ import annotations

import pytest

from oncecast.errors import BadAddress, CannotListen
from oncecast.network.addresses import is_loopback, split
from tests.network.raw import Raw
from tests.network.talk import LOOPS, drive, listening, port_of, reserve


def test_publicly_reachable_port_needs_tls_or_the_insecure_option() -> None:
    async def test() -> None:
        with pytest.raises(CannotListen, match=r"TLS is off; provide a certificate, listen"):
            async with listening("0.0.0.0:0"):
                pass
        async with listening("0.0.0.0:0", insecure=True):
            pass

    drive(test())


@pytest.mark.parametrize("loop", LOOPS)
def test_error_names_the_port_in_use(loop: str) -> None:
    async def test() -> None:
        with reserve() as taken:
            taken.listen()
            address = f"127.0.0.1:{port_of(taken)}"
            with pytest.raises(CannotListen, match=rf"{address}: .*in use.*; free the port"):
                async with listening(address):
                    pass

    drive(test(), loop)


def test_node_can_listen_on_localhost_without_tls() -> None:
    async def test() -> None:
        with reserve() as reserved:
            async with listening(f"localhost:{port_of(reserved)}"):
                (await Raw.dial(port_of(reserved))).close()

    drive(test())


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("a.example:1", "a.example", 1),
        ("[::1]:65535", "::1", 65535),
        ("localhost:0", "localhost", 0),
    ],
)
def test_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert split(address) == (host, port)


@pytest.mark.parametrize("address", ["", "a", "a:", ":1", "a:b", "::1:1", "a b:1", "a:1\n"])
def test_malformed_address_is_rejected(address: str) -> None:
    with pytest.raises(BadAddress, match=r'write "host:port"'):
        split(address)


def test_port_above_65535_is_rejected() -> None:
    with pytest.raises(BadAddress, match=r"a:65536: the port is too high \(limit 65535\)"):
        split("a:65536")


def test_only_localhost_and_loopback_addresses_count_as_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.9.9.9", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example", ""]))
