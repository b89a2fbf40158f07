"""One operation of one client: what it asked for, when, and what it was told.

A history is a list of operations. `call` and `returned` are seconds of one clock that all clients
of the history share: the simulator's, or CLOCK_MONOTONIC of one machine. An operation precedes
another one if it returned before the other was called.

An operation without `returned` has no answer: the client crashed, or stopped waiting. It may have
happened at any time after its call, or never.

| kind | what the client asked for | what the answer says |
|---|---|---|
| `put` | `digests` of the messages, in order | `offset`, or -1 if unknown; `kept`; `life` |
| `stage` | `source`, `number`, `parts`, `digests` | |
| `publish` | `source`, `number`, `parts` | `offset`, `count` messages, `kept`, `already` |
| `create`, `policy` | `policy` | `life`, `already` |
| `delete` | | `already` |
| `subscribe` | `subscription`, `start` | `offset`: the cursor; `life`, `already` |
| `unsubscribe` | `subscription` | `already` |
| `attach` | `reader` reads on; `start` if not from the cursor | `offset`, `next`, `life`, `epoch` |
| `get` | nothing: messages come by themselves | `offset`, `digests`, `marked`, `next` |
| `skip` | nothing | messages from `offset` to before `next` are gone |
| `moved` | nothing | somebody else moved the reader: `offset`, `epoch` |
| `end` | nothing | `error`: why the reader gets no more |
| `again` | messages from `offset` to before `upto` once more | |
| `ack` | all before `upto` is acknowledged, in `epoch` | |
| `leave` | the same; `next`: all before it was handed out | |
| `seek` | `start` | `offset`: the new cursor; `epoch`, `already` |
| `look` | | `life`, `first`, `next`, `policy`, `views` |
| `scan` | `start` | `life`, `first`, `next`, `offset`, `digests` |

`look` and `scan` of a missing topic have the error `no-such-topic`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Literal

import google_crc32c
import msgspec

from oncecast.wire import batch
from oncecast.wire.batch import Message
from oncecast.wire.commands import Start
from oncecast.wire.errors import NoSuchTopic, NotSubscribed
from oncecast.wire.retention import Policy

Kind = Literal[
    "put",
    "stage",
    "publish",
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
    """A subscription, as a look showed it."""

    name: str
    cursor: int
    lag: int
    epoch: int


class Operation(msgspec.Struct, omit_defaults=True, gc=False):
    """Fields that say nothing have their defaults; the table above says which ones count."""

    client: str  # one producer, over all its lives: its puts of a topic are in order
    kind: Kind
    topic: str
    call: float
    returned: float | None = None  # None: no answer
    error: str = ""  # the code of a refusal
    subscription: str = ""
    reader: str = ""  # one reading of a subscription; no other has this name
    life: int = 0  # of the topic; 0: not told
    epoch: int = 0  # of the subscription; 0: not told
    offset: int = -1
    upto: int = -1
    first: int = -1
    next: int = -1
    count: int = 0
    kept: bool | None = None
    already: bool = False
    marked: int = 0  # so many of the first messages are marked as redelivered
    start: Start | None = None
    policy: Policy | None = None
    views: tuple[SubscriptionSeen, ...] | None = None  # None: not asked for
    source: str = ""
    number: int = -1
    parts: tuple[str, ...] = ()
    digests: bytes = b""  # DIGEST_BYTES of each message

    @property
    def done(self) -> bool:
        """Return whether the answer says that it was done."""
        return self.returned is not None and not self.error

    @property
    def refused(self) -> bool:
        return self.returned is not None and bool(self.error)

    @property
    def messages(self) -> int:
        return len(self.digests) // DIGEST_BYTES


History = list[Operation]


def cut(digests: bytes | bytearray) -> list[bytes]:
    """Return the digest of each message."""
    starts = range(0, len(digests), DIGEST_BYTES)
    return [bytes(digests[at : at + DIGEST_BYTES]) for at in starts]


def digests_of(messages: Iterable[Message]) -> bytes:
    """Return the checksums of what was put: value, key and headers."""
    return _packed([_digest(each) for each in messages])


def digests_of_values(values: Iterable[bytes]) -> bytes:
    """Return the checksums of messages that have no key and no headers."""
    return _packed([google_crc32c.value(value) or 1 for value in values])


def digests_of_batch(data: bytes, skip: int = 0, count: int | None = None) -> bytes:
    """Return the checksums of the messages in a packed batch, or of some of them."""
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
    return digest or 1  # 0 stands for a message of which nothing is known


def _packed(digests: Iterable[int]) -> bytes:
    packed = array("I", digests)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
