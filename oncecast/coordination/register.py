"""How processes find each other through a running cluster: they sign in a topic of it.

The topic is in one order for all, so all agree who came first: the founders are the acceptors. Who
leaves signs out. When all have, the next one begins the group anew; a crash signs nobody out, so
that nobody takes those for gone who may still hold a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from oncecast.client.client import EARLIEST, Client
from oncecast.coordination.errors import NotReached
from oncecast.kernel.protocol import NodeId, Value
from oncecast.pubsub.retention import Policy

PEERS_MAX = 16  # of those who signed in, the last: who is up among them knows the rest
PAUSE = 0.05
LEAVE_WITHIN = 2.0
PATIENCE = 30.0  # for the founders to sign in


class Here(Value):
    member: NodeId


class Gone(Value):
    member: NodeId


class Signed(NamedTuple):
    """Who is to be asked, and who decides."""

    founders: tuple[NodeId, ...]
    present: tuple[NodeId, ...]


def signed(entries: Iterable[Here | Gone], founders: int) -> Signed:
    first: list[NodeId] = []
    present: dict[NodeId, None] = {}
    for entry in entries:
        if isinstance(entry, Gone):
            present.pop(entry.member, None)
            continue
        if not present:
            first = []
        present.pop(entry.member, None)  # it goes to the end: it has come just now
        present[entry.member] = None
        if entry.member not in first and len(first) < founders:
            first.append(entry.member)
    return Signed(tuple(first), tuple(present))


class Register:
    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._topic = f"members/{group or 'default'}"

    async def sign_in(self, me: NodeId, founders: int) -> Signed:
        """Waits until there are so many founders. Raises NotReached."""
        await self._client.create_topic(self._topic, Policy(keep_all=True))
        await self._sign(Here(me))
        found = signed(await self.entries(), founders)
        try:
            async with asyncio.timeout(PATIENCE):
                while len(found.founders) < founders:
                    await asyncio.sleep(PAUSE)
                    found = signed(await self.entries(), founders)
        except TimeoutError:
            raise NotReached(founders, found.founders) from None
        return found

    async def sign_out(self, me: NodeId) -> None:
        await self._sign(Gone(me), LEAVE_WITHIN)

    async def _sign(self, entry: Here | Gone, within: float | None = None) -> None:
        await self._client.put(self._topic, msgspec.json.encode(entry), timeout=within)

    async def entries(self) -> list[Here | Gone]:
        entries: list[Here | Gone] = []
        decoder = msgspec.json.Decoder(Here | Gone)
        async for part in self._client.scan(self._topic, EARLIEST):
            for message in part.messages():
                try:
                    entries.append(decoder.decode(message.value))
                except msgspec.MsgspecError:
                    continue  # somebody else's
        return entries
