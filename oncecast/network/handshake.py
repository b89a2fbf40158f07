"""Who talks to whom: the first frame of each side, and why it may be turned down.

dialler     Hello      what it speaks, which cluster, who it is, whom it means to reach
acceptor    Welcome    or Refusal, with a reason that names the remedy

A client dials in and is never dialled: its connection is used both ways. It brings its name as
`sender`, or nothing and is given one (SVC-8). `to` is then only what it dialled, of which nothing
counts but the name behind the address: that says which stack behind this door it wants.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.kernel.codec import Codec
from oncecast.kernel.errors import Absent, BadAddress, NetworkError, Refused
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import home, split

VERSION = 1  # of what frames say; the preamble has the version of how they are cut
PEER = "peer"  # the role of a node among nodes
CLIENT = "client"  # the role of who only uses them


class Hello(Value, tag="Hello"):
    version: int
    cluster: str
    role: str
    sender: str
    to: str
    life: int  # drawn at random at each start: tells two processes with one id apart


class Welcome(Value, tag="Welcome"):
    sender: str
    life: int
    you: str = ""  # the name by which a client goes from now on
    batch_bytes_max: int = 0  # that it may send; 0: nothing is said


class Refusal(Value, tag="Refusal"):
    reason: str
    passing: bool = False  # it may be worth to come again


GREETINGS = Codec((Hello, Welcome, Refusal))


@dataclass(frozen=True)
class Identity:
    me: NodeId
    cluster: str
    life: int

    def hello(self, to: NodeId) -> bytes:
        return GREETINGS.encode(Hello(VERSION, self.cluster, PEER, self.me, to, self.life))

    def welcome(self, you: str = "", batch_bytes_max: int = 0) -> bytes:
        return GREETINGS.encode(Welcome(self.me, self.life, you, batch_bytes_max))

    def check_speech(self, hello: Hello) -> None:
        """What holds for every role."""
        who = hello.sender or "a client"  # it may bring no name
        if hello.version != VERSION:
            raise Refused(
                f"{who} speaks version {hello.version}, {self.me} version {VERSION}: "
                "upgrade the older of the two"
            )
        if hello.cluster != self.cluster:
            raise Refused(
                f"{who} belongs to cluster {hello.cluster!r}, {self.me} to "
                f"{self.cluster!r}: correct the address or the cluster's name"
            )

    def check_peer(self, hello: Hello) -> None:
        """What holds among nodes."""
        mine = home(self.me)  # and all behind my door's, who do not dial each other
        if home(NodeId(hello.sender)) == mine and hello.life == self.life:
            raise Refused(
                f"{mine} has dialled itself as {hello.to}: drop its own address from its peers"
            )
        if home(NodeId(hello.sender)) == mine:
            raise Refused(f"two nodes have the id {mine}: give each an address of its own")
        if hello.to != self.me:
            raise Refused(
                f"{hello.sender} wants {hello.to}, but this is {self.me}: write a node's address "
                "the same way everywhere, and correct it where it has changed"
            )
        try:
            split(hello.sender)
        except BadAddress as error:
            raise Refused(str(error)) from None


def answer(greeting: Value, expected: NodeId) -> Welcome:
    """What came back to our Hello."""
    match greeting:
        case Welcome() if greeting.sender == expected:
            return greeting
        case Welcome():
            raise Refused(f"{greeting.sender} answers where {expected} was dialled")
        case Refusal():
            raise turned_down(greeting)
        case _:
            raise Refused(f"{expected} answers a Hello with a Hello: it is no oncecast node")


def turned_down(refusal: Refusal) -> NetworkError:
    return Absent(refusal.reason) if refusal.passing else Refused(refusal.reason)
