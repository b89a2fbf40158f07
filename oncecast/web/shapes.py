"""The JSON bodies of requests and responses.

The OpenAPI document is generated from these types. Names that end in `_us` are microseconds since
1970. All other times are in seconds.
"""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[bytes, Meta(extra_json_schema={"pattern": BASE64})]

MESSAGES_MAX = 10_000  # maximum messages in one put
OFFSETS_MAX = 10_000  # maximum offsets or jobs in one request


class Shape(msgspec.Struct, kw_only=True):
    """A part of a response."""


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a request."""


class Problem(Shape, omit_defaults=True):
    """Why a request failed."""

    code: str
    message: str
    remedy: str
    status: int
    expected: int | None = None  # the sequence to continue with, if the code is "gap"


class Empty(Shape):
    """A response without a body."""


# Messages


class Bytes(Shape):
    """Bytes, and the same as text if they are valid UTF-8."""

    value: bytes
    text: str | None


class MessageShape(Shape):
    offset: int
    timestamp_us: int
    value: bytes
    text: str | None
    size: int  # bytes of the value, also if it is truncated
    truncated: bool
    key: Bytes | None
    headers: dict[str, Bytes]
    producer: str
    sequence: int
    redelivered: bool


class Event(Shape, omit_defaults=True):
    """A Server-Sent Event. `data` is JSON: a message, lost offsets, or a problem."""

    data: str
    id: str = ""  # offset of the message
    event: Annotated[str, Meta(pattern="^(message|lost|problem)$")] = "message"


class Browsed(Shape):
    messages: list[MessageShape]
    first: int
    end: int
    next: int | None  # the offset to go on from, or null at the end of the topic
    scanned: int


class PutMessage(Body):
    value: Base64 | None = None
    text: str | None = None  # instead of `value`
    key: Base64 | None = None
    key_text: str | None = None  # instead of `key`
    headers: dict[str, Base64] = {}


class PutMessages(Body):
    messages: Annotated[list[PutMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]


class Put(Shape):
    """A stored put. `stored` is false if an earlier copy of the request had stored it."""

    offset: int | None
    count: int
    stored: bool
    kept: bool | None


# Topics


class PolicyBody(Body):
    age: Seconds | None = None
    bytes: Count | None = None
    keep_all: bool | None = None
    drop_unread: bool | None = None
    gossip: bool | None = None
    drop_expired: bool | None = None


class PolicyShape(Shape):
    age: float
    bytes: int
    keep_all: bool
    drop_unread: bool
    gossip: bool
    drop_expired: bool


class TopicShape(Shape):
    name: str
    id: int
    first: int
    end: int
    bytes: int
    producers: int
    delayed: int
    subscriptions: int
    partitions: int  # 0 for a plain topic
    policy: PolicyShape
    puts_per_second: float | None


class Topics(Shape):
    topics: list[TopicShape]
    next: str | None


class Created(Shape):
    name: str
    created: bool


# Subscriptions


class SharedBody(Body):
    lease: Annotated[float, Meta(ge=0.001, le=31_536_000)] | None = None
    deliveries_max: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    backoff_min: Seconds | None = None
    backoff_max: Seconds | None = None
    in_flight_max: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    dead_letters: Name | None = None
    by_key: bool | None = None


class SharedSettings(Shape):
    lease: float
    deliveries_max: int
    backoff_min: float
    backoff_max: float
    in_flight_max: int
    dead_letters: str | None
    by_key: bool


class SharedShape(Shape):
    workers: int
    leased: int
    waiting: int
    dead: int
    dead_letters: str
    settings: SharedSettings


class SubscriptionShape(Shape):
    topic: str
    name: str
    cursor: int
    lag: int
    epoch: int
    attached: bool
    shared: SharedShape | None


class Subscriptions(Shape):
    subscriptions: list[SubscriptionShape]
    next: str | None


class Partition(Shape):
    name: str  # of the topic that stores the partition
    first: int
    end: int
    bytes: int


class TopicDetails(Shape):
    name: str
    id: int
    first: int
    end: int
    bytes: int
    producers: int
    delayed: int
    subscriptions: list[SubscriptionShape]
    subscription_count: int
    partitions: list[Partition]  # empty for a plain topic
    partition_of: str  # the topic that this topic is a partition of, or ""
    policy: PolicyShape
    puts_per_second: float | None


class Subscribe(Body):
    start: Offset | Annotated[str, Meta(pattern="^(earliest|latest)$")] = "latest"
    shared: SharedBody | bool | None = None


class Lost(Shape):
    """Messages that the topic's policy dropped before they were read."""

    first: int
    next: int


