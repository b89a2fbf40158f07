"""Test client logins, one message at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.handshake import CLIENT, Challenge, Proof, Refusal, Welcome
from oncecast.security.scram import ClientExchange
from tests.network.raw import Raw, hello
from tests.network.talk import drive
from tests.network.test_clients import Host
from tests.network.users import TOKEN, Users


def host(users: Users, **options: Any) -> Host:
    return Host(logins=users, **options)


async def greeted(host: Host, name: str = "", **credentials: str) -> tuple[Raw, Value]:
    raw = await Raw.dial(host.port)
    raw.greet(msgspec.structs.replace(hello(host.me, name, role=CLIENT), **credentials))
    return raw, await raw.greeting()


async def answered(host: Host, name: str = "", **credentials: str) -> Value:
    raw, answer = await greeted(host, name, **credentials)
    raw.close()
    return answer


async def logged_in(host: Host, user: str, password: str, name: str = "") -> Value:
    """Return the last greeting of the node. If it is a Welcome, check its proof."""
    exchange = ClientExchange(user, password, "a nonce of a client")
    raw, challenge = await greeted(host, name, login=exchange.first())
    if isinstance(challenge, Challenge):
        raw.proceed(Proof(exchange.final(challenge.login)))
        challenge = await raw.greeting()
    raw.close()
    if isinstance(challenge, Welcome):
        exchange.verify(challenge.login)
    return challenge


def test_client_with_a_password_logs_in_as_its_principal() -> None:
    """SEC-2"""

    async def test() -> None:
        users = Users()
        async with host(users) as node:
            exchange = ClientExchange("ann", "tulip", "a nonce of a client")
            raw, challenge = await greeted(node, "ann-1", login=exchange.first())
            assert isinstance(challenge, Challenge)
            raw.proceed(Proof(exchange.final(challenge.login)))
            welcome = await raw.greeting()
            assert isinstance(welcome, Welcome)
            exchange.verify(welcome.login)
            assert node.principal_of(NodeId("client/ann-1")) == "ann"
            assert node.principal_of(NodeId("client/ghost")) == ""
            (attempt,) = users.attempts
            expected = ("password", "ann", "ann-1", "")
            assert msgspec.structs.astuple(attempt)[1:] == expected
            raw.close()

    drive(test())


def test_client_with_a_token_logs_in_as_its_principal_under_a_generated_name() -> None:
    """SEC-2"""

    async def test() -> None:
        users = Users()
        async with host(users) as node:
            raw, welcome = await greeted(node, token=TOKEN)
            assert isinstance(welcome, Welcome)
            assert welcome.you.startswith("ann.")
            assert node.principal_of(NodeId(f"client/{welcome.you}")) == "ann"
            assert users.attempts[0].how == "token"
            raw.close()

    drive(test())


def test_unknown_user_wrong_password_and_invalid_token_get_the_same_answer() -> None:
    """SEC-2"""

    async def test() -> None:
        users = Users()
        async with host(users) as node:
            answers = [
                await logged_in(node, "ann", "Tulip"),
                await logged_in(node, "ghost", "tulip"),
                await answered(node, token="guess"),
            ]
            assert answers[0] == answers[1] == answers[2]
            assert isinstance(answers[0], Refusal)
            assert answers[0].code == "not-authenticated"
            assert [each.principal for each in users.attempts] == ["ann", "ghost", ""]
            assert all(each.refusal for each in users.attempts)
            assert not node.principal_of(NodeId("client/ann"))

    drive(test())


def test_anonymous_client_is_refused_if_a_login_is_required() -> None:
    """SEC-2"""

    async def test() -> None:
        async with host(Users()) as node:
            refusal = await answered(node)
            assert isinstance(refusal, Refusal)
            assert "requires a login; provide a user and password" in refusal.reason

    drive(test())


def test_anonymous_client_is_accepted_if_no_login_is_required() -> None:
    async def test() -> None:
        users = Users(required=False)
        async with host(users) as node:
            raw, welcome = await greeted(node, "bob")
            assert isinstance(welcome, Welcome)
            assert node.principal_of(NodeId("client/bob")) == ""
            assert users.attempts == []
            raw.close()

    drive(test())


def test_client_name_belonging_to_another_principal_is_refused() -> None:
    """SEC-2: a client cannot disconnect clients of other principals."""

    async def test() -> None:
        users = Users()
        async with host(users) as node:
            refused = await logged_in(node, "ann", "tulip", "bob")
            assert isinstance(refused, Refusal)
            assert "ann may not use the client name 'bob'" in refused.reason
            assert "starts with ann." in refused.reason

    drive(test())


def test_node_without_users_refuses_every_login() -> None:
    """A client with a password never talks to a node that cannot check it."""

    async def test() -> None:
        async with Host() as node:
            for answer in (
                await logged_in(node, "ann", "tulip"),
                await answered(node, token=TOKEN),
            ):
                assert isinstance(answer, Refusal)
                assert answer.code == "not-authenticated"

    drive(test())


@pytest.mark.parametrize("answer", [Refusal("no"), Welcome("127.0.0.1:1", 1), hello(NodeId("x"))])
def test_wrong_answer_to_a_challenge_closes_the_connection(answer: Value) -> None:
    async def test() -> None:
        async with host(Users()) as node:
            exchange = ClientExchange("ann", "tulip", "a nonce of a client")
            raw, _ = await greeted(node, login=exchange.first())
            raw.proceed(answer)
            await raw.closed()
            assert node.stats.hostile == 1

    drive(test())


def test_unfinished_login_is_closed_after_the_handshake_timeout() -> None:
    async def test() -> None:
        async with host(Users(), handshake_timeout=0.2) as node:
            exchange = ClientExchange("ann", "tulip", "a nonce of a client")
            raw, _ = await greeted(node, login=exchange.first())
            await raw.closed()
            assert node.stats.overdue == 1

    drive(test())


def test_administrator_acts_for_a_user() -> None:
    """SEC-2: the client has the user's permissions and names, and the node audits its name."""

    async def test() -> None:
        users = Users(required=False)
        async with host(users) as node:
            raw, welcome = await greeted(node, token=TOKEN, acts_for="bob")
            assert isinstance(welcome, Welcome)
            assert welcome.principal == "bob"
            assert welcome.you.startswith("bob.")
            assert node.principal_of(NodeId(f"client/{welcome.you}")) == "bob"
            assert users.attempts[-1].principal == "bob"
            raw.close()

    drive(test())


@pytest.mark.parametrize(("token", "user"), [(TOKEN, "carl"), ("", "bob")])
def test_client_without_the_right_cannot_act_for_a_user(token: str, user: str) -> None:
    """SEC-2: neither for an unknown user, nor without the right to do so."""

    async def test() -> None:
        users = Users(required=False)
        async with host(users) as node:
            refusal = await answered(node, token=token, acts_for=user)
            assert isinstance(refusal, Refusal)
            assert f"may not act for '{user}'" in refusal.reason
            assert users.attempts[-1].refusal

    drive(test())


@pytest.mark.parametrize("removed", ["ann", "bob"])
def test_acting_client_is_disconnected_with_its_agent_and_with_its_user(removed: str) -> None:
    """SEC-2"""

    async def test() -> None:
        users = Users(required=False)
        async with host(users) as node:
            raw, welcome = await greeted(node, token=TOKEN, acts_for="bob")
            assert isinstance(welcome, Welcome)
            users.removed.append(removed)
            await raw.closed()
            assert not node.principal_of(NodeId(f"client/{welcome.you}"))

    drive(test())
