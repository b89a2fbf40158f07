"""Peers prove with a secret or a certificate that they belong to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from cryptography import x509

from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.handshake import (
    CLIENT,
    Challenge,
    Hello,
    Proof,
    Refusal,
    Welcome,
    meeting_of,
)
from oncecast.network.tls import Tls
from oncecast.security.meeting import ACCEPTOR, DIALLER
from oncecast.security.secret import ClusterSecret
from tests.network.authority import CLIENT as CLIENT_AUTH
from tests.network.authority import SERVER as SERVER_AUTH
from tests.network.authority import Authority, Files
from tests.network.raw import Raw, RawPeer, hello
from tests.network.talk import LOOPS, Gone, Heard, Keep, Node, Tell, drive, reserve
from tests.network.test_clients import Host
from tests.network.users import Users
from tests.security.test_certificates import LOOPBACK

SECRET, OTHER = ClusterSecret(b"0123456789abcdef"), ClusterSecret(b"0123456789abcdeg")
NONCE = b"n" * 32

every_loop = pytest.mark.parametrize("loop", LOOPS)


def exposed(**options: Any) -> Node:
    """Return a node that other machines can reach."""
    return Node(reserve("0.0.0.0"), **options)


@asynccontextmanager
async def attacker(node: Node | Host, **fields: Any) -> AsyncIterator[tuple[Raw, Hello, Value]]:
    """Yield a connection, its Hello and the node's answer."""
    raw = await Raw.dial(node.port)
    said = msgspec.structs.replace(hello(node.me), **fields)
    raw.greet(said)
    try:
        yield raw, said, await raw.greeting()
    finally:
        raw.close()


# The cluster secret


def test_publicly_reachable_node_rejects_unknown_peers() -> None:
    """SEC-1"""

    async def test() -> None:
        async with exposed(insecure=True) as node, attacker(node) as (_, _, answer):
            assert isinstance(answer, Refusal)
            assert "neither a cluster secret nor TLS with a CA" in answer.reason
            assert "set cluster_secret_file" in answer.reason

    drive(test())


def test_both_sides_log_that_the_cluster_secret_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SEC-1"""
    caplog.set_level("INFO")

    async def test() -> None:
        async with exposed(insecure=True) as a, exposed(insecure=True) as b:
            a.request(Keep(b.me))
            assert await a.event() == Gone(b.me)
            assert (a.stats.refused, b.stats.refused) == (1, 1)

    drive(test())
    assert caplog.text.count("refuses all nodes, because other machines can reach it") == 2


@every_loop
def test_nodes_with_the_same_secret_can_communicate(loop: str) -> None:
    """SEC-1"""

    async def test() -> None:
        options = {"insecure": True, "secret": SECRET}
        async with exposed(**options) as a, exposed(**options) as b:
            for one, other in ((a, b), (b, a)):
                one.request(Tell(other.me, b"hi"))
                assert await other.event() == Heard(one.me, b"hi")

    drive(test(), loop)


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [(None, "requires the cluster secret"), (OTHER, "different cluster secret")],
)
def test_node_with_a_different_or_no_secret_is_refused(
    theirs: ClusterSecret | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-1"""
    caplog.set_level("INFO")

    async def test() -> None:
        async with Node(secret=SECRET) as a, Node(secret=theirs) as b:
            for one, other in ((a, b), (b, a)):
                one.request(Keep(other.me))
                assert await one.event() == Gone(other.me)

    drive(test())
    assert "different cluster secret" in caplog.text or "has no cluster secret" in caplog.text
    assert "did not prove" in caplog.text or theirs is OTHER


@pytest.mark.parametrize("proof", [b"", b"x" * 32, "of the other secret", "of the acceptor"])
def test_wrong_proof_is_refused(proof: bytes | str) -> None:
    """SEC-1"""

    async def test() -> None:
        async with (
            Node(secret=SECRET) as node,
            attacker(node, nonce=NONCE) as (raw, said, challenge),
        ):
            assert isinstance(challenge, Challenge)
            meeting = meeting_of(said, challenge.nonce)
            proofs = {
                "of the other secret": OTHER.proof(DIALLER, meeting),
                "of the acceptor": SECRET.proof(ACCEPTOR, meeting),
            }
            raw.proceed(Proof(mac=proof if isinstance(proof, bytes) else proofs[proof]))
            answer = await raw.greeting()
            assert isinstance(answer, Refusal)
            assert "different cluster secret" in answer.reason

    drive(test())


