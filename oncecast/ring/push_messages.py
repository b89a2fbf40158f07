"""What is said for push delivery, between a leader, the root of a topic's tree and its readers.

a client → its process        Tune            Delivery, FlowEnded ←
root's process → leader       Casting         leader → its process, or the root   Cast
readers' process → leader     Fill, Vouch     leader → process                    Filled, Vouched
process → parent → … → leader Acked
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.wire.commands import Ack
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.frames import Chunk, Scan, Scanned

TOPICS_MAX = 1000  # in one message
READERS_MAX = 1000
UNKNOWN = -1  # by a leader with an earlier version


class PushWanted(Value, tag="Casting"):
    """These topics have readers by a tree whose root is here: send what comes."""

    topics: tuple[str, ...]


class Push(Value, tag="Cast"):
    """What comes next in `life` of `topic`; without chunks only how far it reaches by now."""

    topic: str
    topic_id: int
    next: int
    chunks: tuple[Chunk, ...]
    gossip: bool = False  # spread it without a tree
    fenced: int = 0  # the last epoch that may have ended the right of a reader


class Fill(Value, tag="Fill"):
    scan: Scan


class Filled(Value, tag="Filled"):
    topic: str
    scanned: Scanned
    fenced: int = 0  # as in Cast


class ReaderId(Value, tag=False):
    """Somebody reads: may they?"""

    topic: str
    subscription: str
    epoch: int


class CheckReaders(Value, tag="Vouch"):
    reader_ids: tuple[ReaderId, ...]


class ReadPermit(Value, tag=False):
    """So the subscription stands; or why it may not be read."""

    reader_id: ReaderId
    cursor: int
    suspect_below: int
    topic_id: int
    first: int
    next: int
    why: AnyRefusal | None = None
    last_epoch: int = UNKNOWN  # the last one that was given; later ones may end the right to read


class ReadersChecked(Value, tag="Vouched"):
    permits: tuple[ReadPermit, ...]


class AcksUp(Value, tag="AcksUp"):
    """Acks on their way up a tree, the newest of each subscription."""

    topic: str
    acks: tuple[Ack, ...]


PushMessage = PushWanted | Push | Fill | Filled | CheckReaders | ReadersChecked | AcksUp
