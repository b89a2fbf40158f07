"""One operation of one client: its request, its times and its answer.

A history is a list of operations. `call` and `returned` are seconds of one clock that all clients
of the history share: the simulator's clock, or CLOCK_MONOTONIC of one machine. An operation
precedes another one if it returned before the other was called.

An operation without `returned` has no answer: the client crashed or stopped waiting. It may have
happened at any time after its call, or never.

| kind | request | answer |
|---|---|---|
| `put` | `digests` of the messages, in order | `offset`, or -1 if unknown; `kept`; `topic_id` |
| `stage` | `source`, `number`, `parts`, `digests` | |
| `publish` | `source`, `number`, `parts` | `offset`, `count` messages, `kept`, `already` |
| `drop` | `source`, `number`: later parts of this number are new | |
| `create`, `policy` | `policy` | `topic_id`, `already` |
| `delete` | | `already` |
| `subscribe` | `subscription`, `start` | `offset`: the cursor; `topic_id`, `already` |
| `unsubscribe` | `subscription` | `already` |
| `attach` | `reader`; `start` if not from the cursor | `offset`, `next`, `topic_id`, `epoch` |
| `get` | nothing: messages arrive without a request | `offset`, `digests`, `marked`, `next` |
| `skip` | nothing | messages from `offset` to before `next` are no longer kept |
| `moved` | nothing | another client moved the reader: `offset`, `epoch` |
| `end` | nothing | `error`: the reason why the reader gets no more messages |
| `again` | redeliver messages from `offset` to before `upto` | |
| `ack` | acknowledge everything before `upto`, in `epoch` | |
| `leave` | as for `ack`; all messages before `next` were delivered | |
| `seek` | `start` | `offset`: the new cursor; `epoch`, `already` |
| `look` | | `topic_id`, `first`, `next`, `policy`, `views` |
| `scan` | `start` | `topic_id`, `first`, `next`, `offset`, `digests` |

A topic that is deleted and created again has a higher `topic_id`, which is also called its epoch.
In JSON the key of `topic_id` is `life`. `look` and `scan` of a missing topic have the error
`no-such-topic`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Literal

import google_crc32c
import msgspec

from oncecast.errors import NoSuchTopic, NotSubscribed
from oncecast.wire import batch
from oncecast.wire.commands import Start
from oncecast.wire.message import Message
from oncecast.wire.retention import Policy

Kind = Literal[
    "put",
    "stage",
    "publish",
    "drop",
    "create",
    "policy",
    "delete",
    "subscribe",
    "unsubscribe",
    "attach",
    "get",
    "skip",
    "moved",
    "end",
    "again",
    "ack",
    "leave",
    "seek",
    "look",
    "scan",
]

DIGEST_BYTES = 4
NO_SUCH_TOPIC, NOT_SUBSCRIBED = NoSuchTopic.code, NotSubscribed.code


class SubscriptionSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription in the answer to a look."""

    name: str
    cursor: int
    lag: int
    epoch: int


class Operation(msgspec.Struct, omit_defaults=True, gc=False):
    """One operation. The table above lists each kind's fields. Other fields keep their defaults."""

    client: str  # name of a producer, kept across restarts; its puts to a topic are in order
    kind: Kind
    topic: str
    call: float
    returned: float | None = None  # None if the call was not answered
    error: str = ""  # the error code, if the call was refused
    subscription: str = ""
    reader: str = ""  # unique name of one reader of a subscription
    topic_id: int = msgspec.field(default=0, name="life")  # 0 if unknown
    epoch: int = 0  # epoch of the subscription, or 0 if unknown
    offset: int = -1
    upto: int = -1
    first: int = -1
    next: int = -1
    count: int = 0
    kept: bool | None = None
    already: bool = False
    marked: int = 0  # number of leading messages that carry the mark `redelivered`
    start: Start | None = None
    policy: Policy | None = None
    views: tuple[SubscriptionSeen, ...] | None = None  # None if the caller did not request them
    source: str = ""
    number: int = -1
    parts: tuple[str, ...] = ()
    digests: bytes = b""  # DIGEST_BYTES per message

    @property
    def done(self) -> bool:
        """Return whether the operation succeeded."""
        return self.returned is not None and not self.error

    @property
    def refused(self) -> bool:
        return self.returned is not None and bool(self.error)

    @property
    def messages(self) -> int:
        return len(self.digests) // DIGEST_BYTES


History = list[Operation]


def cut(digests: bytes | bytearray) -> list[bytes]:
    """Split concatenated digests, and return the digest of each message."""
    starts = range(0, len(digests), DIGEST_BYTES)
    return [bytes(digests[at : at + DIGEST_BYTES]) for at in starts]


def digests_of(messages: Iterable[Message]) -> bytes:
    """Return the concatenated checksums of the value, key and headers of each message."""
    return _packed([_digest(each) for each in messages])


def digests_of_values(values: Iterable[bytes]) -> bytes:
    """Return the concatenated checksums of messages that have no key and no headers."""
    return _packed([google_crc32c.value(value) or 1 for value in values])


def digests_of_batch(data: bytes, skip: int = 0, count: int | None = None) -> bytes:
    """Return the concatenated checksums of all or some messages in a packed batch."""
    found = batch.messages(
        data, topic="", offset=0, producer="", sequence=0, skip=skip, count=count
    )
    return digests_of(found)


def _digest(message: Message) -> int:
    digest: int = google_crc32c.value(message.value)
    if message.key is not None:
        digest = google_crc32c.extend(digest, b"\0" + message.key)
    for name, value in message.headers.items():
        digest = google_crc32c.extend(digest, b"\1" + name.encode() + b"\0" + value)
    return digest or 1  # 0 stands for an unknown message


def _packed(digests: Iterable[int]) -> bytes:
    packed = array("I", digests)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