class JobShape(Shape):
    token: int
    deliveries: int
    lease: float
    message: MessageShape


class Got(Shape):
    """The messages of an exclusive subscription, or the jobs of a shared one."""

    messages: list[MessageShape] = []
    jobs: list[JobShape] = []
    epoch: int = 0
    next: int = 0  # the offset after these messages
    end: int = 0
    lost: Lost | None = None


class AckBody(Body):
    offset: Offset  # the last message that is handled
    epoch: Count | None = None


class Acked(Shape):
    cursor: int


class Job(Body):
    token: Count
    offset: Offset


class Release(Job):
    delay: Seconds | None = None  # default: the backoff of the subscription
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Reject(Job):
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Settle(Body):
    accept: Annotated[list[Job], Meta(max_length=OFFSETS_MAX)] = []
    release: Annotated[list[Release], Meta(max_length=OFFSETS_MAX)] = []
    reject: Annotated[list[Reject], Meta(max_length=OFFSETS_MAX)] = []
    renew: Annotated[list[Job], Meta(max_length=OFFSETS_MAX)] = []


class JobName(Shape):
    token: int
    offset: int


class Settled(Shape):
    settled: int
    lost: list[JobName]  # jobs whose lease has ended, so that another worker may have them


class Seek(Body):
    """Exactly one of these fields."""

    offset: Offset | None = None
    timestamp_us: Offset | None = None
    to: Annotated[str, Meta(pattern="^(earliest|latest)$")] | None = None


class Letter(Shape):
    offset: int  # in the dead-letter topic
    origin: int | None  # offset of the message in its topic
    reason: str
    detail: str
    deliveries: int
    message: MessageShape


class Letters(Shape):
    letters: list[Letter]
    count: int
    next: int | None


class Chosen(Body):
    """Either offsets or all."""

    offsets: Annotated[list[Offset], Meta(max_length=OFFSETS_MAX)] | None = None
    all: bool = False


class ChosenTo(Chosen):
    to: Name | None = None  # the topic to put the letters into


class Handled(Shape):
    count: int


# The cluster


class Disk(Shape):
    used: int
    free: int
    total: int


class Overview(Shape):
    healthy: bool
    node: str
    version: str
    level: int
    user: str | None
    leader: str
    quorum: bool
    ring: bool
    nodes: int
    processes: int
    topics: int
    subscriptions: int | None
    messages: int
    bytes: int
    puts_per_second: float | None
    bytes_per_second: float | None
    age: float
    disk: Disk | None
    tails: int
    sessions: int


class Replica(Shape):
    node: str
    leader: bool
    behind: int | None
    present: bool | None
    level: int
    heard: float | None


class Group(Shape):
    group: str
    leader: str
    quorum: bool
    level: int
    version: int
    size: int
    applied: int
    offers: list[str]
    replicas: list[Replica]


class Cluster(Shape):
    ring: bool
    groups: list[Group]


class Process(Shape):
    process: str
    position: str
    version: str
    group: str
    seats: list[str]


class TopicKey(Shape):
    topic: str
    key: str


class Arc(Shape):
    group: str
    low: str
    position: str
    share: float
    leader: str
    nodes: list[str]
    applied: int
    retired: bool
    topics: int | None
    bytes: int | None
    keys: list[TopicKey]


class RingShape(Shape):
    node: str
    processes: list[Process]
    groups: list[Arc]


class TreeNode(Shape):
    process: str
    readers: int
    root: bool


class TreeEdge(Shape):
    parent: str
    child: str


class Tree(Shape):
    topic: str
    owner: str
    root: str | None
    gossip: bool
    nodes: list[TreeNode]
    edges: list[TreeEdge]


Document = dict[str, Any]
