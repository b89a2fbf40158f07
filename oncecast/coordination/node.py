"""A member of a group, which runs the coordination protocols on a real network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import count
from math import inf
from random import SystemRandom
from secrets import token_hex
from typing import Any, Self, TypeVar

from oncecast.client.client import Client
from oncecast.coordination.assemble import Forwarded, assemble
from oncecast.coordination.handles import Group, LeaderElection, Lock, Queue
from oncecast.coordination.protocols.events import (
    NO_NODE,
    Acquired,
    Deposited,
    Dequeued,
    Lapsed,
    LeaderElected,
    Renewed,
    ViewChanged,
)
from oncecast.coordination.register import PEERS_MAX, Register
from oncecast.errors import BadName, NoCluster, OncecastError, Stopped
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.addresses import split_process
from oncecast.network.listener import Listen, bind
from oncecast.network.network import Runtime
from oncecast.network.options import Options
from oncecast.node.config import Settings
from oncecast.node.derived import listen_address, secret_of
from oncecast.node.directory import open_directory
from oncecast.storage.journal import Journal
from oncecast.streams.protocols.events import Arrived
from oncecast.streams.protocols.policies import QoS
from oncecast.streams.streams import Stream, Streams
from oncecast.streams.writer import LINGER
from oncecast.wire.limits import is_name

T = TypeVar("T")
BEST_EFFORT = QoS()


class Process(Runtime):
    @property
    def ended(self) -> asyncio.Future[None]:
        return self._ended

    def flush(self) -> None:
        """Send queued messages now instead of at the end of this event loop iteration."""
        self._transport.flush()


class Node:
    """A member of a group. Use it in `async with`.

    It offers `group`, `election`, `lock(name)`, `queue(name)` and `stream(name, qos)`.

    listen: the address of this process, which is also its name. Port 0 gives each start a new name.
    peers: members to contact. One running peer is enough.
    acceptors: the processes whose majority decides. Use the same list in every process. The default
        is the process and its peers, or only its peers if the process's port is 0.
    directory: where an acceptor stores its state. Without it, an acceptor must not restart under
        the same name.
    group: the name of the group. Processes with another group or other acceptors are rejected.
    through: a node address or client of a running cluster, to find peers and store persistent
        streams. The first `founders` processes to sign in are the acceptors. `join` waits for them.
    heartbeat: seconds between heartbeats.
    suspect_after: seconds of silence after which a member is suspected.
    lease: seconds that a lock stays with this process after it crashes or is disconnected.
    insecure: listen on an address that other machines can reach, without TLS.
    cluster_secret_file: private file with the secret that all processes share, at least 16 bytes.
        Processes on several machines need it.
    grace: seconds that other processes wait after the lease, so that work under the lock can stop.
    """

    def __init__(
        self,
        listen: str,
        *,
        peers: Iterable[str] = (),
        acceptors: Iterable[str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        group: str = "",
        through: str | Client | None = None,
        founders: int = 1,
        heartbeat: float = 0.5,
        suspect_after: float = 2.0,
        lease: float = 10.0,
        grace: float = 0.0,
        insecure: bool = False,
        cluster_secret_file: str | os.PathLike[str] = "",
    ) -> None:
        times = {"heartbeat": heartbeat, "suspect_after": suspect_after, "lease": lease}
        for name, value in times.items():
            if not 0 < value < inf:
                raise ValueError(f"{name} is {value:g} s; use a positive, finite number of seconds")
        if not 0 <= grace < inf:
            raise ValueError(f"grace is {grace:g} s; use 0 or a positive, finite number of seconds")
        self.listen = listen
        self.peers = tuple(NodeId(peer) for peer in peers)
        self._acceptors, self._directory, self._group = acceptors, directory, group
        self._heartbeat, self._suspect_after = heartbeat, suspect_after
        self._lease, self._grace = lease, grace
        self._insecure, self._through, self._founders = insecure, through, founders
        self._secret = secret_of(cluster_secret_file)
        self.client: Client | None = None
        self._register: Register | None = None
        self._tickets = count(1)
        self._locks: dict[str, Lock] = {}
        self._queues: dict[str, Queue] = {}

    # -- start and stop --

    async def __aenter__(self) -> Self:
        listen: Listen
        listen, self.me = listen_address(Settings(listen=self.listen))
        if self._through is not None and isinstance(listen, str):
            # Listen before signing in, because peers take a refused connection as proof of an exit.
            listen = await bind(listen)
        try:
            return await self._join(listen)
        except BaseException:
            if not isinstance(listen, str):
                for each in listen if isinstance(listen, list) else [listen]:
                    each.close()
            await self._sign_out()
            raise

    async def _join(self, listen: Listen) -> Self:
        await self._sign_in()
        self.acceptors = self._choose_acceptors()
        self.group, self.election = Group(self), LeaderElection(self)
        self._parts = assemble(
            self.me,
            SystemRandom(),
            peers=(*self.peers, *self.acceptors),
            acceptors=self.acceptors,
            heartbeat=self._heartbeat,
            suspect_after=self._suspect_after,
            lease=self._lease,
            grace=self._grace,
            incarnation="" if self._directory is not None else token_hex(8),
        )
        journal = None
        if self._directory is not None:
            journal = Journal.open(open_directory(os.fspath(self._directory)), self._parts.stack)
        self._runtime = Process(
            self._parts.stack,
            me=self.me,
            listen=listen,
            journal=journal,
            on_event=self._on_event,
            insecure=self._insecure,
            secret=self._secret,
            options=Options(cluster=self._cluster()),
        )
        self.streams = Streams(self, self._parts.streams)
        await self._runtime.__aenter__()
        self._runtime.ended.add_done_callback(lambda _: self._stopped())
        return self

    def _stopped(self) -> None:
        """End leadership, locks and reads when the node stops for any reason."""
        self.election.changed(NO_NODE)
        for lock in self._locks.values():
            lock.stopped()
        self.streams.stopped()

    def _choose_acceptors(self) -> tuple[NodeId, ...]:
        fixed = split_process(self.listen)[1] > 0
        chosen = self._acceptors or ((self.me,) if fixed or not self.peers else ()) + self.peers
        return tuple(sorted({NodeId(each) for each in chosen}))

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        if not self.stopping:
            await self.streams.close(LINGER if error is None else 0.0)
            self.group.leave()
        try:
            await self._runtime.__aexit__(kind, error)
        finally:
            await self._sign_out()

    async def _sign_in(self) -> None:
        """Find peers through the cluster, if one is configured."""
        if self._through is None:
            return
        if isinstance(self._through, Client):
            self.client = self._through
        else:
            self.client = await Client(self._through).__aenter__()
        # Set before the sign-in, so that a failed sign-in is followed by a sign-out.
        self._register = Register(self.client, self._group)
        found = await self._register.sign_in(self.me, self._founders)
        self._acceptors = self._acceptors or found.founders
        self.peers += found.present[-PEERS_MAX:]

    async def _sign_out(self) -> None:
        if self.client is None:
            return
        client, register, self.client, self._register = self.client, self._register, None, None
        try:
            if register is not None:
                with suppress(OncecastError, TimeoutError):  # peers then treat it as crashed
                    await register.sign_out(self.me)
        finally:
            if client is not self._through:
                await client.close()

    def client_for(self, stream: str) -> Client:
        if self.client is None:
            raise NoCluster(stream)
        return self.client

    def _cluster(self) -> str:
        """Return a cluster name that only nodes with the same group and acceptors share."""
        shared = " ".join((*self.acceptors, self._group)).encode()
        return "coordination-" + sha256(shared).hexdigest()[:16]

    # -- handles --

    def lock(self, name: str) -> Lock:
        check_name(name)
        if name not in self._locks:
            self._locks[name] = Lock(self, name)
        return self._locks[name]

    def queue(self, name: str) -> Queue:
        check_name(name)
        if name not in self._queues:
            self._queues[name] = Queue(self, name)
        return self._queues[name]

    def stream(self, name: str, qos: QoS = BEST_EFFORT) -> Stream:
        """Return a stream. Raise BadName or BadQoS if an argument is invalid."""
        check_name(name)
        return Stream(self.streams, name, qos.checked())

    # -- used by the handles --

    @property
    def stopping(self) -> bool:
        return self._runtime.stopping

    def request(self, request: Value) -> None:
        self._runtime.request(request)

    def request_now(self, request: Value) -> None:
        self._runtime.request(request)
        self._runtime.flush()

    def next_ticket(self) -> int:
        return next(self._tickets)

    def length(self, queue: str) -> int:
        return self._parts.queue.length(queue)

    def peek(self, queue: str, count: int) -> list[bytes]:
        return self._parts.queue.peek(queue, count)

    def unsent_bytes(self) -> int:
        return max((self._runtime.unsent_bytes(peer) for peer in self.group.view), default=0)

    async def unless_stopped(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. Raise Stopped if this node stops first."""
        doing = asyncio.ensure_future(work)
        either: list[asyncio.Future[Any]] = [doing, self._runtime.ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Stopped
            return doing.result()
        finally:
            doing.cancel()

    def _on_event(self, event: Value) -> None:
        if type(event) is Arrived:  # the most frequent event
            self.streams.arrived(event.stream)
            return
        match event:
            case Forwarded(ViewChanged(view)):
                self.group.changed(view)
            case Forwarded(LeaderElected(leader)):
                self.election.changed(leader)
            case Acquired() | Renewed() | Lapsed():
                self.lock(event.lock).on_event(event)
            case Dequeued(queue, ticket, data):
                self.queue(queue).answered(ticket, data)
            case Deposited(queue, ticket, done):
                self.queue(queue).deposited(ticket, done)
            case _:
                self.streams.on_event(event)


join = Node


def check_name(name: str) -> None:
    if not is_name(name):
        raise BadName(name)
