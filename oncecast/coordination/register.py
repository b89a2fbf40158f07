"""How processes find each other through a running cluster: they sign in a topic of it.

The topic has one order for all, so all agree who came first: these founders are the acceptors. A
process that leaves signs out. When no process is left, the next one begins the group again.

A process that crashes does not sign out, and may still hold a lock if it is only silent. So its
entry is removed only by a process on the same network of the same machine whose connection is
refused: that proves that the process has ended. Elsewhere, a founder that crashed stays, and any
other process is removed an hour after it signed in, if it cannot be reached.

The topic is kept short: a subscription of its own says which entries are still needed, and moves
on when a process signs in or out. Entries that many processes have left behind are replaced by a
`Roll`, which has the same effect.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from oncecast.client.client import EARLIEST, Client, from_offset
from oncecast.errors import BadAddress, MessagesLost, NotReached, OncecastError
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import split
from oncecast.wire.retention import Policy

PEERS_MAX = 16  # of those who signed in, the last: who is up among them knows the rest
FOUNDERS_MAX = 64
PAUSE = 0.05
LEAVE_WITHIN = 2.0
PATIENCE = 30.0  # for the founders to sign in
SLACK = 16  # entries that are not needed, before a Roll replaces them
PROBE_WITHIN = 0.5  # seconds for a connection to a process that may have ended
PROBES_MAX = 256  # processes that one sign-in looks for
EXPIRE = 3600.0  # seconds after which a process that cannot be reached is removed
KEEPER = "register"  # the subscription that keeps the entries


class Here(Value, tag="Here"):
    member: NodeId
    life: str = ""  # random: tells a process from an earlier one with the same address
    place: str = ""  # where a refused connection proves that the process has ended


class Gone(Value, tag="Gone"):
    member: NodeId
    life: str = ""  # empty: any


class Present(Value, tag="Present"):
    """A process that has signed in, and when: in microseconds since 1970."""

    member: NodeId
    life: str
    place: str
    time: int


class Roll(Value, tag="Roll"):
    """The effect of all entries up to offset `upto`."""

    upto: int
    first: tuple[NodeId, ...]
    present: tuple[Present, ...]


class Entry(NamedTuple):
    offset: int
    time: int
    what: Here | Gone | Roll


class Signed(NamedTuple):
    """Who is to be asked, and who decides."""

    founders: tuple[NodeId, ...]
    present: tuple[NodeId, ...]


class Members:
    """The effect of the entries."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.first: list[NodeId] = []  # to sign in since no process was present
        self.present: dict[NodeId, Present] = {}  # the last to sign in comes last
        self.empty_at = -1  # the last offset after which no process was present
        entries = list(entries)
        rolls = [each.what for each in entries if isinstance(each.what, Roll)]
        upto = -1
        if rolls:
            roll = max(rolls, key=lambda each: each.upto)
            upto, self.first = roll.upto, list(roll.first)
            self.present = {each.member: each for each in roll.present}
        for entry in entries:
            if entry.offset > upto:
                self._take(entry)

    def _take(self, entry: Entry) -> None:
        match entry.what:
            case Here(member, life, place):
                if not self.present:
                    self.first = []
                self.present.pop(member, None)
                self.present[member] = Present(member, life, place, entry.time)
                if member not in self.first and len(self.first) < FOUNDERS_MAX:
                    self.first.append(member)
            case Gone(member, life):
                known = self.present.get(member)
                if known is not None and life in ("", known.life):
                    del self.present[member]
                if not self.present:
                    self.empty_at = entry.offset
            case Roll():
                pass  # the one that counts was taken first

    def signed(self, founders: int) -> Signed:
        return Signed(tuple(self.first[:founders]), tuple(self.present))


class Register:
    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._topic = f"members/{group or 'default'}"
        self._life = secrets.token_hex(8)
        self._place = place()

    async def sign_in(self, me: NodeId, founders: int) -> Signed:
        """Return who is there, once there are so many founders. Raises NotReached."""
        await self._prepare()
        await self._remove_ended(me, founders)
        await self._sign(Here(me, self._life, self._place))
        found = Members(await self.entries()).signed(founders)
        try:
            async with asyncio.timeout(PATIENCE):
                while len(found.founders) < founders:
                    await asyncio.sleep(PAUSE)
                    found = Members(await self.entries()).signed(founders)
        except TimeoutError:
            raise NotReached(founders, found.founders) from None
        with suppress(OncecastError):  # the next process tries again
            await self._shorten()
        return found

    async def sign_out(self, me: NodeId) -> None:
        async with asyncio.timeout(LEAVE_WITHIN):
            await self._sign(Gone(me, self._life))
            await self._shorten()

    async def entries(self) -> list[Entry]:
        while True:
            try:
                return await self._read()
            except MessagesLost:
                continue  # another process has just shortened the topic

    # -- in the cluster --

    async def _prepare(self) -> None:
        """Make the topic, and the subscription that keeps its entries."""
        await self._client.create_subscription(self._topic, KEEPER, start=EARLIEST)
        if (await self._client.describe(self._topic)).policy.keep_all:  # of an earlier version
            await self._client.set_policy(self._topic, Policy())

    async def _sign(self, entry: Here | Gone | Roll) -> int:
        return (await self._client.put(self._topic, msgspec.json.encode(entry))).offset

    async def _read(self) -> list[Entry]:
        entries: list[Entry] = []
        decoder = msgspec.json.Decoder(Here | Gone | Roll)
        async for part in self._client.scan(self._topic, EARLIEST):
            for message in part.messages():
                with suppress(msgspec.MsgspecError):  # not an entry
                    what = decoder.decode(message.value)
                    entries.append(Entry(message.offset, message.timestamp, what))
        return entries

    async def _shorten(self) -> None:
        """Drop the entries that have no effect any more."""
        entries = await self.entries()
        members = Members(entries)
        upto = members.empty_at
        if len(entries) > 2 * len(members.present) + SLACK and members.present:
            upto = entries[-1].offset
            await self._sign(Roll(upto, tuple(members.first), tuple(members.present.values())))
        if entries and upto >= entries[0].offset:
            await self._client.seek(self._topic, KEEPER, from_offset(upto + 1))

    # -- processes that have ended --

    async def _remove_ended(self, me: NodeId, founders: int) -> None:
        members = Members(await self.entries())
        others = [each for each in members.present.values() if each.member != me]
        some = others[:PROBES_MAX]
        kept = members.first[:founders]
        ended = await asyncio.gather(*(self._has_ended(each, each.member in kept) for each in some))
        for each, has in zip(some, ended, strict=True):
            if has:
                await self._sign(Gone(each.member, each.life))

    async def _has_ended(self, present: Present, founder: bool) -> bool:
        near = bool(self._place) and present.place == self._place
        expired = not founder and time.time() - present.time / 1e6 > EXPIRE
        if not near and not expired:
            return False
        try:
            return await refuses(present.member)
        except (OSError, TimeoutError, BadAddress):
            return expired


async def refuses(member: NodeId) -> bool:
    """Return whether a connection is refused; raise OSError or TimeoutError if nothing answers."""
    try:
        async with asyncio.timeout(PROBE_WITHIN):
            _, writer = await asyncio.open_connection(*split(member))
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def place() -> str:
    """Return an id of this machine's network, or "" where there is none: then nothing is proved."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""
