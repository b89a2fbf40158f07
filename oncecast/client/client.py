"""The asynchronous client.

    async with oncecast.connect("127.0.0.1:7400") as client:
        news = await client.subscribe("news")
        await client.put("news", b"hello")
        async for message in news: ...

The client batches, pipelines, resends and reconnects automatically. A call that gets no answer
within `timeout` seconds raises TimedOut. By default, `put` and `get` wait indefinitely, but a put
waits at most `timeout` seconds while the node's disk is full.
"""

# ruff: noqa: ASYNC109  # timeouts are part of the interface

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from msgspec.structs import replace

from oncecast.client.jobs import PREFETCH, SharedSubscription, check_prefetch
from oncecast.client.options import DEFAULT_ADDRESS, SCAN_BYTES, ClientOptions
from oncecast.client.parcel import MESSAGE_BYTES, Parcel, Receipt
from oncecast.client.putting import Putting
from oncecast.client.running import Running
from oncecast.client.shared import Shared
from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.client.subscription import Subscription
from oncecast.client.subscriptions import Subscribed
from oncecast.client.timing import timing_of
from oncecast.errors import Closed, OncecastError, TooMany
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Change, HandOver
from oncecast.wire import commands as do
from oncecast.wire.commands import Start
from oncecast.wire.frames import GroupView, RingView, TopicView, View
from oncecast.wire.limits import PARTS_MAX
from oncecast.wire.message import Message
from oncecast.wire.results import PublishedRange
from oncecast.wire.retention import DEFAULT, Policy

if TYPE_CHECKING:
    from datetime import datetime

    from oncecast.client.access import AccessControl
    from oncecast.client.dead_letters import DeadLetters
    from oncecast.client.scanning import Located, Slice
    from oncecast.client.transactions import Transaction
    from oncecast.network.tls import Tls

__all__ = ["DEFAULT_ADDRESS", "EARLIEST", "NEW", "Client", "connect", "from_offset", "from_time"]


