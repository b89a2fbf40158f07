"""A node joins only nodes that accept it as a node (SEC-1 REP-4)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.cli.serve import joining
from oncecast.errors import NotConnected
from oncecast.node.config import Settings
from oncecast.node.ring_server import RingServer
from oncecast.node.server import Server
from tests.network.authority import Authority, Files
from tests.node.test_ring_server import drive
from tests.security.test_certificates import LOOPBACK

every_kind = pytest.mark.parametrize("kind", [Server, RingServer])


def settings(path: Path, **more: Any) -> Settings:
    return Settings(data=str(path), listen="127.0.0.1:0", heartbeat=0.1, suspicion=1.0, **more)


def secret(path: Path, text: str = "a secret of the whole cluster") -> str:
    path.touch(0o600)
    path.write_text(text)
    return str(path)


def tls(files: Files) -> dict[str, str]:
    return {
        "tls_certificate": str(files.certificate),
        "tls_key": str(files.key),
        "tls_ca": str(files.ca),
    }


@every_kind
@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ("", "127.0.0.1:0 has no cluster secret; copy this node's cluster_secret_file"),
        ("another secret of some cluster", "127.0.0.1:0 has a different cluster secret"),
    ],
)
def test_node_without_the_secret_is_refused_before_it_learns_anything(
    tmp_path: Path, kind: type[Server | RingServer], theirs: str, reason: str
) -> None:
    file = secret(tmp_path / "theirs", theirs) if theirs else ""

    async def live() -> None:
        ours = settings(tmp_path / "a", cluster_secret_file=secret(tmp_path / "secret"))
        async with kind(ours) as server:
            joiner = settings(tmp_path / "b", join=server.me, cluster_secret_file=file)
            with pytest.raises(NotConnected, match=reason) as refused:
                await joining.is_process(joiner, server.me)
            assert refused.value.refused
            async with oncecast.connect(server.me) as client:  # clients need no secret
                assert (await client.ping()).node == server.me

    drive(live)


def test_refused_node_waits_until_it_has_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = secret(tmp_path / "theirs", "another secret of some cluster")

    class Corrects(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            secret(tmp_path / "theirs")

    async def live() -> None:
        ours = settings(tmp_path / "a", cluster_secret_file=secret(tmp_path / "secret"))
        async with RingServer(ours) as server:
            joiner = settings(tmp_path / "b", join=server.me, cluster_secret_file=file)
            joining.logger.addHandler(corrects)
            assert await joining.is_of_ring(joiner)
            assert not (tmp_path / "b").exists()
            (said,) = [each for each in caplog.records if each.message.startswith("waits")]
            assert said.levelname == "WARNING"
            assert f"{server.me} refused this node: 127.0.0.1:0 has a different" in said.message

    corrects = Corrects()
    try:
        drive(live)
    finally:
        joining.logger.removeHandler(corrects)


@every_kind
def test_node_joins_nodes_with_users_if_they_accept_it(
    tmp_path: Path, kind: type[Server | RingServer]
) -> None:
    """On loopback without a cluster secret a node needs no proof, and it never needs a login."""

    async def live(**more: Any) -> None:
        async with kind(settings(tmp_path / f"a{len(more)}", **more)) as server:
            async with oncecast.connect(server.me) as client:
                await client.access.add_user("root", "long secret", admin=True)
            joiner = settings(tmp_path / "b", join=server.me, **more)
            assert await joining.is_of_ring(joiner) == (kind is RingServer)

    drive(live)
    file = secret(tmp_path / "secret")
    drive(lambda: live(cluster_secret_file=file))


def test_joining_node_with_a_wrong_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def live() -> None:
        async with RingServer(settings(tmp_path / "a", **tls(authority.node()))) as server:
            for files, reason in (
                (authority.client("ann"), ", not for a node"),
                (authority.node("10.0.0.1"), "is for 10.0.0.1"),
            ):
                joiner = settings(tmp_path / "b", join=server.me, **tls(files))
                with pytest.raises(NotConnected, match=reason):
                    await joining.is_process(joiner, server.me)
            joiner = settings(tmp_path / "b", join=server.me, **tls(authority.node()))
            assert await joining.is_process(joiner, server.me)

    drive(live)


def test_node_does_not_join_a_peer_without_a_node_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pose = authority.special(LOOPBACK)

    async def live() -> None:
        async with RingServer(settings(tmp_path / "a", **tls(pose))) as server:
            joiner = settings(tmp_path / "b", join=server.me, **tls(authority.node()))
            with pytest.raises(NotConnected, match=", not for a node"):
                await joining.is_process(joiner, server.me)

    drive(live)
