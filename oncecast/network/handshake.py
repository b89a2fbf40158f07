"""The handshake: the first frames from each side.

dialler     Hello       protocol version, cluster, role, own id, id of the node to reach, login
acceptor    Challenge   only if the dialler must prove something
dialler     Proof
acceptor    Welcome     with the acceptor's own proof; or a Refusal at any time, with a remedy

| dialler | Hello has | Challenge, Proof and Welcome have | principal |
|---|---|---|---|
| a client without a login | | no Challenge | of its certificate, or anonymous |
| a client with a token | `token` | no Challenge | of the token |
| a client with user and password | `login` | `login`: the SCRAM-SHA-256 messages | the user |
| a node that asks before it joins | `node`, `nonce` | as a peer | `oncecast:node` |
| a node with the cluster secret, as a client | `nonce` | `nonce`, then `mac`s | `oncecast:node` |
| a peer with the cluster secret | `nonce` | `nonce`, then `mac`s | `oncecast:node` |
| a peer without it | | no Challenge | `oncecast:node` |

A client that logs in as an administrator or as a node may act for a user, named in `acts_for`. The
front end for Kafka clients does so, after the user has logged in. The Welcome has the principal,
because an older node ignores `acts_for`.

With TLS and a CA, each side of a peer connection also needs a node certificate. A node that listens
beyond loopback accepts no peer that has neither a secret nor a certificate. A node that asks before
it joins connects as a client but is checked as a peer. It learns nothing from nodes that would
refuse it later. A side that expects a proof and gets none ends the handshake. For example, a
dialler with a password or a secret rejects a Welcome without a Challenge.

A client sends its name as `sender`, or "" to have one assigned (SVC-8). Its `to` is the address
that it dialled. Only the node name after the slash counts.
"""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from oncecast.errors import Absent, BadAddress, NetworkError, NotAuthenticated, Refused
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import process_of, split
from oncecast.security.meeting import ACCEPTOR, DIALLER, Meeting

if TYPE_CHECKING:
    from oncecast.security.secret import ClusterSecret

VERSION = 1  # version of the frame contents; the preamble has the version of the frame format
PEER = "peer"  # the role of another node
CLIENT = "client"  # the role of a client

# Sends a greeting and returns the peer's next greeting.
Ask = Callable[[Value], Awaitable[Value]]


class Hello(Value, tag="Hello"):
    version: int
    cluster: str
    role: str
    sender: str
    to: str
    incarnation: int  # random at each start; distinguishes processes with the same id
    token: str = ""  # a client's login token
    login: str = ""  # SCRAM client-first message
    nonce: bytes = b""  # from a node that knows the cluster secret
    node: str = ""  # address of a node that asks as a client before it joins
    acts_for: str = ""  # the user that the client acts for, if not itself


class Challenge(Value, tag="Challenge"):
    login: str = ""  # SCRAM server-first message
    nonce: bytes = b""


class Proof(Value, tag="Proof"):
    login: str = ""  # SCRAM client-final message
    mac: bytes = b""  # the dialler's proof


class Welcome(Value, tag="Welcome"):
    sender: str
    incarnation: int
    you: str = ""  # the client's name
    batch_bytes_max: int = 0  # limit for the client's batches, or 0 if unknown
    login: str = ""  # SCRAM server-final message
    mac: bytes = b""  # the acceptor's proof
    principal: str = ""  # of the client


class Refusal(Value, tag="Refusal"):
    reason: str
    passing: bool = False  # whether a retry may succeed
    code: str = ""  # the error code; empty for a plain Refused


GREETINGS = Codec((Hello, Challenge, Proof, Welcome, Refusal))


