"""Clients log in, and check their login before they connect."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.cli.login import login_of
from oncecast.client.login import Login
from oncecast.errors import InvalidArgument, NotAuthenticated
from oncecast.network.handshake import Challenge, Welcome
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run
from tests.network.raw import RawPeer
from tests.network.users import TOKEN, Users


@asynccontextmanager
async def serving(path: Path, users: Users) -> AsyncIterator[str]:
    settings = Settings(data=str(path / "node"), listen="127.0.0.1:0")
    async with Server(settings, logins=users) as server:
        yield server.me


@pytest.mark.parametrize("login", [{"user": "ann", "password": "tulip"}, {"token": TOKEN}])
def test_client_can_put_after_a_login(login: dict[str, Any], tmp_path: Path) -> None:
    """SEC-2"""

    async def test() -> None:
        users = Users()
        async with (
            serving(tmp_path, users) as address,
            oncecast.connect(address, **login) as client,
        ):
            assert client.name.startswith("ann.")
            await client.create_topic("news", oncecast.Policy(keep_all=True))
            assert (await client.put("news", b"hello")).offset == 0
            assert users.attempts[0].principal == "ann"

    run(test())


@pytest.mark.parametrize(
    "login", [{}, {"user": "ann", "password": "rose"}, {"user": "bob", "password": "tulip"}]
)
def test_failed_login_raises_not_authenticated(login: dict[str, Any], tmp_path: Path) -> None:
    """SEC-2"""

    async def test() -> None:
        async with serving(tmp_path, Users()) as address:
            with pytest.raises(NotAuthenticated, match="login"):
                async with oncecast.connect(address, **login):
                    pass

    run(test())


@pytest.mark.parametrize("answer", ["welcome", "proof"])
def test_client_does_not_trust_a_node_that_does_not_know_its_password(answer: str) -> None:
    """SEC-2: a hostile node must not receive any messages from a client that logs in."""

    async def test() -> None:
        async with RawPeer() as hostile:
            client = oncecast.connect(hostile.id, user="ann", password="tulip")
            with pytest.raises(NotAuthenticated):
                await together(client, hostile)

    async def together(client: Any, hostile: RawPeer) -> None:
        import asyncio

        async def pose() -> None:
            raw = await hostile.accepted.get()
            hello: Any = await raw.greeting()
            if answer == "proof":
                nonce = hello.login.rpartition("r=")[2]
                raw.greet(Challenge(f"r={nonce}more,s=c2FsdA==,i=4096"))
                await raw.greeting()
                raw.proceed(Welcome(hostile.id, 1, "ann", 0, "v=c2lnbmF0dXJl"))
            else:
                raw.greet(Welcome(hostile.id, 1, "ann"))

        posing = asyncio.create_task(pose())
        try:
            async with client:
                pass
        finally:
            await posing

    run(test())


def test_token_is_not_sent_over_a_network_without_tls() -> None:
    """SEC-4"""
    with pytest.raises(NotAuthenticated, match=r"10\.0\.0\.1:7400 without encryption; use TLS"):
        oncecast.connect("127.0.0.1:7400,10.0.0.1:7400", token=TOKEN)
    oncecast.connect("10.0.0.1:7400", user="ann", password="tulip")


@pytest.mark.parametrize(
    "login",
    [
        {"user": "ann"},
        {"password": "tulip"},
        {"user": "ann", "password": "tulip", "token": "t"},
        {"user": "ann", "password": ""},
        {"token": ""},
    ],
)
def test_incomplete_login_is_refused_before_the_client_connects(login: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        oncecast.connect(**login)


def test_repr_does_not_reveal_secrets() -> None:
    """SEC-4"""
    assert "tulip" not in repr(Login("ann", "tulip"))
    assert TOKEN not in repr(Login(token=TOKEN))


def arguments(**given: str) -> argparse.Namespace:
    none = {"user": None, "password_file": None, "token_file": None}
    return argparse.Namespace(**{**none, **given})


def test_command_line_login_overrides_the_environment(tmp_path: Path) -> None:
    """SEC-2"""
    secret = tmp_path / "secret"
    secret.write_text("tulip\n")
    variables = {"ONCECAST_USER": "eve", "ONCECAST_PASSWORD": "apple", "ONCECAST_TOKEN": "t"}
    assert login_of(arguments(), {}) == Login()
    assert login_of(arguments(), {"ONCECAST_TOKEN": "t"}) == Login(token="t")
    assert login_of(arguments(), variables) == Login("eve", "apple")
    given = arguments(user="ann", password_file=str(secret))
    assert login_of(given, variables) == Login("ann", "tulip")
    assert login_of(arguments(token_file=str(secret)), variables) == Login(token="tulip")


def test_command_error_names_the_missing_secret(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for given, reason in (
        (arguments(user="ann"), "needs a password; set --password-file"),
        (arguments(password_file=__file__), "needs a user; set --user"),
        (arguments(user="ann", token_file=__file__), "cannot be combined with --user"),
        (arguments(token_file=str(empty)), "empty is empty"),
        (arguments(token_file=str(tmp_path / "none")), "No such file"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            login_of(given, {})
