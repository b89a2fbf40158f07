"""All operations of the HTTP interface. Requests are checked, and documented, by this table."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from oncecast import errors
from oncecast.web import cluster, messages, shapes, subscriptions, tail, topics
from oncecast.web.operations import HEADER, PATH, QUERY, Operation, Parameter

BASE = "/api/v1"
EVENTS = "text/event-stream"

Search = Annotated[str, Meta(max_length=1000)]
Prefix = Annotated[str, Meta(max_length=255)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Wait = Annotated[float, Meta(ge=0, le=60)]
Start = Annotated[int, Meta(ge=-(1 << 63) + 1, le=(1 << 63) - 1)]
Size = Annotated[int, Meta(ge=0, le=1 << 30)]
HeaderText = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[!-~]([ -~]*[!-~])?$")]

TOPIC = Parameter("topic", PATH, shapes.Name, "name of the topic", required=True)
NAME = Parameter("name", PATH, shapes.Name, "name of the subscription", required=True)
LIMIT = Parameter("limit", QUERY, Limit, "maximum number of entries", 100)
AFTER = Parameter("after", QUERY, Search, "the `next` of the page before", "")
SEARCH = Parameter("search", QUERY, Search, "text that the result contains", "")
FROM = Parameter(
    "from", QUERY, Start, "offset to start at; a negative number counts back from the end"
)
TIMESTAMP = Parameter(
    "timestamp",
    QUERY,
    shapes.Offset,
    "start at the first message put at this time, in microseconds since 1970",
)
VALUE_BYTES = Parameter("value_bytes", QUERY, Size, "maximum bytes of each value")
PRODUCER = Parameter(
    "Oncecast-Producer",
    HEADER,
    HeaderText,
    "name of the producer; a repeated request with this name and sequence is stored once",
)
SEQUENCE = Parameter(
    "Oncecast-Sequence",
    HEADER,
    shapes.Offset,
    "number of the first message: the producer counts its messages to this topic from 0",
)
REQUEST = Parameter(
    "Oncecast-Request",
    HEADER,
    Annotated[str, Meta(pattern="^1$")],
    "proves that no other site sent it",
)

PARTITIONS = Parameter(
    "partitions",
    QUERY,
    Annotated[int, Meta(ge=1, le=1000)],
    "number of partitions (default: a plain topic)",
)

NAMES = (errors.InvalidTopic, errors.InvalidName)
READS = (*NAMES, errors.NoSuchTopic, errors.Partitioned)
ONE = (*READS, errors.NotSubscribed)

TOPICS, MESSAGES, SUBSCRIPTIONS, CLUSTER = "topics", "messages", "subscriptions", "cluster"
AT_TOPIC = "/topics/{topic}"
AT_NAME = "/topics/{topic}/subscriptions/{name}"

OF_TOPICS = (
    Operation(
        "GET",
        "/overview",
        CLUSTER,
        "Show the state of the cluster at one glance.",
        topics.overview,
        shapes.Overview,
    ),
    Operation(
        "GET",
        "/topics",
        TOPICS,
        "List topics, sorted by name.",
        topics.listed,
        shapes.Topics,
        parameters=(
            SEARCH,
            Parameter("prefix", QUERY, Prefix, "text that the name begins with", ""),
            AFTER,
            LIMIT,
        ),
    ),
    Operation(
        "GET",
        AT_TOPIC,
        TOPICS,
        "Show a topic with its subscriptions.",
        topics.described_one,
        shapes.TopicDetails,
        parameters=(TOPIC,),
        errors=READS,
    ),
    Operation(
        "PUT",
        AT_TOPIC,
        TOPICS,
        "Create a topic. The status is 200 if it exists with this policy.",
        topics.created,
        shapes.Created,
        201,
        (200,),
        (TOPIC, PARTITIONS),
        shapes.PolicyBody,
        bare=True,
        errors=(*NAMES, errors.TopicExists, errors.TooMany, errors.LevelTooLow),
    ),
    Operation(
        "PATCH",
        AT_TOPIC,
        TOPICS,
        "Change only the given fields of the policy.",
        topics.changed,
        shapes.PolicyShape,
        parameters=(TOPIC,),
        body=shapes.PolicyBody,
        errors=READS,
    ),
    Operation(
        "DELETE",
        AT_TOPIC,
        TOPICS,
        "Delete a topic, its messages and its subscriptions.",
        topics.deleted,
        None,
        204,
        parameters=(TOPIC, REQUEST),
        errors=READS,
    ),
)

OF_MESSAGES = (
    Operation(
        "POST",
        "/topics/{topic}/messages",
        MESSAGES,
        "Put one message, or several.",
        messages.put,
        shapes.Put,
        parameters=(
            TOPIC,
            Parameter("key", QUERY, Search, "key of a message that is sent as a raw body"),
            Parameter("delay", QUERY, shapes.Seconds, "seconds until the message is visible"),
            Parameter("ttl", QUERY, shapes.Seconds, "seconds until the message expires"),
            PRODUCER,
            SEQUENCE,
        ),
        body=shapes.PutMessages,
        raw=True,
        errors=(
            *NAMES,
            errors.PayloadTooLarge,
            errors.Gap,
            errors.Fenced,
            errors.NameInUse,
            errors.LevelTooLow,
            errors.TooMany,
        ),
    ),
    Operation(
        "GET",
        "/topics/{topic}/messages",
        MESSAGES,
        "Browse messages, without a subscription.",
        messages.browsed,
        shapes.Browsed,
        parameters=(
            TOPIC,
            FROM,
            TIMESTAMP,
            LIMIT,
            SEARCH,
            VALUE_BYTES,
        ),
        errors=(*READS, errors.OutOfRange, errors.TopicReplaced),
    ),
    Operation(
        "GET",
        "/topics/{topic}/messages/{offset}",
        MESSAGES,
        "Show one message. With Accept: application/octet-stream, return its value.",
        messages.one,
        shapes.MessageShape,
        parameters=(
            TOPIC,
            Parameter("offset", PATH, shapes.Offset, "offset of the message", required=True),
        ),
        errors=(*READS, errors.OutOfRange),
    ),
    Operation(
        "GET",
        "/topics/{topic}/tail",
        MESSAGES,
        "Follow a topic as Server-Sent Events. The id of an event is the offset of its message.",
        tail.tail,
        shapes.Event,
        content=EVENTS,
        parameters=(
            TOPIC,
            FROM,
            TIMESTAMP,
            VALUE_BYTES,
            Parameter(
                "Last-Event-ID",
                HEADER,
                shapes.Offset,
                "offset of the last message that was received",
            ),
        ),
        errors=(*READS, errors.OutOfRange),
    ),
)

OF_SUBSCRIPTIONS = (
    Operation(
        "GET",
        "/subscriptions",
        SUBSCRIPTIONS,
        "List subscriptions.",
        topics.subscriptions,
        shapes.Subscriptions,
        parameters=(
            Parameter("topic", QUERY, shapes.Name, "only subscriptions of this topic"),
            AFTER,
            LIMIT,
        ),
        errors=READS,
    ),
    Operation(
        "PUT",
        AT_NAME,
        SUBSCRIPTIONS,
        "Create a subscription, or change the settings of a shared one.",
        subscriptions.created,
        shapes.SubscriptionShape,
        201,
        (200,),
        (TOPIC, NAME),
        shapes.Subscribe,
        bare=True,
        errors=(*NAMES, errors.WrongKind, errors.TooMany, errors.LevelTooLow),
    ),
    Operation(
        "GET",
        AT_NAME,
        SUBSCRIPTIONS,
        "Show a subscription.",
        subscriptions.shown,
        shapes.SubscriptionShape,
        parameters=(TOPIC, NAME),
        errors=ONE,
    ),
    Operation(
        "DELETE",
        AT_NAME,
        SUBSCRIPTIONS,
        "Delete a subscription.",
        subscriptions.deleted,
        None,
        204,
        parameters=(TOPIC, NAME, REQUEST),
        errors=ONE,
    ),
    Operation(
        "POST",
        AT_NAME + "/get",
        SUBSCRIPTIONS,
        "Get messages that are not acknowledged, or jobs of a shared subscription.",
        subscriptions.got,
        shapes.Got,
        parameters=(
            TOPIC,
            NAME,
            LIMIT,
            Parameter("wait", QUERY, Wait, "seconds to wait for a message", 0.0),
            Parameter("epoch", QUERY, shapes.Count, "refuse the request if the epoch has changed"),
            Parameter("take_over", QUERY, bool, "fence other readers of this process, too", False),
            REQUEST,
        ),
        errors=(*ONE, errors.Fenced, errors.OutOfRange),
    ),
    Operation(
        "POST",
        AT_NAME + "/ack",
        SUBSCRIPTIONS,
        "Acknowledge a message and all before it.",
        subscriptions.acknowledged,
        shapes.Acked,
        parameters=(TOPIC, NAME),
        body=shapes.AckBody,
        errors=(*ONE, errors.Fenced, errors.Repositioned, errors.WrongKind, errors.OutOfRange),
    ),
    Operation(
        "POST",
        AT_NAME + "/settle",
        SUBSCRIPTIONS,
        "Settle jobs of a shared subscription, or renew their leases.",
        subscriptions.settled,
        shapes.Settled,
        parameters=(TOPIC, NAME),
        body=shapes.Settle,
        errors=ONE,
    ),
    Operation(
        "POST",
        AT_NAME + "/seek",
        SUBSCRIPTIONS,
        "Move a subscription.",
        subscriptions.sought,
        shapes.Acked,
        parameters=(TOPIC, NAME),
        body=shapes.Seek,
        errors=(*ONE, errors.WrongKind),
    ),
    Operation(
        "GET",
        AT_NAME + "/dead",
        SUBSCRIPTIONS,
        "List dead letters of a shared subscription.",
        subscriptions.letters,
        shapes.Letters,
        parameters=(
            TOPIC,
            NAME,
            Parameter("after", QUERY, Start, "offset of the last letter of the page before", -1),
            LIMIT,
        ),
        errors=(*ONE, errors.WrongKind),
    ),
    Operation(
        "POST",
        AT_NAME + "/dead/retry",
        SUBSCRIPTIONS,
        "Put dead letters into their topic again.",
        subscriptions.retried,
        shapes.Handled,
        parameters=(TOPIC, NAME),
        body=shapes.ChosenTo,
        errors=(*ONE, errors.WrongKind, errors.NotKept),
    ),
    Operation(
        "POST",
        AT_NAME + "/dead/drop",
        SUBSCRIPTIONS,
        "Drop dead letters.",
        subscriptions.dropped,
        shapes.Handled,
        parameters=(TOPIC, NAME),
        body=shapes.Chosen,
        errors=(*ONE, errors.WrongKind),
    ),
)

OF_CLUSTER = (
    Operation(
        "GET", "/cluster", CLUSTER, "Show the replica groups.", cluster.cluster, shapes.Cluster
    ),
    Operation(
        "GET",
        "/ring",
        CLUSTER,
        "Show the ring.",
        cluster.ring,
        shapes.RingShape,
        errors=(errors.NotARing,),
    ),
    Operation(
        "GET",
        "/tree/{topic}",
        CLUSTER,
        "Show the multicast tree of a topic.",
        cluster.tree,
        shapes.Tree,
        parameters=(TOPIC,),
        errors=(*READS, errors.NotARing),
    ),
)

OPERATIONS = (*OF_TOPICS, *OF_MESSAGES, *OF_SUBSCRIPTIONS, *OF_CLUSTER)
