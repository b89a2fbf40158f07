"""SEC-1: a process that impersonates a node on loopback cannot harm a running group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random

from oncecast import blocking
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.network.network import Runtime
from oncecast.replication import messages as m
from oncecast.replication.ballot import Ballot
from oncecast.replication.quorum import Config, Member, encode_config
from tests.live.replicas import replicas
from tests.network.talk import port_of, reserve

PATIENCE = 20.0


class Forge(Value):
    """Request: send these messages to a node, followed by an Offer that it answers."""

    to: NodeId
    messages: tuple[m.Message, ...]


class Answered(Value):
    """Event: the node has answered the Offer."""


class Forger(Protocol):
    name = "forger"
    Request = Forge
    Message = m.Message

    def request(self, request: Forge) -> None:
        for message in (*request.messages, m.Offer(9, 2**64 - 1)):
            self.send(request.to, message)

    def receive(self, sender: NodeId, message: m.Message) -> None:
        if isinstance(message, m.Guide):
            self.emit(Answered())


def forged(me: NodeId, nodes: Sequence[str]) -> tuple[m.Message, ...]:
    """Return forged messages that would stop nodes, delete topics or take over a majority."""
    ours = Config(9, (Member(me, 9),), -1)
    items = (m.Item(m.CONFIG, encode_config(ours)), m.Item(m.COMMAND, b"\xff"))
    return tuple(
        message
        for ballot in (Ballot(2**64 - 1, me), Ballot(7, me))
        for group in (0, 1)
        for message in (
            m.Beat(ballot, 2**64 - 1, 1.0, group),
            m.Prepare(ballot, 1, group),
            m.Accept(ballot, 1, items, 2, group),
            m.Accepted(ballot, 1, 9, 1),
            m.Release(ballot, NodeId(nodes[0])),
            m.Reject(ballot),
            m.Chosen(1, items, 2**63),
            m.Ahead(2**62, 1, 1, ours, 1),
            m.Sum(1, 1, b"forged"),
            m.Want(1, 2**63, group),
            m.Recall(1, group),
            m.Attest(me),
        )
    )


async def attack(nodes: Sequence[str]) -> None:
    """Send forged messages to all nodes, and wait until each has answered the last one."""
    socket = reserve()
    me = NodeId(f"127.0.0.1:{port_of(socket)}")
    answered = asyncio.Semaphore(0)
    stack = Stack([Forger(me, Random(1))])
    async with Runtime(stack, me=me, listen=socket, on_event=lambda _: answered.release()) as run:
        for node in nodes:
            run.request(Forge(NodeId(node), forged(me, nodes)))
        async with asyncio.timeout(PATIENCE):
            for _ in nodes:
                await answered.acquire()


def test_group_serves_clients_after_forged_messages(tmp_path: Path) -> None:
    with replicas(tmp_path, 3) as group:
        leader = group.settled()
        with blocking.connect(group.server) as client:
            client.subscribe("orders", "reader")
            client.put("orders", b"before")
            for _ in range(3):
                asyncio.run(attack(group.addresses))
                client.put("orders", b"after")
        assert group.settled().address == leader.address


def test_lone_node_serves_clients_after_forged_messages(tmp_path: Path) -> None:
    with replicas(tmp_path, 1) as group, blocking.connect(group.server) as client:
        client.subscribe("orders", "reader")
        for _ in range(3):
            asyncio.run(attack(group.addresses))
            client.put("orders", b"after")
