"""A client manages users, tokens and rules (SEC-2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.client.access import TokenInfo
from oncecast.client.client import Client
from oncecast.errors import Denied, InvalidArgument, NotAuthenticated, NotConnected, Refused
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.security.values import Rule
from tests.client.serving import run

ROOT = {"user": "root", "password": "long secret"}
ANN = {"user": "ann", "password": "tulip"}


@asynccontextmanager
async def secured(path: Path) -> AsyncIterator[tuple[str, Client]]:
    """Yield the address of a node with users root and ann, and a client logged in as root."""
    settings = Settings(data=str(path / "node"), listen="127.0.0.1:0")
    async with Server(settings) as server:
        async with oncecast.connect(server.me) as first:
            await first.access.add_user("root", "long secret", admin=True)
        async with oncecast.connect(server.me, **ROOT) as root:  # type: ignore[arg-type]
            await root.access.add_user("ann", "tulip")
            yield server.me, root


def connect(address: str, login: dict[str, str]) -> Client:
    options: Any = login
    return oncecast.connect(address, **options)


def test_clients_without_a_login_are_refused_once_a_user_exists(tmp_path: Path) -> None:
    """SEC-2: access is denied by default as soon as one user exists."""

    async def test() -> None:
        async with secured(tmp_path) as (address, _):
            with pytest.raises(NotAuthenticated):
                async with oncecast.connect(address):
                    pass
            with pytest.raises(NotAuthenticated):
                async with connect(address, {"user": "ann", "password": "rose"}):
                    pass
            async with connect(address, ANN) as ann:
                with pytest.raises(Denied):
                    await ann.put("news", b"x")
                with pytest.raises(Denied):
                    await ann.subscribe("news")
                with pytest.raises(Denied):
                    await ann.create_topic("news")
                with pytest.raises(Denied):
                    await ann.describe("news")
                with pytest.raises(Denied):
                    await ann.access.users()
                with pytest.raises(Denied):
                    await ann.access.add_user("eve", "x", admin=True)
                assert [topic async for topic in ann.topics()] == []
                assert (await ann.ping()).node == address

    run(test())


def test_first_user_must_be_an_administrator(tmp_path: Path) -> None:
    async def test() -> None:
        settings = Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0")
        async with Server(settings) as server, oncecast.connect(server.me) as client:
            with pytest.raises(InvalidArgument, match="administrator"):
                await client.access.add_user("ann", "tulip")
            assert await client.access.users() == []

    run(test())


def test_rules_allow_one_user_to_put_and_get(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            assert await root.access.allow("ann", "ack", "read", "put", topic="news.*")
            assert not await root.access.allow("ann", "put", topic="news.*")
            async with connect(address, ANN) as ann:
                inbox = await ann.subscribe("news.sport")
                await ann.put("news.sport", b"goal")
                message = await inbox.get(timeout=10)
                assert message is not None
                assert message.value == b"goal"
                with pytest.raises(Denied):
                    await ann.put("weather", b"rain")
                with pytest.raises(Denied):
                    await ann.subscribe("news.sport", "name of another")
            assert await root.access.disallow("ann", "put", topic="news.*")
            async with connect(address, ANN) as ann:
                with pytest.raises(Denied):
                    await ann.put("news.sport", b"again")

    run(test())


def test_reader_without_the_ack_right_can_read_but_not_acknowledge(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.allow("ann", "read", topic="news")
            async with connect(address, ANN) as ann:
                inbox = await ann.subscribe("news", auto_ack=False)
                await root.put("news", b"a")
                message = await inbox.get(timeout=10)
                assert message is not None
                inbox.ack(message)
                with pytest.raises(Denied):
                    await inbox.flush()

    run(test())


def test_reader_ends_when_its_rule_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.allow("ann", "read", "ack", topic="news")
            async with connect(address, ANN) as ann:
                inbox = await ann.subscribe("news", "ann")
                await root.access.disallow("ann", "read", topic="news")
                with pytest.raises(Denied):
                    await inbox.get(timeout=10)

    run(test())


def test_token_is_accepted_until_it_is_revoked(tmp_path: Path) -> None:
    """SEC-2: revoking a token closes its open connections."""

    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.allow("robot", "put", topic="news")
            token = await root.access.create_token("robot")
            id = token.partition(".")[0]
            assert await root.access.tokens() == [TokenInfo(id, "robot", None)]
            async with oncecast.connect(address, token=token, timeout=5.0) as robot:
                await robot.put("news", b"a")
                assert await root.access.revoke_token(token)
                assert not await root.access.revoke_token(id)
                with pytest.raises(NotAuthenticated):
                    await until_refused(robot)
            assert await root.access.tokens() == []

    run(test())


def test_removed_user_is_disconnected(tmp_path: Path) -> None:
    """SEC-2"""

    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.allow("ann", "put", topic="news")
            async with connect(address, {**ANN}) as ann:
                await ann.put("news", b"a")
                assert await root.access.remove_user("ann")
                with pytest.raises((NotAuthenticated, Denied)):
                    await until_refused(ann)
            with pytest.raises(NotAuthenticated):
                async with connect(address, ANN):
                    pass

    run(test())


async def until_refused(client: Client) -> None:
    while True:
        await client.put("news", b"b")
        await asyncio.sleep(0)


def test_expired_token_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            token = await root.access.create_token("robot", expires_after=0.001)
            (known,) = await root.access.tokens()
            assert known.expires is not None
            with pytest.raises(NotAuthenticated):
                async with oncecast.connect(address, token=token):
                    pass
            for wrong in (0, -1, float("nan")):
                with pytest.raises(InvalidArgument):
                    await root.access.create_token("robot", wrong)

    run(test())


def test_client_name_must_belong_to_the_user(tmp_path: Path) -> None:
    """SEC-2: no user can fence another user's client."""

    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            options: Any = ANN
            with pytest.raises((NotConnected, Refused), match="may not use"):
                async with oncecast.connect(address, name="root.worker", **options):
                    pass
            await root.access.allow("ann", name="job-*")
            for name in ("ann", "ann.1", "job-7"):
                async with oncecast.connect(address, name=name, **options) as ann:
                    assert ann.name == name

    run(test())