class Identity(msgspec.Struct, frozen=True):
    me: NodeId
    cluster: str
    incarnation: int

    def hello(self, to: NodeId, nonce: bytes = b"") -> Hello:
        return Hello(VERSION, self.cluster, PEER, self.me, to, self.incarnation, nonce=nonce)

    def welcome(
        self,
        you: str = "",
        batch_bytes_max: int = 0,
        *,
        login: str = "",
        mac: bytes = b"",
        principal: str = "",
    ) -> bytes:
        return GREETINGS.encode(
            Welcome(self.me, self.incarnation, you, batch_bytes_max, login, mac, principal)
        )

    def check_speech(self, hello: Hello) -> None:
        """Raise Refused if the version or the cluster differs. This applies to every role."""
        sender = hello.sender or "a client"
        if hello.version != VERSION:
            raise Refused(
                f"{sender} uses protocol version {hello.version}, but {self.me} uses {VERSION}",
                "upgrade the older of the two",
            )
        if hello.cluster != self.cluster:
            raise Refused(
                f"{sender} belongs to cluster {hello.cluster!r}, but {self.me} to {self.cluster!r}",
                "correct the address or the cluster name",
            )

    def check_peer(self, hello: Hello) -> None:
        """Raise Refused if the two nodes' ids do not match the connection."""
        mine = process_of(self.me)  # nodes in one process do not dial each other
        if process_of(NodeId(hello.sender)) == mine and hello.incarnation == self.incarnation:
            raise Refused(
                f"{mine} has dialled itself as {hello.to}", "remove this address from its own peers"
            )
        if process_of(NodeId(hello.sender)) == mine:
            raise Refused(f"two nodes have the id {mine}", "give each node its own address")
        if hello.to != self.me:
            raise Refused(
                f"{hello.sender} dialled {hello.to}, but this is {self.me}",
                "spell each node's address the same way everywhere",
            )
        try:
            split(hello.sender)
        except BadAddress as error:
            raise Refused(error.message, error.remedy) from None


def answer(greeting: Value, expected: NodeId) -> Welcome:
    """Return the Welcome to our Hello, or raise Refused or Absent."""
    match greeting:
        case Welcome() if greeting.sender == expected:
            return greeting
        case Welcome():
            raise Refused(
                f"this node dialled {expected}, but {greeting.sender} answered",
                "correct the address",
            )
        case Refusal():
            raise turned_down(greeting)
        case _:
            raise Refused(
                f"{expected} answered with a {type(greeting).__name__} instead of a Welcome, so it "
                "is not a node",
                "correct the address",
            )


def meeting_of(hello: Hello, nonce: bytes) -> Meeting:
    """Return the values that both proofs cover. `nonce` is the acceptor's nonce."""
    return Meeting(hello.role, hello.cluster, hello.sender, hello.to, hello.nonce, nonce)


async def introduce(hello: Hello, secret: "ClusterSecret | None", ask: Ask) -> Value:
    """Send a Hello, prove the secret if there is one, and return the acceptor's last greeting."""
    answer = await ask(hello)
    if secret is None and isinstance(answer, Challenge):
        raise Refused(
            f"{hello.to} requires the cluster secret",
            "set cluster_secret_file to a copy of its secret",
        )
    if secret is not None and isinstance(answer, Challenge):
        meeting = meeting_of(hello, answer.nonce)
        answer = await ask(Proof(mac=secret.proof(DIALLER, meeting)))
        if isinstance(answer, Welcome) and secret.proves(answer.mac, ACCEPTOR, meeting):
            return answer
    if secret is not None and isinstance(answer, Welcome):
        raise Refused(
            f"{hello.to} did not prove that it knows the cluster secret",
            "copy this node's cluster_secret_file to that node",
        )
    return answer


def refusal(refused: NetworkError) -> Refusal:
    """Return the Refusal that reports this error to the dialler."""
    code = refused.code if isinstance(refused, NotAuthenticated) else ""
    return Refusal(str(refused), isinstance(refused, Absent), code)


def turned_down(refusal: Refusal) -> NetworkError:
    """Return the error that a Refusal reports."""
    if refusal.passing:
        return Absent(refusal.reason)
    if refusal.code != NotAuthenticated.code:
        return Refused(refusal.reason)
    failed = NotAuthenticated(refusal.reason)
    failed.remedy = ""  # the reason already contains the remedy
    return failed
