"""Messages between a client and a node.

A client repeats a call until it is answered. Copies of a call have the same `id` and the same
command. Commands are idempotent, so a call can be retried without limit. To read, a client sends an
offset and credit, and receives messages as they arrive.

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
    """Execute a command. The node replaces its `at` with the current time."""

    id: int
    command: ClientCommand


class Answer(Value, tag="Answer"):
    id: int
    result: Done | errors.AnyRefusal


class Fetch(Value, tag="Fetch"):
    """Read from `offset` on, up to the credit, and acknowledge all messages before `ack`.

    A later Fetch replaces an earlier one. If its `offset` is higher than in the last Fetch and that
    message was already sent, it only renews the credit: messages in flight are not sent again. The
    same or a lower `offset` resends from there. Credit counts from `offset`: messages before
    `offset + messages`, and about `bytes` of uncompressed batches. A Fetch is the Get of the
    requirements, combined with the Ack of the previous Get (SVC-3).
    """

    topic: str
    subscription: str
    epoch: int
    offset: int
    ack: int
    messages: int
    bytes: int


class Tune(Value, tag="Tune"):
    """A Fetch that any process of a ring accepts. It reads the topic by push delivery."""

    fetch: Fetch


class Chunk(Value, tag=False):
    """`count` messages of one batch after its first `skip`. The first of them is at `offset`."""

    offset: int
    skip: int
    count: int
    producer: str
    sequence: int
    batch: bytes


class Delivery(Value, tag="Delivery"):
    """Messages from `chunks[0].offset` on. Messages before `suspect_below` may be redelivered.

    Without chunks, it means that all messages before `next` were dropped.
    """

    topic: str
    subscription: str
    epoch: int
    chunks: tuple[Chunk, ...]
    suspect_below: int
    next: int  # end of the topic, to compute the lag


class FlowEnded(Value, tag="FlowEnded"):
    """The node sends no more messages of this epoch; `why` gives the reason."""

    topic: str
    subscription: str
    epoch: int
    why: errors.AnyRefusal


class Elsewhere(Value, tag="Elsewhere"):
    """The node does not lead and has dropped the request.

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
    """List one topic, or page through the topics with `prefix`."""

    id: int
    topic: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1000
    subscriptions: bool = True  # False omits the subscriptions, because there may be many


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
    """The answer to Look. If `more` is set, ask for the topics `after` the last one."""

    id: int
    topics: tuple[TopicView, ...]
    more: bool
    node: str
    version: str


class Scan(Value, tag="Scan"):
    """Read a topic without a subscription. No cursor moves.

    The answer has messages before `until`, and about `bytes` of uncompressed batches. If `bytes` is
    0, it has only the offsets. It has no messages if the id of the topic is not `topic_id`; 0
    accepts any id.

    With `any_replica`, a follower may answer if it holds all messages of the range.
    """

    id: int
    topic: str
    start: do.Start
    until: int = -1  # -1 for the current end
    bytes: int = 0
    topic_id: int = 0
    any_replica: bool = False


class Scanned(Value, tag="Scanned"):
    """The id of the topic, its first and next offset, and the messages from `offset` on.

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

    The answer is a GroupView when the change is done, an Answer with the refusal, or Elsewhere. If
    the size is 0, the leader chooses it.
    """

    id: int
    request: Change | HandOver


class MemberView(Value, tag=False):
    """A member as seen by one node. `applied` is its last applied slot, or -1 if unknown.

    `reachable` is None if unknown. `heard` is -1 if the member never sent a message.
    """

    node: str
    incarnation: int
    applied: int
    silent: bool
    reachable: bool | None = None
    heard: float = -1.0  # seconds since the last message
    level: int = 0  # the highest feature level that it knows; 0 if unknown


class GroupView(Value, tag="GroupView"):
    """The replica group as seen by `node`. Only a leader knows details of the other members."""

    id: int
    node: str
    leader: str
    quorum: bool
    version: int  # version of the membership
    size: int  # target number of replicas
    applied: int
    members: tuple[MemberView, ...]
    offers: tuple[str, ...]  # nodes that wait to become members, if `node` leads
    level: int = 1  # the feature level of the group


class LookAccess(Value, tag="LookAccess"):
    """List users, tokens and rules, starting with entry number `first`."""

    id: int
    first: int = 0


class TokenView(Value, tag=False):
    id: str
    principal: str
    expires_us: int  # 0 for never


class AccessView(Value, tag="AccessView"):
    """One page of the answer to LookAccess. If `next` is not 0, ask for the entries from there on.

    Pages belong together only if they have the same version.
    """

    id: int
    version: int
    users: tuple[str, ...]
    tokens: tuple[TokenView, ...]
    rules: tuple[Rule, ...]
    next: int = 0


class LookRing(Value, tag="LookRing"):
    """Show the ring as seen by this process, and its position in the tree of the topic `tree`.

    A node that is not part of a ring shows an empty ring.
    """

    id: int
    tree: str = ""


class LeaveRing(Value, tag="LeaveRing"):
    """Export all topics that the group of this process owns, then stop.

    The process answers with a RingView as soon as it has begun.
    """

    id: int


class ProcessView(Value, tag=False):
    process: str
    version: str
    group: str  # the group that the process founded, at the same position
    position: str  # hexadecimal
    seats: tuple[str, ...]


class ArcView(Value, tag=False):
    """A group, which owns the keys after `low` up to `position`; none if `low` is empty."""

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