# Long because each operation of a client is one short method here.
class Client:
    """A client with one name and any number of topics and subscriptions. Created by `connect`."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,  # one or more node addresses, separated by commas
        *,
        name: str | None = None,  # durable; by default, the node assigns a temporary name
        state: str | os.PathLike[str] | None = None,  # directory that keeps puts across restarts
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        tls: Tls | None = None,
        cluster: str = "oncecast",
        zstd: int | None = None,  # compression level for batches
        user: str | None = None,  # log in as this user, with `password`
        password: str | None = None,
        token: str | None = None,  # log in with this token instead
        any_replica: bool = False,  # send scans to any replica, not only to the leader
        busy_poll: float = 0.0,  # seconds to poll after a message instead of sleeping
    ) -> None:
        self._options = ClientOptions(
            address=address,
            name=name,
            state=state,
            timeout=timeout,
            connect_timeout=connect_timeout,
            tls=tls,
            cluster=cluster,
            zstd=zstd,
            user=user,
            password=password,
            token=token,
            any_replica=any_replica,
            busy_poll=busy_poll,
        )
        self.parts = cast("Running", NotOpen())  # internal: for this package and its tests
        self._putting = cast("Putting", NotOpen())
        self._batches: dict[str, Parcel] = {}  # the open batches of `_putting`
        self._entered = False
        self._assemble: Callable[[ClientOptions], Running] = Running

    @classmethod
    def of(cls, options: ClientOptions) -> Self:
        """Return a client with these options."""
        client = cls()
        client._options = options
        return client

    # -- open and close --

    @property
    def options(self) -> ClientOptions:
        return self._options

    @property
    def closed(self) -> OncecastError | None:
        """Return the error that every call raises, or None if the client is open."""
        if not self._entered:
            return Closed("the client is not open", "open it first")
        return self.parts.requests.closed

    @property
    def name(self) -> str:
        """Return the configured name, or the name assigned by the node (SVC-8)."""
        return self.parts.session.producer

    @property
    def access(self) -> AccessControl:
        """Return the cluster's users, tokens and rules, for administrators."""
        return self.parts.access

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the client like `async with`, but let the caller close it."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if not self._entered:
            parts = self.parts = self._assemble(self._options)
            await parts.__aenter__()
            self._putting, self._batches = parts.putting, parts.putting.open
            self._entered = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(ack=kind is None)

    async def close(self, *, ack: bool = True, timeout: float | None = None) -> None:
        """Wait until all puts are stored, then close the subscriptions and disconnect.

        `ack` has the same meaning as in `Subscription.close`. Raise an error if closing takes
        longer than `timeout` seconds (default: the client's timeout).
        """
        if self._entered:
            self._entered = False
            await self.parts.close(ack=ack, timeout=timeout)

    # -- put --

    # Not `async`: a put then needs only one coroutine, the one that `Putting.put` creates.
    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
        *,
        delay: float | None = None,  # seconds until the message becomes visible
        at: float | datetime | None = None,  # or the time when it becomes visible
        ttl: float | None = None,  # seconds after which workers no longer get the message
    ) -> Coroutine[Any, Any, Receipt]:
        """Put a message and return its receipt once it is on disk. Concurrent puts are batched.

        A delayed message enters the topic when it is due, and gets its offset then. `delay` and
        `ttl` count from the moment when the nodes store the message.
        """
        if delay is None and at is None and ttl is None:
            return self._putting.put(topic, value, key, headers, timeout)
        timing = timing_of(delay, at, ttl)
        return self._putting.put(topic, value, key, headers, timeout, timing)

    def put_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put a message without waiting. If it fails, the next `flush` raises the error.

        Raise Overloaded while 64 MiB or more are not stored yet.
        """
        # Parcel.take, inlined. A method call per message would make this a third slower.
        try:
            batch = self._batches[topic]
        except KeyError:
            pass
        else:
            if key is None and headers is None and type(value) is bytes:
                size = batch.bytes + MESSAGE_BYTES + len(value)
                if size <= batch.cut:
                    batch.values.append(value)
                    batch.bytes = size
                    return
        self._putting.put_nowait(topic, value, key, headers)

    async def put_many(
        self,
        topic: str,
        values: Iterable[bytes],
        timeout: float | None = None,
        *,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
    ) -> Receipt | None:
        """Put all values in order. Return the receipt of the last one once all are on disk.

        `delay`, `at` and `ttl` have the same meaning as in `put`.
        """
        timing = timing_of(delay, at, ttl)
        return await self.parts.usable.putting.put_many(topic, values, timeout, timing)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all puts are on disk. Raise the first error since the last flush."""
        await self.parts.usable.putting.flush(timeout)

    async def wait_for_space(self) -> None:
        """Wait until `put_nowait` has buffer space."""
        await self.parts.usable.putting.wait_for_space()

    # -- subscribe and get --

    async def subscribe(
        self,
        topic: str,
        subscription: str | None = None,  # default: the client's name
        *,
        start: Start = NEW,  # where a new subscription starts
        start_at: int | None = None,  # read from this offset, regardless of acknowledgements (E3)
        auto_ack: bool = True,
        push: bool = False,  # on a ring, read through the process that this client is connected to
    ) -> Subscription:
        """Create the subscription and its topic if they do not exist, and start reading.

        If the topic has partitions, all clients with this subscription share them. Repeated calls
        for the same subscription return the same object.
        """
        parts, name = self.parts.usable, self.parts.subscription_name(subscription)
        if parts.subscriptions.get(topic, name) is None and not parts.joined(topic, name):
            await parts.create(topic, name, start)
            if subscription is None and not self._options.durable_name:
                parts.temporary[topic] = None
        return await self.read(topic, name, start_at=start_at, auto_ack=auto_ack, push=push)

    async def read(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start_at: int | None = None,
        auto_ack: bool = True,
        push: bool = False,
    ) -> Subscription:
        """Read an existing subscription. Raise NotSubscribed if it does not exist."""
        name = self.parts.subscription_name(subscription)
        return await self.parts.usable.read(
            topic, name, auto_ack=auto_ack, start_at=start_at, push=push
        )

    async def work(
        self,
        topic: str,
        subscription: str,
        *,
        # Maximum jobs that the worker holds, including those that it is handling.
        prefetch: int = PREFETCH,
        start: Start = NEW,  # where a new subscription starts
        shared: Shared | None = None,  # settings to set; None keeps them, or sets the defaults
        create: bool = True,
    ) -> SharedSubscription:
        """Work on a shared subscription, together with other workers.

        Create the subscription and its topic if they do not exist, unless `create` is false.
        Repeated calls for the same subscription return the same object.
        """
        if create:
            check_prefetch(prefetch)
            await self.parts.usable.subscriptions.share(topic, subscription, start, shared)
        return await self.parts.usable.subscriptions.work(topic, subscription, prefetch=prefetch)

    def dead_letters(self, topic: str, subscription: str) -> DeadLetters:
        """Return the dead letters of a shared subscription, to list, retry or drop them."""
        from oncecast.client.dead_letters import DeadLetters  # short commands do not need it

        return DeadLetters(self, topic, subscription)

    async def create_subscription(
        self,
        topic: str,
        subscription: str | None = None,
        *,
        start: Start = NEW,
        shared: Shared | None = None,
    ) -> Subscribed:
        """Create the subscription and its topic if they do not exist, without reading.

        With `shared`, create a shared subscription, or change its settings. Return the
        subscription's next offset, and whether it is new.
        """
        name = self.parts.subscription_name(subscription)
        parts = self.parts.usable
        if shared is not None:
            return await parts.subscriptions.share(topic, name, start, shared)
        return await parts.create(topic, name, start)

    async def unsubscribe(self, topic: str, subscription: str | None = None) -> bool:
        """Delete the subscription. Return whether it existed."""
        name = self.parts.subscription_name(subscription)
        return await self.parts.usable.unsubscribe(topic, name)

    async def seek(self, topic: str, subscription: str, start: Start) -> int:
        """Move a subscription, even while another client reads it. Return its next offset."""
        return await self.parts.usable.seek(topic, subscription, start)

    async def hold(self, topic: str, subscription: str, start: Start) -> int:
        """Create or move a subscription without reading, and return its next offset.

        The topic then retains all messages from `start` on.
        """
        await self.parts.usable.create(topic, subscription, start)
        return await self.seek(topic, subscription, start)

    async def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """Return the next message of the subscription that has the client's name.

        Return None if no message arrives within `timeout`, as in `Subscription.get`.
        """
        return await (await self.parts.own_subscription(topic)).get(timeout)

    async def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Message]:
        return await (await self.parts.own_subscription(topic)).get_many(count, timeout)

    # -- scan --

    async def locate(self, topic: str, start: Start) -> Located:
        """Return the retained offset nearest to `start`, or the next offset to be assigned."""
        return await self.parts.usable.scans.locate(topic, start)

    async def scan(
        self,
        topic: str,
        start: Start = EARLIEST,
        until: int | None = None,  # default: the end of the topic when the scan starts
        *,
        topic_id: int = 0,  # the id returned by `locate`, or 0 for the current topic
        size: int = SCAN_BYTES,
    ) -> AsyncIterator[Slice]:
        """Yield the messages from `start` to `until` (exclusive), in order and without gaps.

        A scan does not move any cursor and does not keep messages from being deleted. Raise
        MessagesLost if the topic has deleted some of the messages. Raise TopicReplaced if the topic
        is deleted and recreated during the scan.
        """
        async for page in self.parts.usable.scans.pages(
            topic, start, until, topic_id=topic_id, size=size
        ):
            for each in page:
                yield each

    # -- transactions --

    def transaction(self, source: str | None = None) -> Transaction:
        """Return a transaction: puts and acknowledgements that take effect together, or not at all.

        Use it in `async with`. `source` is a durable name. A newer process with this name fences
        the older one, whose commits then raise Fenced. By default, it is `NAME.transactions` for a
        client named NAME.
        """
        name = f"{self.name}.transactions" if source is None else source
        return self.parts.usable.transactions.make(name)

    # -- staged puts --

    async def stage(
        self,
        source: str,
        number: int,
        part: str,
        topic: str,
        count: int,
        batch: bytes,
        *,
        run: str = "",
    ) -> bool:
        """Store a packed batch of `count` messages as a part that readers cannot see yet.

        Return whether the part is new. A source numbers its publications in ascending order. Any
        client may stage and publish parts of a source, and repeated calls have no effect. On a
        ring, each topic has its own sources, so `publish_staged` needs the topic.

        `run` identifies one run of the program. A new run takes over the source, and calls from
        earlier runs raise TakenOver. A `number` below the last published one raises OldNumber.
        """
        command = do.Stage(source, number, part, topic, count, len(batch), 0, batch, run)
        return await self.parts.usable.requests.changes(command)

    async def publish_staged(
        self,
        source: str,
        number: int,
        parts: Iterable[str],
        topic: str = "",
        *,
        run: str = "",
        digest: bytes = b"",
        keep: bool = False,
    ) -> tuple[PublishedRange, ...]:
        """Append these parts to their topics, in this order. Drop all other parts up to `number`.

        Return the offsets of the parts, even if an earlier call published them. With a `digest` of
        the content, raise OtherContent if the earlier call had a different digest. With `keep`,
        raise NotKept if a topic has neither retention nor a subscription. `run` has the same
        meaning as in `stage`.
        """
        names = tuple(parts)
        if len(names) > PARTS_MAX:
            raise TooMany("parts in one publish", PARTS_MAX)
        command = do.PublishStaged(
            source, number, names, 0, topic, run=run, digest=digest, keep=keep
        )
        ranges: tuple[PublishedRange, ...] = (await self.parts.usable.requests.call(command)).ranges
        return ranges

    async def drop_staged(self, source: str, number: int, topic: str = "", *, run: str = "") -> int:
        """Delete the parts staged under this number. Return how many were deleted.

        If another run has taken over from `run`, delete nothing and return 0.
        """
        command = do.DropStaged(source, number, topic, run=run, renew=True)
        return int((await self.parts.usable.requests.call(command)).parts)

    async def close_source(self, source: str, topic: str = "") -> bool:
        """Delete a source that is no longer needed. Return whether it existed."""
        command = do.CloseSource(source, 0, topic, renew=True)
        return await self.parts.usable.requests.changes(command)

    # -- topics --

    async def create_topic(
        self,
        topic: str,
        policy: Policy = DEFAULT,
        *,
        partitions: int | None = None,  # default: a plain topic
    ) -> bool:
        """Create a topic that exists until it is deleted. Return whether it is new."""
        if partitions is not None:
            return await self.parts.usable.partitions.create(topic, partitions, policy)
        return await self.parts.usable.requests.changes(do.CreateTopic(topic, 0, policy))

    async def set_partitions(self, topic: str, partitions: int) -> int:
        """Raise the number of partitions of a topic. Return how many are new.

        The number cannot decrease, and a plain topic cannot become partitioned.
        """
        return await self.parts.usable.partitions.grow(topic, partitions)

    async def set_policy(self, topic: str, policy: Policy) -> None:
        await self.parts.usable.partitions.set_policy(topic, policy)

    async def delete_topic(self, topic: str) -> bool:
        """Delete a topic with its messages and subscriptions. Return whether it existed."""
        return await self.parts.usable.partitions.delete(topic)

    async def describe(self, topic: str) -> TopicView:
        """Return the view of a topic. With partitions, the numbers are the sums over them."""
        return await self.parts.usable.partitions.describe(topic)

    async def partitions(self, topic: str) -> list[TopicView]:
        """Return the views of a topic's partitions, in order. A plain topic has none."""
        return await self.parts.usable.partitions.of(topic)

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicView]:
        """Yield all topics with this prefix, sorted by name. On a ring, include all groups.

        A topic with partitions appears once, with the sums over its partitions.
        """
        from oncecast.client.partitioning import folding  # short commands do not need it

        async for each in folding(self.parts.usable.topics.all(prefix)):
            yield each

    # -- the cluster --

    async def group(self) -> GroupView:
        """Return the replica group as seen by the connected node, which may be a follower."""
        return await self.parts.usable.cluster.group()

    async def add_replica(self, node: str) -> GroupView:
        """Add a node that is waiting to join. Return the group once the node is a member."""
        return await self.parts.usable.cluster.group(Change(add=NodeId(node)))

    async def remove_replica(self, node: str) -> GroupView:
        """Remove a node. Return the group once the node is no longer a member."""
        return await self.parts.usable.cluster.group(Change(remove=NodeId(node)))

    async def transfer_leader(self, node: str) -> GroupView:
        """Make this node the leader. Return the group once the node leads it."""
        return await self.parts.usable.cluster.group(HandOver(NodeId(node)))

    async def ring(self, tree: str = "") -> RingView:
        """Return the ring as seen by the connected process.

        If `tree` is a topic, include the role of this process in the topic's multicast tree.
        Outside a ring, the view has no processes.
        """
        return await self.parts.usable.cluster.ring(tree)

    async def leave_ring(self) -> RingView:
        """Move the connected process's topics to other processes, then stop it."""
        return await self.parts.usable.cluster.ring(leave=True)

    async def ping(self) -> View:
        """Return the node's address and version. In a group, only the leader answers."""
        return await self.parts.usable.cluster.ping()

    @property
    def led(self) -> bool:
        """Return whether the group has a leader, as far as this client knows."""
        return self.parts.session.led

    def node_of(self, topic: str) -> str:
        """Return the node to which this client sends requests about the topic."""
        return self.parts.session.node_of(topic)

    # -- for the command line --

    def hurry(self, timeout: float) -> None:
        """Limit all waits for answers to `timeout` seconds, because the process is exiting."""
        self._options = replace(self._options, timeout=min(self._options.timeout, timeout))
        if isinstance(self.parts, Running):
            self.parts.requests.limit_timeout(timeout)


class NotOpen:
    """Placeholder for the parts of a client that is not open. Every access raises Closed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed("the client is not open", "use it in `async with`, or await it")


connect = Client
