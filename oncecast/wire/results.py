"""Results of the pub/sub machine. `already` means that an earlier copy took effect."""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from oncecast.kernel.protocol import Value
from oncecast.wire import errors
from oncecast.wire.partitions import Term
from oncecast.wire.sharing import Run


class TopicCreated(Value, tag="TopicCreated"):
    topic_id: int  # a topic that is deleted and recreated gets a new id
    already: bool


class PolicySet(Value, tag="PolicySet"):
    already: bool


class TopicDeleted(Value, tag="TopicDeleted"):
    already: bool


class LimitsSet(Value, tag="LimitsSet"):
    pass


class Ticked(Value, tag="Ticked"):
    topics: tuple[str, ...] = ()  # topics that received messages whose delay has ended


class Opened(Value, tag="Opened"):
    """The producer is open. `mine` is the last range of sequence numbers from this state directory.

    If `record` has changed, the producer's record was deleted in the meantime.
    """

    epoch: int
    next_sequence: int
    topic_id: int
    mine: tuple[int, int]
    record: int = 0


class Appended(Value, tag="Appended"):
    """The messages are stored.

    If some were already stored, `count` is lower than the number of messages in the put.
    """

    offset: int
    count: int
    kept: bool  # whether the messages are kept; False if no reader can ever get them


class Already(Value, tag="Already"):
    """All messages had already been appended, starting at `offset` (-1 if unknown)."""

    offset: int
    count: int


class ProducerClosed(Value, tag="ProducerClosed"):
    already: bool


class Subscribed(Value, tag="Subscribed"):
    cursor: int
    topic_id: int
    already: bool


class Unsubscribed(Value, tag="Unsubscribed"):
    already: bool


class Attached(Value, tag="Attached"):
    """Start reading at `cursor`. Messages before `first` are no longer kept.

    Messages before `suspect_below` may have been delivered already.
    """

    epoch: int
    cursor: int
    first: int
    next: int
    suspect_below: int
    topic_id: int


class Detached(Value, tag="Detached"):
    suspect_below: int


class Acked(Value, tag="Acked"):
    cursor: int


AckResult = (
    Acked
    | errors.InvalidTopic
    | errors.NoSuchTopic
    | errors.NotSubscribed
    | errors.WrongKind
    | errors.Fenced
    | errors.Repositioned
    | errors.OutOfRange
)


class AcksDone(Value, tag="AcksDone"):
    """One result per ack, in the same order."""

    results: tuple[AckResult, ...]


class Sought(Value, tag="Sought"):
    epoch: int
    cursor: int
    already: bool


class GrantMade(Value, tag=False):
    """The messages that a worker got: runs of a first offset and a count."""

    worker: str
    token: int
    runs: tuple[tuple[int, int], ...]


class Leased(Value, tag="Leased"):
    grants: tuple[GrantMade, ...]


class Settled(Value, tag="Settled"):
    """The settlement is stored, except for the `stale` runs: their tokens are not current.

    All messages before `cursor` are settled.
    """

    cursor: int
    stale: tuple[Run, ...] = ()


SettleResult = (
    Settled
    | errors.InvalidTopic
    | errors.NoSuchTopic
    | errors.NotSubscribed
    | errors.InvalidArgument
    | errors.WrongKind
    | errors.NotHere
)


class SettlesDone(Value, tag="SettlesDone"):
    """The results of the settlements, in the same order."""

    results: tuple[SettleResult, ...]


class Buried(Value, tag="Buried"):
    """The dead letters are stored. `done` is False if some of them were settled before."""

    done: bool
    offset: int = -1  # offset of the first dead letter in its topic


class Staged(Value, tag="Staged"):
    """The part is staged. `already` is set if it was staged before or its number is published."""

    already: bool


class PublishedRange(Value, tag=False):
    topic: str
    offset: int
    count: int
    kept: bool


class Published(Value, tag="Published"):
    """The offset ranges of a published number. They are known only for the latest number."""

    ranges: tuple[PublishedRange, ...]
    already: bool


class StagedDropped(Value, tag="StagedDropped"):
    parts: int


class SourceClosed(Value, tag="SourceClosed"):
    already: bool


class SourceOpened(Value, tag="SourceOpened"):
    """The source is open for transactions. `ring` says whether each tag has its own record."""

    epoch: int
    ring: bool = False
    next: int = 0  # the lowest number that the process may use


class TransactionEnded(Value, tag="TransactionEnded"):
    """The transaction is committed, with these offsets, or aborted."""

    committed: bool
    ranges: tuple[PublishedRange, ...]
    already: bool


class PartitionsSet(Value, tag="PartitionsSet"):
    """The topic has `count` partitions. A closed topic had so many."""

    count: int
    already: bool


class GroupAdded(Value, tag="GroupAdded"):
    """The topic has the consumer group, and this many partitions."""

    partitions: int
    already: bool


class GroupRemoved(Value, tag="GroupRemoved"):
    already: bool


class Enlisted(Value, tag="Enlisted"):
    """The member's assignments.

    The member reads those in `held`, and stops to read those in `release`, and all others. With
    `waiting`, more assignments follow once other members have released them.
    """

    partitions: int
    held: tuple[Term, ...]
    release: tuple[Term, ...] = ()
    waiting: bool = False


class TransactionPrepared(Value, tag="TransactionPrepared"):
    """The group holds the share of the transaction until the transaction is decided."""

    already: bool


class GroupLeft(Value, tag="GroupLeft"):
    already: bool


class AccessSet(Value, tag="AccessSet"):
    """The version of the users, tokens and rules after the command."""

    version: int
    already: bool


class Carried(Value, tag="Carried"):
    """`moved` is False if the entry was dropped or had already moved."""

    moved: bool


class MoveStep(Value, tag="MoveStep"):
    """`done` is True if this command or an earlier copy took effect."""

    done: bool


Done = (
    TopicCreated
    | PolicySet
    | TopicDeleted
    | LimitsSet
    | Ticked
    | Opened
    | Appended
    | Already
    | ProducerClosed
    | Subscribed
    | Unsubscribed
    | Attached
    | Detached
    | Acked
    | AcksDone
    | Sought
    | Leased
    | Settled
    | SettlesDone
    | Buried
    | Staged
    | Published
    | StagedDropped
    | SourceClosed
    | SourceOpened
    | TransactionEnded
    | PartitionsSet
    | GroupAdded
    | GroupRemoved
    | Enlisted
    | GroupLeft
    | TransactionPrepared
    | AccessSet
    | Carried
    | MoveStep
)
Result = Done | errors.Refusal
