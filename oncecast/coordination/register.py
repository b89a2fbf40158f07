"""A register of members: processes find each other through a topic of a running cluster.

Every process reads the entries of the topic in the same order, so all agree on the first processes
to sign in. These founders are the acceptors. A process that leaves signs out. When no process is
left, the next process to sign in starts the group again.

A process that crashes does not sign out, and a silent process may still hold a lock. A refused
connection proves that a process has exited, but only within one network namespace of one machine. A
process that signs in there removes such entries at once. From another machine, founders are never
removed. Other processes are removed an hour after they signed in, if they cannot be reached.

The cursor of a subscription marks the first entry that is still needed. The cursor moves forward
when a process signs in or out. A `Roll` replaces old entries with one entry of the same effect.
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

PEERS_MAX = 16  # maximum number of processes to contact; any running process knows all members
FOUNDERS_MAX = 64
PAUSE = 0.05
LEAVE_WITHIN = 2.0
PATIENCE = 30.0  # seconds to wait for the founders to sign in
SLACK = 16  # number of entries beyond two per process at which a Roll replaces them
PROBE_WITHIN = 0.5  # seconds to connect to a process that may have exited
PROBES_MAX = 256  # maximum number of processes that one sign-in checks
EXPIRE = 3600.0  # seconds after which a process that cannot be reached is removed
KEEPER = "register"  # the subscription that keeps the entries


class Here(Value, tag="Here"):
    member: NodeId
    # Random id of the process; an earlier process at the same address had another id.
    incarnation: str = ""
    network: str = ""  # network namespace in which a refused connection proves an exit


class Gone(Value, tag="Gone"):
    member: NodeId
    incarnation: str = ""  # the incarnation that exited, or empty for any incarnation


class Present(Value, tag="Present"):
    """A process that has signed in. `time` is in microseconds since 1970."""

    member: NodeId
    incarnation: str
    network: str
    time: int


class Roll(Value, tag="Roll"):
    """The effect of all entries up to offset `upto`."""

    upto: int
    first: tuple[NodeId, ...]
    present: tuple[Present, ...]


class Entry(NamedTuple):
    offset: int
    time: int
    record: Here | Gone | Roll | None  # None for a message that is not an entry


class Roster(NamedTuple):
    """The acceptors of the group, and the processes that are signed in."""

    founders: tuple[NodeId, ...]
    present: tuple[NodeId, ...]


class Members:
    """The group's members, according to the entries in the topic."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.first: list[NodeId] = []  # the first to sign in since the group was last empty
        self.present: dict[NodeId, Present] = {}  # in order of sign-in
        self.empty_at = -1  # the last offset after which no process was present
        entries = list(entries)
        # A Roll whose later entries were dropped is outdated: the group was empty when it was
        # written.
        needed = entries[0].offset - 1 if entries else 0
        rolls = [each.record for each in entries if isinstance(each.record, Roll)]
        rolls = [roll for roll in rolls if roll.upto >= needed]
        upto = -1
        if rolls:
            roll = max(rolls, key=lambda each: each.upto)
            upto, self.first = roll.upto, list(roll.first)
            self.present = {each.member: each for each in roll.present}
        for entry in entries:
            if entry.offset > upto:
                self._apply(entry)

    def _apply(self, entry: Entry) -> None:
        match entry.record:
            case Here(member, incarnation, network):
                if not self.present:
                    self.first = []
                self.present.pop(member, None)
                self.present[member] = Present(member, incarnation, network, entry.time)
                if member not in self.first and len(self.first) < FOUNDERS_MAX:
                    self.first.append(member)
            case Gone(member, incarnation):
                known = self.present.get(member)
                if known is not None and incarnation in ("", known.incarnation):
                    del self.present[member]
                if not self.present:
                    self.empty_at = entry.offset
            case Roll():
                pass  # the newest Roll was applied first
            case None:
                pass

    def roster(self, founders: int) -> Roster:
        return Roster(tuple(self.first[:founders]), tuple(self.present))