def test_proof_from_an_earlier_connection_is_refused() -> None:
    """SEC-1"""

    async def test() -> None:
        async with Node(secret=SECRET) as node:
            async with attacker(node, nonce=NONCE) as (raw, said, challenge):
                assert isinstance(challenge, Challenge)
                recorded = Proof(mac=SECRET.proof(DIALLER, meeting_of(said, challenge.nonce)))
                raw.proceed(recorded)
                assert isinstance(await raw.greeting(), Welcome)
            async with attacker(node, nonce=NONCE) as (raw, _, _):
                raw.proceed(recorded)
                assert isinstance(await raw.greeting(), Refusal)

    drive(test())


def test_node_refuses_a_proof_that_it_computed_itself() -> None:
    """SEC-1: an attacker makes a node compute a proof, and sends it back to the same node."""

    async def test() -> None:
        async with RawPeer() as pose, Node(secret=SECRET) as node:
            node.request(Keep(pose.id))
            dialled = await pose.accepted.get()
            said = await dialled.greeting()
            assert isinstance(said, Hello)
            async with attacker(node, sender=pose.id, nonce=said.nonce) as (raw, _, challenge):
                assert isinstance(challenge, Challenge)
                dialled.greet(challenge)
                proof = await dialled.greeting()
                assert isinstance(proof, Proof)
                raw.proceed(proof)
                assert isinstance(await raw.greeting(), Refusal)

    drive(test())


@pytest.mark.parametrize("answer", ["without challenge", "without proof", "reflected"])
def test_acceptor_without_the_secret_gets_no_messages(answer: str) -> None:
    """SEC-1: a process that takes over a node's address is not trusted."""

    async def test() -> None:
        async with RawPeer() as pose, Node(secret=SECRET) as node:
            node.request(Keep(pose.id))
            raw = await pose.accepted.get()
            said = await raw.greeting()
            assert isinstance(said, Hello)
            mac = b""
            if answer == "without challenge":
                raw.greet(Welcome(pose.id, 1))
            else:
                raw.greet(Challenge(nonce=b"a" * 32))
                proof = await raw.greeting()
                assert isinstance(proof, Proof)
                mac = proof.mac if answer == "reflected" else b""
                raw.proceed(Welcome(pose.id, 1, mac=mac))
            assert await node.event() == Gone(pose.id)
            assert node.stats.refused == 1

    drive(test())


def test_client_cannot_use_a_proof_for_the_peer_role() -> None:
    async def test() -> None:
        async with Host(secret=SECRET, logins=Users()) as node:
            said = msgspec.structs.replace(hello(node.me, "", role=CLIENT), nonce=NONCE)
            raw = await Raw.dial(node.port)
            raw.greet(said)
            challenge = await raw.greeting()
            assert isinstance(challenge, Challenge)
            meeting = meeting_of(said, challenge.nonce)
            other = msgspec.structs.replace(meeting, role="peer")
            raw.proceed(Proof(mac=SECRET.proof(DIALLER, other)))
            assert isinstance(await raw.greeting(), Refusal)
            raw.close()

    drive(test())


def test_node_connects_as_a_client_with_its_secret() -> None:
    """SEC-1: before it joins, a node asks other nodes whether they form a ring."""

    async def test() -> None:
        async with Host(secret=SECRET, logins=Users()) as node:
            said = msgspec.structs.replace(hello(node.me, "", role=CLIENT), nonce=NONCE)
            raw = await Raw.dial(node.port)
            raw.greet(said)
            challenge = await raw.greeting()
            assert isinstance(challenge, Challenge)
            meeting = meeting_of(said, challenge.nonce)
            raw.proceed(Proof(mac=SECRET.proof(DIALLER, meeting)))
            welcome = await raw.greeting()
            assert isinstance(welcome, Welcome)
            assert SECRET.proves(welcome.mac, ACCEPTOR, meeting)
            assert node.principal_of(NodeId(f"client/{welcome.you}")) == "oncecast:node"
            raw.close()

    drive(test())


