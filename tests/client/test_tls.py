"""Clients of a node with TLS log in by certificate or password, and are refused otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.errors import NotAuthenticated, NotConnected
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run
from tests.network.authority import Authority
from tests.network.users import Users


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def serving(path: Path, authority: Authority, users: Users | None, **settings: Any) -> Server:
    files = authority.node()
    known = {
        "tls_certificate": str(files.certificate),
        "tls_key": str(files.key),
        "tls_ca": str(files.ca),
        **settings,
    }
    made = Settings(data=str(path / "node"), listen="127.0.0.1:0", **known)
    return Server(made, logins=users)


def test_client_certificate_counts_as_a_login(authority: Authority, tmp_path: Path) -> None:
    """SEC-2"""

    async def test() -> None:
        users, tls = Users(), authority.client("ann").tls()
        async with (
            serving(tmp_path, authority, users) as node,
            oncecast.connect(node.me, tls=tls, name="ann-1"),
        ):
            attempt = users.attempts[0]
            found = (attempt.how, attempt.principal, attempt.client)
            assert found == ("certificate", "ann", "ann-1")

    run(test())


@pytest.mark.parametrize("ca", ["optional", "none"])
def test_clients_without_a_certificate_can_log_in_with_a_password(
    ca: str, authority: Authority, tmp_path: Path
) -> None:
    """SEC-2"""
    settings = {"tls_clients": "optional"} if ca == "optional" else {"tls_ca": ""}

    async def test() -> None:
        tls = oncecast.Tls.from_files(ca=authority.ca)
        async with serving(tmp_path, authority, Users(), **settings) as node:
            async with oncecast.connect(node.me, tls=tls, user="ann", password="tulip") as client:
                await client.create_topic("news")
            with pytest.raises(NotAuthenticated, match="requires a login"):
                async with oncecast.connect(node.me, tls=tls):
                    pass

    run(test())


def test_client_without_a_certificate_is_refused_by_default(
    authority: Authority, tmp_path: Path
) -> None:
    """SEC-2"""

    async def test() -> None:
        tls = oncecast.Tls.from_files(ca=authority.ca)
        async with serving(tmp_path, authority, None) as node:
            with pytest.raises(NotConnected, match="accepts in `tls`"):
                async with oncecast.connect(node.me, tls=tls, connect_timeout=0.5):
                    pass

    run(test())


def test_error_for_a_client_without_tls_names_the_tls_option(
    authority: Authority, tmp_path: Path
) -> None:
    """SEC-2"""

    async def test() -> None:
        async with serving(tmp_path, authority, None) as node:
            with pytest.raises(NotConnected, match="provide its CA in `tls`") as error:
                async with oncecast.connect(node.me, connect_timeout=0.5):
                    pass
            assert error.value.in_cli().endswith("provide its CA with --tls or --tls-ca")

    run(test())


def test_error_for_a_certificate_from_another_authority_names_the_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    """SEC-2"""

    async def test() -> None:
        tls = oncecast.Tls.from_files(ca=Authority(tmp_path).ca)
        async with serving(tmp_path, authority, None) as node:
            with pytest.raises(
                NotConnected, match="the node's certificate was rejected: "
            ) as error:
                async with oncecast.connect(node.me, tls=tls, connect_timeout=0.5):
                    pass
            assert "use the CA that signed the certificate" in str(error.value)
            assert "_ssl.c" not in str(error.value)

    run(test())