class Register:
    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._topic = f"members/{group or 'default'}"
        self._incarnation = secrets.token_hex(8)
        self._network = network_id()

    async def sign_in(self, me: NodeId, founders: int) -> Roster:
        """Sign in, and return the roster once `founders` processes have signed in.

        Raise NotReached if they do not sign in within `PATIENCE` seconds.
        """
        await self._prepare()
        await self._remove_ended(me, founders)
        await self._sign(Here(me, self._incarnation, self._network))
        found = Members(await self.entries()).roster(founders)
        try:
            async with asyncio.timeout(PATIENCE):
                while len(found.founders) < founders:
                    await asyncio.sleep(PAUSE)
                    found = Members(await self.entries()).roster(founders)
        except TimeoutError:
            raise NotReached(founders, found.founders) from None
        with suppress(OncecastError):  # if it fails, the next process tries again
            await self._shorten()
        return found

    async def sign_out(self, me: NodeId) -> None:
        async with asyncio.timeout(LEAVE_WITHIN):
            await self._sign(Gone(me, self._incarnation))
            await self._shorten()

    async def entries(self) -> list[Entry]:
        while True:
            try:
                return await self._read()
            except MessagesLost:
                continue  # another process has just shortened the topic, so read it again

    # -- in the cluster --

    async def _prepare(self) -> None:
        """Create the topic, and the subscription that retains its entries."""
        await self._client.create_subscription(self._topic, KEEPER, start=EARLIEST)
        # A topic of an earlier version has another policy.
        if (await self._client.describe(self._topic)).policy.keep_all:
            await self._client.set_policy(self._topic, Policy())

    async def _sign(self, entry: Here | Gone | Roll) -> int:
        return (await self._client.put(self._topic, msgspec.json.encode(entry))).offset

    async def _read(self) -> list[Entry]:
        entries: list[Entry] = []
        decoder = msgspec.json.Decoder(Here | Gone | Roll)
        async for part in self._client.scan(self._topic, EARLIEST):
            for message in part.messages():
                try:
                    record = decoder.decode(message.value)
                except msgspec.MsgspecError:
                    record = None
                entries.append(Entry(message.offset, message.timestamp, record))
        return entries

    async def _shorten(self) -> None:
        """Drop the entries that no longer have an effect."""
        entries = await self.entries()
        members = Members(entries)
        upto = members.empty_at
        if len(entries) > 2 * len(members.present) + SLACK and members.present:
            upto = entries[-1].offset
            await self._sign(Roll(upto, tuple(members.first), tuple(members.present.values())))
        if entries and upto >= entries[0].offset:
            await self._client.seek(self._topic, KEEPER, from_offset(upto + 1))

    # -- processes that have exited --

    async def _remove_ended(self, me: NodeId, founders: int) -> None:
        members = Members(await self.entries())
        others = [each for each in members.present.values() if each.member != me]
        some = others[:PROBES_MAX]
        kept = members.first[:founders]
        ended = await asyncio.gather(*(self._has_ended(each, each.member in kept) for each in some))
        for each, has in zip(some, ended, strict=True):
            if has:
                await self._sign(Gone(each.member, each.incarnation))

    async def _has_ended(self, present: Present, founder: bool) -> bool:
        near = bool(self._network) and present.network == self._network
        expired = not founder and time.time() - present.time / 1e6 > EXPIRE
        if not near and not expired:
            return False
        try:
            return await refuses(present.member)
        except (OSError, TimeoutError, BadAddress):
            return expired


async def refuses(member: NodeId) -> bool:
    """Return whether `member` refuses a connection. Raise an error if it does not answer."""
    try:
        async with asyncio.timeout(PROBE_WITHIN):
            _, writer = await asyncio.open_connection(*split(member))
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


def network_id() -> str:
    """Return an id of this machine's network namespace, or "" if the system has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return ""
