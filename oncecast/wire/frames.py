"""The vocabulary between a client and a node.

A client calls and is answered; a call that is repeated, because the answer was late or lost, has
the same `id` and the same command, and commands are idempotent: so a call may be retried without
end. Reading is a flow: a client says from where and how much it can take, and gets messages as they
come.

    client → node    Call, Fetch, Look, Scan · LookGroup, Govern
    node → client    Answer, Delivery, FlowEnded, View, Scanned, Elsewhere, Owned · GroupView
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.replication.events import Change, HandOver
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
)


class Call(Value, tag="Call"):
    """Do this. The node puts its own time in the place of the command's `at`."""

    id: int
    command: ClientCommand


class Answer(Value, tag="Answer"):
    id: int
    result: Done | errors.AnyRefusal


class Fetch(Value, tag="Fetch"):
    """Send on from `offset`, as it comes, up to the credit; all before `ack` is acknowledged.

    A later Fetch replaces an earlier one. One whose `offset` lies between that of the last Fetch of
    this client and epoch and what was sent since renews the credit, and what is under way is not
    sent again. The same `offset` again, or an earlier one, has it sent again from there. Credit
    counts from `offset`: messages before `offset + messages` and about `bytes` of batches, as large
    as they are when opened. It is worth a call by itself: the Get of the requirements, with the Ack
    of the one before (SVC-3).
    """

    topic: str
    subscription: str
    epoch: int
    offset: int
    ack: int
    messages: int
    bytes: int


class Tune(Value, tag="Tune"):
    """The same, asked of any process of a ring: it has what comes pushed to itself."""

    fetch: Fetch


class Chunk(Value, tag=False):
    """Messages of one batch: `count` from its `skip`th on, of which the first has `offset`."""

    offset: int
    skip: int
    count: int
    producer: str
    sequence: int
    batch: bytes


class Delivery(Value, tag="Delivery"):
    """What lies from `chunks[0].offset` on. What is before `suspect_below` may have been seen.

    Without chunks: all before `next` was let go.
    """

    topic: str
    subscription: str
    epoch: int
    chunks: tuple[Chunk, ...]
    suspect_below: int
    next: int  # of the topic: what is between is the lag


class FlowEnded(Value, tag="FlowEnded"):
    """There will be no more for this epoch, and why: fenced, repositioned, unsubscribed, gone."""

    topic: str
    subscription: str
    epoch: int
    why: errors.AnyRefusal


class Elsewhere(Value, tag="Elsewhere"):
    """This node does not lead: what it was asked for is forgotten. Ask `leader`, if there is one,
    or else these nodes, until one does."""

    leader: str
    nodes: tuple[str, ...]


class Owned(Value, tag="Owned"):
    """This process is one of a ring, and the topic belongs to this group of it: what was asked
    about the topic is forgotten. Ask `leader`, if it is known, or else these nodes of the group."""

    topic: str
    group: str
    leader: str
    nodes: tuple[str, ...]


class Look(Value, tag="Look"):
    """Show topics and subscriptions: one topic, those that begin with `prefix`, in pages."""

    id: int
    topic: str = ""
    prefix: str = ""
    after: str = ""
    limit: int = 1000
    subscriptions: bool = True  # a topic may have many, and who looks not need them


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
    """`more` says that there are topics behind the last one: ask again `after` it."""

    id: int
    topics: tuple[TopicView, ...]
    more: bool
    node: str
    version: str


class Scan(Value, tag="Scan"):
    """Show what lies from `start` on, whoever has subscribed to it; no cursor moves.

    Messages before `until`, and about `bytes` of batches, as large as they are when opened; without
    bytes, only where that is. Of another life of the topic than `life`, nothing; 0 is any.
    """

    id: int
    topic: str
    start: do.Start
    until: int = -1  # the end, as it is now
    bytes: int = 0
    topic_id: int = 0


class Scanned(Value, tag="Scanned"):
    """The life of the topic, its first offset and its next one, and what lies from `offset` on.

    An `offset` that was not asked for is the nearest: what was asked for is gone, or to come.
    """

    id: int
    topic_id: int
    first: int
    next: int
    offset: int
    chunks: tuple[Chunk, ...]


class LookGroup(Value, tag="LookGroup"):
    """Show the replica group, as this node sees it, whether it leads or not."""

    id: int


class Govern(Value, tag="Govern"):
    """Change the group, or let another one lead. Answered with a GroupView when it is so, with an
    Answer that says why not, or with Elsewhere. A change of size 0 leaves the choice to the leader.
    """

    id: int
    request: Change | HandOver


class MemberView(Value, tag=False):
    """`applied` is the last slot that the node looked at has heard of; -1 if it has not.

    `reachable` is None if the node cannot tell, `heard` is -1 if it has never heard the member.
    """

    node: str
    incarnation: int
    applied: int
    silent: bool
    reachable: bool | None = None
    heard: float = -1.0  # seconds ago


class GroupView(Value, tag="GroupView"):
    """What `node` knows; of the others only a leader knows more than their names."""

    id: int
    node: str
    leader: str
    quorum: bool
    version: int  # of the membership
    size: int  # how many there should be
    applied: int
    members: tuple[MemberView, ...]
    offers: tuple[str, ...]  # who waits for a seat, as far as a leader knows


class LookRing(Value, tag="LookRing"):
    """Show the ring as this process knows it; and its own part in the tree of the topic `tree`.

    A node that is in no ring shows an empty one.
    """

    id: int
    tree: str = ""


class LeaveRing(Value, tag="LeaveRing"):
    """Give what the group of this process owns to others, and stop then. Answered with a RingView:
    the process has begun to."""

    id: int


class ProcessView(Value, tag=False):
    process: str
    version: str
    group: str  # its own; its position on the ring is that of the process
    position: str  # hexadecimal
    seats: tuple[str, ...]


class ArcView(Value, tag=False):
    """A group, and what it owns: all after `low`, up to `position`; without a low end, nothing."""

    group: str
    low: str
    position: str
    leader: str
    nodes: tuple[str, ...]
    applied: int
    retired: bool


class TreeView(Value, tag=False):
    """The part of one process in the tree of a topic; `readers` are those who are tuned in here."""

    topic: str
    owner: str  # the group
    root: bool
    parent: str
    children: tuple[str, ...]
    readers: int


class RingView(Value, tag="RingView"):
    id: int
    node: str
    processes: tuple[ProcessView, ...]  # round the ring
    groups: tuple[ArcView, ...]
    tree: TreeView | None
