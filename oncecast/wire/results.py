"""Results of the pub/sub machine. `already` means that an earlier copy had the effect."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.wire import errors


class TopicCreated(Value, tag="TopicCreated"):
    topic_id: int  # unique: a topic that is deleted and created again gets a new id
    already: bool


class PolicySet(Value, tag="PolicySet"):
    already: bool


class TopicDeleted(Value, tag="TopicDeleted"):
    already: bool


class LimitsSet(Value, tag="LimitsSet"):
    pass


class Ticked(Value, tag="Ticked"):
    pass


class Opened(Value, tag="Opened"):
    """The producer is open. `mine` is the range of sequences that this state directory put last.

    If `record` has changed, the record of the producer was deleted in between.
    """

    epoch: int
    next_sequence: int
    topic_id: int
    mine: tuple[int, int]
    record: int = 0


class Appended(Value, tag="Appended"):
    """The messages are stored. `count` is less than in the put if some were already stored."""

    offset: int
    count: int
    kept: bool  # False if no reader can ever get the messages


class Already(Value, tag="Already"):
    """All messages were already appended, at `offset`, or -1 if the offset is unknown."""

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
    """Read from `cursor` on. Messages before `first` are no longer kept.

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
    | errors.Fenced
    | errors.Repositioned
    | errors.OutOfRange
)


class AcksDone(Value, tag="AcksDone"):
    """The results of the acks, in the same order."""

    results: tuple[AckResult, ...]


class Sought(Value, tag="Sought"):
    epoch: int
    cursor: int
    already: bool


class Staged(Value, tag="Staged"):
    """The part is staged. `already`: it was staged before, or its number is published."""

    already: bool


class Published(Value, tag="Published"):
    """The offsets of the messages of one number. The result of an older number has no ranges."""

    ranges: tuple[PublishedRange, ...]
    already: bool


class PublishedRange(Value, tag=False):
    topic: str
    offset: int
    count: int
    kept: bool


class StagedDropped(Value, tag="StagedDropped"):
    parts: int


class SourceClosed(Value, tag="SourceClosed"):
    already: bool


class AccessSet(Value, tag="AccessSet"):
    """Users, tokens and rules now have this version."""

    version: int
    already: bool


class Carried(Value, tag="Carried"):
    """`moved` is False if the old slot is not needed or has another entry."""

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
    | Staged
    | Published
    | StagedDropped
    | SourceClosed
    | AccessSet
    | Carried
    | MoveStep
)
Result = Done | errors.Refusal