# Certificates


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node_tls(authority: Authority) -> Tls:
    return authority.node().tls()


def kinds(authority: Authority) -> dict[str, Files]:
    node, address = "oncecast:node", x509.DNSName("127.0.0.1")
    return {
        "client": authority.client("ann"),
        "host without URI": authority.special(LOOPBACK),
        "client with host": authority.special(LOOPBACK, "oncecast:client:ann"),
        "host as email": authority.special(node, x509.RFC822Name("127.0.0.1")),
        "host as URI": authority.special(node, "127.0.0.1"),
        "host as DNS": authority.special(node, address),
        "clientAuth only": authority.special(node, LOOPBACK, uses=[CLIENT_AUTH]),
    }


@every_loop
@pytest.mark.parametrize(
    "kind",
    [
        "client",
        "host without URI",
        "client with host",
        "host as email",
        "host as URI",
        "host as DNS",
        "clientAuth only",
    ],
)
def test_peer_without_a_node_certificate_is_refused(
    kind: str, loop: str, authority: Authority, node_tls: Tls
) -> None:
    """SEC-1"""
    tls = kinds(authority)[kind].tls()

    async def test() -> None:
        async with Node(tls=node_tls) as node, Node(tls=tls) as pose:
            pose.request(Keep(node.me))
            assert await pose.event() == Gone(node.me)
            assert node.stats.refused == 1

    drive(test(), loop)


def test_node_sends_no_messages_to_an_acceptor_without_a_node_certificate(
    authority: Authority, node_tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-1"""
    caplog.set_level("INFO")
    tls = authority.special(LOOPBACK, uses=[SERVER_AUTH]).tls()

    async def test() -> None:
        async with Node(tls=node_tls) as node, Node(tls=tls) as pose:
            node.request(Keep(pose.me))
            assert await node.event() == Gone(pose.me)

    drive(test())
    assert ", not for a node" in caplog.text


def test_certificate_and_secret_are_both_needed_if_both_are_set(
    node_tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-1"""

    async def test() -> None:
        both: dict[str, Any] = {"tls": node_tls, "secret": SECRET}
        async with Node(**both) as a, Node(**both) as b, Node(tls=node_tls) as half:
            a.request(Tell(b.me, b"hi"))
            assert await b.event() == Heard(a.me, b"hi")
            half.request(Keep(a.me))
            assert await half.event() == Gone(a.me)

    drive(test())
    assert "has no cluster secret" in caplog.text


def test_secret_identifies_nodes_if_tls_does_not_request_certificates(authority: Authority) -> None:
    """SEC-1: server certificates alone do not distinguish nodes from clients."""

    async def test() -> None:
        files = authority.node()
        alone = Tls.from_files(certificate=files.certificate, key=files.key)
        assert not alone.identifies
        known = Tls(alone.server, files.tls().client)
        async with exposed(tls=known) as a, exposed(tls=known) as b:
            a.request(Keep(b.me))
            assert await a.event() == Gone(b.me)
            assert b.stats.refused == 1
        async with exposed(tls=known, secret=SECRET) as a, exposed(tls=known, secret=SECRET) as b:
            a.request(Tell(b.me, b"hi"))
            assert await b.event() == Heard(a.me, b"hi")

    drive(test())


def test_timed_out_handshake_leaves_no_task_behind() -> None:
    async def test() -> None:
        async with Node(secret=SECRET, handshake_timeout=0.2) as node:
            async with attacker(node, nonce=NONCE) as (raw, _, _):
                await raw.closed()
            assert node.stats.overdue == 1
            assert not [each for each in asyncio.all_tasks() if "_receive" in str(each)]

    drive(test())
