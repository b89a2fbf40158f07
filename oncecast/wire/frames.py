"""Messages between a client and a node.

A client repeats a call until it is answered. Copies of a call have the same `id` and the same
command, and commands are idempotent, so a call can be retried without limit. To read, a client
sends an offset and credit, and gets messages as they arrive.

    client → node    Call, Fetch, Look, Scan · LookGroup, Govern, LookAccess
    node → client    Answer, Delivery, FlowEnded, View, Scanned, Elsewhere, Owned · GroupView,
                     AccessView
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.replication.events import Change, HandOver
from oncecast.security.access import Rule
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import Done
from oncecast.wire.retention import Policy

ClientCommand = (
    do.CreateTopic
    | do.SetPolicy
    | do.DeleteTopic
    | do.OpenProducer
    | do.Put
    | do.CloseProducer
    | do.Subscribe
    | do.Unsubscribe
    | do.Attach
    | do.Detach
    | do.Ack
    | do.Seek
    | do.Stage
    | do.PublishStaged
    | do.DropStaged
    | do.CloseSource
    | do.AccessCommand
)


class Call(Value, tag="Call"):
    """Execute a command. The node replaces its `at` by the current time."""

    id: int
    command: ClientCommand


class Answer(Value, tag="Answer"):
    id: int
    result: Done | errors.AnyRefusal


class Fetch(Value, tag="Fetch"):
    """Read from `offset` on, up to the credit, and acknowledge all messages before `ack`.

    A later Fetch replaces an earlier one. If its `offset` is after that of the last Fetch and was
    sent already, it only renews the credit: messages in flight are not sent again. The same or an
    earlier `offset` resends from there. Credit counts from `offset`: messages before
    `offset + messages`, and about `bytes` of uncompressed batches. It is the Get of the
    requirements, with the Ack of the Get before (SVC-3).
    """

    topic: str
    subscription: str
    epoch: int
    offset: int
    ack: int
    messages: int
    bytes: int


class Tune(Value, tag="Tune"):
    """A Fetch for any process of a ring, which reads the topic by push delivery."""

    fetch: Fetch


class Chunk(Value, tag=False):
    """`count` messages of one batch after its first `skip`. The first has `offset`."""

    offset: int
    skip: int
    count: int
    producer: str
    sequence: int
    batch: bytes


class Delivery(Value, tag="Delivery"):
    """Messages from `chunks[0].offset` on. Those before `suspect_below` may be redelivered.

    Without chunks, all messages before `next` were dropped.
    """

    topic: str
    subscription: str
    epoch: int
    chunks: tuple[Chunk, ...]
    suspect_below: int
    next: int  # end of the topic, to compute the lag


class FlowEnded(Value, tag="FlowEnded"):
    """The flow of this epoch ended: fenced, repositioned, unsubscribed or deleted."""

    topic: str
    subscription: str
    epoch: int
    why: errors.AnyRefusal


class Elsewhere(Value, tag="Elsewhere"):
    """The node does not lead, and has dropped the request.

    Ask `leader` if it is known, or else each of these nodes.
    """

    leader: str
    nodes: tuple[str, ...]


class Owned(Value, tag="Owned"):
    """The topic belongs to this group of the ring, and the process has dropped the request.

    Ask `leader` if it is known, or else each of these nodes of the group.
    """

    topic: str
    group: str
    leader: str
    nodes: tuple[str, ...]


class Look(Value, tag="Look"):
    """List one topic, or the topics with `prefix` in pages."""

    id: int
    topic: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1000
    subscriptions: bool = True  # False leaves them out, because there may be many


class SubscriptionView(Value, tag=False):
    name: str
    cursor: int
    lag: int
    epoch: int
    attached: bool


class TopicView(Value, tag=False):
    name: str
    id: int
    first: int
    next: int
    bytes: int
    policy: Policy
    subscriptions: tuple[SubscriptionView, ...]
    producers: int


class View(Value, tag="View"):
    """The answer to Look. With `more`, ask for the topics `after` the last one."""

    id: int
    topics: tuple[TopicView, ...]
    more: bool
    node: str
    version: str


class Scan(Value, tag="Scan"):
    """Read a topic without a subscription. No cursor moves.

    The answer has messages before `until`, and about `bytes` of uncompressed batches. Without bytes
    it has only the offsets. It has no messages if the id of the topic is not `topic_id`; 0 is any.

    With `any_replica`, a follower may answer if it holds all messages of the range.
    """

    id: int
    topic: str
    start: do.Start
    until: int = -1  # -1: the current end
    bytes: int = 0
    topic_id: int = 0
    any_replica: bool = False


class Scanned(Value, tag="Scanned"):
    """The id of the topic, its first and next offset, and the messages from `offset` on.

    If the requested offset is not kept, `offset` is the nearest one. `time` is when the message at
    `offset` was appended, in microseconds since 1970, or 0 if there is none yet.
    """

    id: int
    topic_id: int
    first: int
    next: int
    offset: int
    chunks: tuple[Chunk, ...]
    time: int = 0


class LookGroup(Value, tag="LookGroup"):
    """Show the replica group as seen by this node, leader or not."""

    id: int


class Govern(Value, tag="Govern"):
    """Change the group, or hand over leadership.

    The answer is a GroupView when it has happened, an Answer with the refusal, or Elsewhere. With
    size 0 the leader chooses the size.
    """

    id: int
    request: Change | HandOver


class MemberView(Value, tag=False):
    """A member as seen by one node. `applied` is its last slot, or -1 if unknown.

    `reachable` is None if it is unknown. `heard` is -1 if it never received a message.
    """

    node: str
    incarnation: int
    applied: int
    silent: bool
    reachable: bool | None = None
    heard: float = -1.0  # seconds since the last message


class GroupView(Value, tag="GroupView"):
    """The replica group as seen by `node`. Only a leader knows details of other members."""

    id: int
    node: str
    leader: str
    quorum: bool
    version: int  # version of the membership
    size: int  # target number of replicas
    applied: int
    members: tuple[MemberView, ...]
    offers: tuple[str, ...]  # nodes that wait for a seat, if `node` leads


class LookAccess(Value, tag="LookAccess"):
    """List users, tokens and rules, from entry number `first` on."""

    id: int
    first: int = 0


class TokenView(Value, tag=False):
    id: str
    principal: str
    expires_us: int  # 0 for never


class AccessView(Value, tag="AccessView"):
    """One page of the answer to LookAccess. With `next`, ask for the entries from there on.

    The pages belong together only if they have the same version.
    """

    id: int
    version: int
    users: tuple[str, ...]
    tokens: tuple[TokenView, ...]
    rules: tuple[Rule, ...]
    next: int = 0


class LookRing(Value, tag="LookRing"):
    """Show the ring as seen by this process, and its position in the tree of the topic `tree`.

    A node outside of a ring shows an empty one.
    """

    id: int
    tree: str = ""


class LeaveRing(Value, tag="LeaveRing"):
    """Export everything that the group of this process owns, then stop.

    The answer is a RingView as soon as the process has begun.
    """

    id: int


class ProcessView(Value, tag=False):
    process: str
    version: str
    group: str  # founded by the process, at the same position
    position: str  # hexadecimal
    seats: tuple[str, ...]


class ArcView(Value, tag=False):
    """A group, which owns the keys after `low` up to `position`. Empty `low`: owns nothing."""

    group: str
    low: str
    position: str
    leader: str
    nodes: tuple[str, ...]
    applied: int
    retired: bool


class TreeView(Value, tag=False):
    """The position of one process in the tree of a topic, and its number of readers."""

    topic: str
    owner: str  # the group
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