def test_only_the_new_password_works_after_a_change(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.add_user("ann", "rose")
            with pytest.raises(NotAuthenticated):
                async with connect(address, ANN):
                    pass
            async with connect(address, {"user": "ann", "password": "rose"}):
                pass
            assert await root.access.users() == ["root", "ann"]

    run(test())


def test_rule_for_everyone_admits_anonymous_clients(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (address, root):
            await root.access.allow("*", "read", "put", "ack", topic="public")
            async with oncecast.connect(address) as anyone:
                inbox = await anyone.subscribe("public")
                await anyone.put("public", b"x")
                assert await inbox.get(timeout=10) is not None
                with pytest.raises(Denied):
                    await anyone.put("private", b"x")

    run(test())


BAD: dict[str, Any] = {
    "unknown verb": lambda access: access.allow("ann", "fly", topic="t"),
    "no pattern": lambda access: access.allow("ann", "put"),
    "no verb": lambda access: access.allow("ann", topic="t"),
    "two patterns": lambda access: access.allow("ann", "put", topic="t", name="n"),
    "user name with a wildcard": lambda access: access.add_user("a*", "x"),
    "empty password": lambda access: access.add_user("a", ""),
}


@pytest.mark.parametrize("work", BAD.values(), ids=BAD)
def test_invalid_argument_is_rejected_before_it_is_sent(work: Any, tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (_, root):
            with pytest.raises(InvalidArgument):
                await work(root.access)

    run(test())


def test_users_and_rules_survive_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with secured(tmp_path) as (_, root):
            await root.access.allow("ann", "admin")
        settings = Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0")
        async with Server(settings) as server, connect(server.me, ANN) as ann:
            assert await ann.access.rules() == [
                Rule("root", ("admin",), "*"),
                Rule("ann", ("admin",), "*"),
            ]

    run(test())


def test_blocking_client_manages_access(tmp_path: Path) -> None:
    with oncecast.blocking.embedded(tmp_path / "node") as client:
        access = client.access
        access.allow("robot", "admin")
        token = access.create_token("robot")
        with pytest.raises(Denied):  # the client itself has no login
            access.users()
    with oncecast.blocking.embedded(tmp_path / "node", token=token) as robot:
        access = robot.access
        access.add_user("ann", "tulip")
        assert access.users() == ["ann"]
        assert access.allow("ann", "put", topic="t")
        assert access.rules()[-1] == Rule("ann", ("put",), "t")
        assert access.disallow("ann", topic="t")
        assert access.remove_user("ann")
        assert [each.principal for each in access.tokens()] == ["robot"]
        other = access.create_token("robot", 3600)
        assert access.revoke_token(other)
