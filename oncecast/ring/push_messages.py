"""Push delivery messages between a leader, the root of a topic's tree, and its readers.

client → its process          Tune                  process → client      Delivery, FlowEnded
root's process → leader       PushWanted            leader → process      Push
readers' process → leader     Fill, CheckReaders    leader → process      Filled, ReadersChecked
process → parent → … → leader AcksUp
"""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.wire.commands import Ack
from oncecast.wire.errors import AnyRefusal
from oncecast.wire.frames import Chunk, Scan, Scanned

TOPICS_MAX = 1000  # maximum number of topics per message
READERS_MAX = 1000
UNKNOWN = -1  # leaders of earlier versions do not report the value


class PushWanted(Value, tag="Casting"):
    """Ask the leader to push these topics to this root."""

    topics: tuple[str, ...]


class Push(Value, tag="Cast"):
    """New messages of a topic. A push without chunks only reports the end of the topic."""

    topic: str
    topic_id: int
    next: int
    chunks: tuple[Chunk, ...]
    gossip: bool = False  # whether to broadcast the messages instead of using a tree
    fenced: int = 0  # the last epoch that may have fenced a reader


class Fill(Value, tag="Fill"):
    scan: Scan


class Filled(Value, tag="Filled"):
    topic: str
    scanned: Scanned
    fenced: int = 0  # as in Push


class ReaderId(Value, tag=False):
    """A reader whose permission is checked."""

    topic: str
    subscription: str
    epoch: int
    principal: str = ""  # the principal of the client that reads


class CheckReaders(Value, tag="Vouch"):
    reader_ids: tuple[ReaderId, ...]


class ReadPermit(Value, tag=False):
    """The state of a subscription, or in `why` the reason that the reader must stop."""

    reader_id: ReaderId
    cursor: int
    suspect_below: int
    topic_id: int
    first: int
    next: int
    why: AnyRefusal | None = None
    last_epoch: int = UNKNOWN  # the group's last epoch; a later one may fence the reader
    may_ack: bool = True


class ReadersChecked(Value, tag="Vouched"):
    permits: tuple[ReadPermit, ...]


class AcksUp(Value, tag="AcksUp"):
    """Each subscription's newest ack, on its way up the tree."""

    topic: str
    acks: tuple[Ack, ...]
