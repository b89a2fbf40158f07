"""TLS and zstd batches between a client and a node in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import oncecast
from oncecast import blocking
from oncecast.errors import ExitStatus, NotConnected
from oncecast.network.tls import Tls
from tests.live.test_bad_input import command, serving
from tests.live.test_serve import Process
from tests.network.authority import Authority


class Files:
    """PEM files for 127.0.0.1, signed by one authority."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        made = Authority(directory).node()
        self.tls = made.tls()
        self.names, self.ca = (str(made.certificate), str(made.key)), str(made.ca)
        self.flags = ("--tls", *self.names, self.ca)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "ours")


@pytest.fixture
def guarded(files: Files, tmp_path: Path) -> Iterator[Process]:
    certificate, key = files.names
    flags = ("--tls-certificate", certificate, "--tls-key", key, "--tls-ca", files.ca)
    with serving(tmp_path / "data", *flags) as node:
        yield node


def test_commands_and_clients_work_over_tls(guarded: Process, files: Files) -> None:
    """SVC-12"""
    assert command(guarded, "sub", "t", *files.flags)[0] == ExitStatus.OK
    assert command(guarded, "put", "t", "by a command", *files.flags)[:2] == (ExitStatus.OK, "0\n")
    with blocking.connect(f"127.0.0.1:{guarded.port}", tls=files.tls) as client:
        large = bytes(3_000_000)
        assert client.put("t", large).offset == 1
        topic = client.read("t", "default")
        assert [message.value for message in topic.get_many(1)] == [b"by a command"]
        assert [message.value for message in topic.get_many(1)] == [large]


def test_client_without_tls_or_from_another_authority_is_refused(
    guarded: Process, files: Files, tmp_path: Path
) -> None:
    """SVC-7"""
    address = f"127.0.0.1:{guarded.port}"
    others: tuple[Tls | None, ...] = (None, Files(tmp_path / "others").tls)
    for tls in others:
        with (
            pytest.raises(NotConnected, match=address),
            blocking.connect(address, tls=tls, connect_timeout=0.5),
        ):
            pass
    assert command(guarded, "status", *files.flags)[0] == ExitStatus.OK


def test_client_with_tls_cannot_connect_to_a_node_without_tls(files: Files, tmp_path: Path) -> None:
    """SVC-7"""
    with serving(tmp_path / "data") as node:
        address = f"127.0.0.1:{node.port}"
        with (
            pytest.raises(NotConnected, match=address),
            blocking.connect(address, tls=files.tls, connect_timeout=0.5),
        ):
            pass


def test_zstd_batches_can_be_read_by_all_clients(tmp_path: Path) -> None:
    """SVC-1: keys, headers and values are unchanged, and the node stores fewer bytes."""
    value = b"the same again and again " * 4000
    with serving(tmp_path / "data") as node:
        address = f"127.0.0.1:{node.port}"
        with blocking.connect(address, zstd=3) as client:
            client.subscribe("t", "s").close()
            assert client.put("t", value, key=b"k", headers={"h": b"x"}).offset == 0
            client.put_many("t", [value] * 100)
            assert client.describe("t").bytes < len(value)
        with blocking.connect(address) as plain:
            topic = plain.read("t", "s")
            first = topic.get(timeout=5)
            assert first is not None
            assert (first.value, first.key, first.headers) == (value, b"k", {"h": b"x"})
            rest: list[oncecast.Message] = []
            while len(rest) < 100:
                rest += topic.get_many(100, timeout=5)
            assert {message.value for message in rest} == {value}
        status, out, _ = command(node, "subs", "lag", "t", "--subscription", "s")
        assert (status, out) == (ExitStatus.OK, "0\n")
