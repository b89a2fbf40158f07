"""Frames that a client and a node exchange.

A client repeats a call until it gets an answer. All copies of a call have the same `id` and
command. Commands are idempotent, so a call can be retried indefinitely. To read, a client sends an
offset and a credit, and receives messages as they arrive.

    client → node    Call, Fetch, Work, Look, Scan · LookGroup, Govern, LookAccess
    node → client    Answer, Delivery, FlowEnded, Jobs, WorkEnded, View, Scanned, Elsewhere, Owned ·
                     GroupView, AccessView
"""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from oncecast.kernel.protocol import Value
from oncecast.replication.events import Change, HandOver
from oncecast.security.values import Rule
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.partitions import OfGroup, SetPartitions
from oncecast.wire.results import Done
from oncecast.wire.retention import Policy
from oncecast.wire.ring_transactions import (
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.sharing import Settle, Shared
from oncecast.wire.transactions import EndTransaction

ClientCommand = (
    do.CreateTopic
    | do.SetPolicy
    | do.DeleteTopic
    | do.OpenProducer
    | do.Put
    | do.TimedPut
    | do.CloseProducer
    | do.Subscribe
    | do.Unsubscribe
    | do.Attach
    | do.Detach
    | do.Ack
    | do.Seek
    | do.SubscribeShared
    | Settle
    | do.Stage
    | do.PublishStaged
    | do.DropStaged
    | do.CloseSource
    | do.OpenSource
    | EndTransaction
    | SetPartitions
    | OfGroup
    | PrepareTransaction
    | DecideTransaction
    | ResolveTransaction
    | do.AccessCommand
)


class Call(Value, tag="Call"):
    """Execute a command. The node replaces its `at` with the current time."""

    id: int
    command: ClientCommand


class Answer(Value, tag="Answer"):
    id: int
    result: Done | errors.AnyRefusal


class Fetch(Value, tag="Fetch"):
    """Read from `offset`, within the credit, and acknowledge all messages before `ack`.

    Each Fetch replaces the previous one. A higher `offset` only renews the credit if the node has
    already sent that far; messages in flight are not sent again. An equal or lower `offset` makes
    the node resend from there. The credit covers messages before `offset + messages`, and about
    `bytes` of uncompressed batches. A Fetch combines a Get with the Ack for the previous Get
    (SVC-3).
    """

    topic: str
    subscription: str
    epoch: int
    offset: int
    ack: int
    messages: int
    bytes: int


class Tune(Value, tag="Tune"):
    """A Fetch for push delivery. Any process in the ring accepts it."""

    fetch: Fetch


class Chunk(Value, tag=False):
    """A slice of a batch: `count` messages after the first `skip`, starting at `offset`."""

    offset: int
    skip: int
    count: int
    producer: str
    sequence: int
    batch: bytes


class Delivery(Value, tag="Delivery"):
    """Consecutive messages. Those before `suspect_below` may be redeliveries.

    A Delivery without chunks means that the topic dropped all messages before `next`.
    """

    topic: str
    subscription: str
    epoch: int
    chunks: tuple[Chunk, ...]
    suspect_below: int
    next: int  # end of the topic; the client computes its lag from it


class FlowEnded(Value, tag="FlowEnded"):
    """The node has stopped sending messages for this epoch; `why` gives the reason."""

    topic: str
    subscription: str
    epoch: int
    why: errors.AnyRefusal


class Work(Value, tag="Work"):
    """Hold up to `window` messages of a shared subscription at a time.

    The node sends more messages as the worker settles them. A later Work replaces an earlier one.
    `seen` is the last token that the worker has received completely, or 0. The node sends the
    messages of later tokens again, because they may be lost.
    """

    topic: str
    subscription: str
    worker: str
    window: int
    seen: int = 0


class Jobs(Value, tag="Jobs"):
    """Messages that a worker holds. One token may need several parts; `last` marks the final one.

    `previous` is the token before this one. If the worker has not seen it, a frame was lost, and
    the worker sends Work again. `lease_us` is the time until the lease ends, and `renewal_us` the
    time until it ends after a renewal. `deliveries` says how often the messages of each chunk have
    been delivered.
    """

    topic: str
    subscription: str
    worker: str
    previous: int
    token: int
    part: int
    last: bool
    lease_us: int
    deliveries: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    renewal_us: int = 0


class WorkEnded(Value, tag="WorkEnded"):
    """The node sends no more messages to this worker; `why` gives the reason."""

    topic: str
    subscription: str
    worker: str
    why: errors.AnyRefusal


class Elsewhere(Value, tag="Elsewhere"):
    """The node is not the leader and has dropped the request.

    Retry at `leader` if it is known, or else at each of `nodes`.
    """

    leader: str
    nodes: tuple[str, ...]


class Owned(Value, tag="Owned"):
    """The topic belongs to `group`, so this process has dropped the request.

    Retry at `leader` if it is known, or else at each of `nodes`.
    """

    topic: str
    group: str
    leader: str
    nodes: tuple[str, ...]


class Look(Value, tag="Look"):
    """List one topic, or page through the topics with `prefix`."""

    id: int
    topic: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1000
    subscriptions: bool = True  # whether to include subscriptions, of which there may be many


OPEN_SHOWN = 1000


class SharedView(Value, tag=False):
    """A shared subscription: its settings, and the number of messages in each condition.

    A Look at a single topic also shows the OPEN_SHOWN lowest open offsets: those that are leased,
    waiting or dead. `open` lists them as runs: the first offset and the number of offsets. No
    message from `fresh` on has been delivered yet.
    """

    settings: Shared
    dead_letters: str  # name of the dead-letter topic
    workers: int
    leased: int
    # Number of messages that wait for redelivery, or for an earlier message with the same key.
    waiting: int
    dead: int  # number of dead letters that are not written yet
    fresh: int = 0
    open: tuple[tuple[int, int], ...] = ()

    @property
    def shows_all(self) -> bool:
        """Return whether `open` has all open offsets."""
        return sum(count for _, count in self.open) == self.leased + self.waiting + self.dead


class SubscriptionView(Value, tag=False):
    name: str
    cursor: int
    lag: int  # number of messages that are not acknowledged
    epoch: int
    attached: bool
    shared: SharedView | None = None  # None if the subscription is exclusive
    # The member that reads each partition, or "". Only consumer groups of partitioned topics.
    holders: tuple[str, ...] = ()


class TopicView(Value, tag=False):
    name: str
    id: int
    first: int
    next: int
    bytes: int
    policy: Policy
    subscriptions: tuple[SubscriptionView, ...]
    producers: int
    delayed: int = 0  # number of delayed messages that are not due yet, and so not in the topic
    partitions: int = 0  # number of partitions; 0 for a plain topic
    partition_of: str = ""  # the topic that this topic is a partition of
    groups_epoch: int = 0  # the epoch of the consumer groups, for SetPartitions


class View(Value, tag="View"):
    """The answer to a Look. If `more` is set, send another Look `after` the last topic."""

    id: int
    topics: tuple[TopicView, ...]
    more: bool
    node: str
    version: str


class Scan(Value, tag="Scan"):
    """Read a topic without a subscription. No cursor moves.

    The answer contains messages before `until`, up to about `bytes` of uncompressed batches. If
    `bytes` is 0, it contains only offsets. If the topic's id differs from `topic_id`, it contains
    no messages; 0 matches any id.

    With `any_replica`, a follower may answer if it holds the whole range.
    """

    id: int
    topic: str
    start: do.Start
    until: int = -1  # the offset before which to stop; -1 for the current end
    bytes: int = 0
    topic_id: int = 0
    any_replica: bool = False
    wait_ms: int = 0  # maximum milliseconds to wait for a message; older nodes do not wait


class Scanned(Value, tag="Scanned"):
    """The answer to a Scan: the topic's id and bounds, and the messages starting at `offset`.

    If the requested offset is not kept, `offset` is the nearest kept one. `time` is when the
    message at `offset` was appended, in microseconds since 1970, or 0 if it does not exist yet.
    """

    id: int
    topic_id: int
    first: int
    next: int
    offset: int
    chunks: tuple[Chunk, ...]
    time: int = 0


class LookGroup(Value, tag="LookGroup"):
    """Show the replica group as this node sees it. Followers answer too."""

    id: int


class Govern(Value, tag="Govern"):
    """Change the group, or hand over leadership.

    The node answers with a GroupView once the change is complete, with an Answer if it refuses the
    change, or with Elsewhere. If the size is 0, the leader chooses one.
    """

    id: int
    request: Change | HandOver


class MemberView(Value, tag=False):
    """A member as seen by one node. `applied` is its last applied slot, or -1 if unknown.

    `reachable` is None if unknown. `heard` is -1 if the member has never sent a message.
    """

    node: str
    incarnation: int
    applied: int
    silent: bool
    reachable: bool | None = None
    heard: float = -1.0  # seconds since the last message, or -1 if unknown
    level: int = 0  # the highest feature level that it supports; 0 if unknown


class GroupView(Value, tag="GroupView"):
    """The replica group as seen by `node`. Only the leader knows details about other members."""

    id: int
    node: str
    leader: str
    quorum: bool
    version: int  # membership version
    size: int  # target number of replicas in the group
    applied: int
    members: tuple[MemberView, ...]
    offers: tuple[str, ...]  # nodes waiting to become members; empty unless `node` leads
    level: int = 1  # the group's feature level


class LookBroker(Value, tag="LookBroker"):
    """Ask for the leader of the group that owns a topic. The topic need not exist."""

    id: int
    topic: str


class BrokerView(Value, tag="BrokerView"):
    """The answer to a LookBroker. `node` is the leader."""

    id: int
    node: str
    brokers: tuple[tuple[str, str], ...]  # nodes of the group, with addresses for Kafka clients


class LookAccess(Value, tag="LookAccess"):
    """List users, tokens and rules, starting with entry number `first`."""

    id: int
    first: int = 0


class TokenView(Value, tag=False):
    id: str
    principal: str
    expires_us: int  # when the token expires; 0 for never


class AccessView(Value, tag="AccessView"):
    """One page of the answer to LookAccess. If `next` is not 0, ask for the page that starts there.

    Combine pages only if they have the same version.
    """

    id: int
    version: int
    users: tuple[str, ...]
    tokens: tuple[TokenView, ...]
    rules: tuple[Rule, ...]
    next: int = 0


class LookRing(Value, tag="LookRing"):
    """Show the ring as seen by this process, and its position in the tree of topic `tree`.

    A node outside a ring answers with an empty ring.
    """

    id: int
    tree: str = ""


class LeaveRing(Value, tag="LeaveRing"):
    """Export all topics of this process's group, then stop.

    The process answers with a RingView as soon as the export has begun.
    """

    id: int


class ProcessView(Value, tag=False):
    process: str
    version: str
    group: str  # the group that this process founded, which has the same position
    position: str  # hexadecimal
    seats: tuple[str, ...]


class ArcView(Value, tag=False):
    """A group and its arc: the keys after `low`, up to `position`. An empty `low` means no arc."""

    group: str
    low: str
    position: str
    leader: str
    nodes: tuple[str, ...]
    applied: int
    retired: bool


class TreeView(Value, tag=False):
    """A process's position in a topic's multicast tree, and its number of readers."""

    topic: str
    owner: str  # the group that owns the topic
    root: bool
    parent: str
    children: tuple[str, ...]
    readers: int


class RingView(Value, tag="RingView"):
    id: int
    node: str
    processes: tuple[ProcessView, ...]  # in ring order
    groups: tuple[ArcView, ...]
    tree: TreeView | None
