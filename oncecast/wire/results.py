"""What the pub/sub machine answers. `already` means: done before, nothing has changed now."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.wire import errors


class TopicCreated(Value, tag="TopicCreated"):
    topic_id: int  # of this life of the topic: another one has another
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
    """The books that it was opened with have put `mine` last: the first sequence, and the end.

    Another `record` than before: what the topic knew of the producer was given back meanwhile.
    """

    epoch: int
    next_sequence: int
    topic_id: int
    mine: tuple[int, int]
    record: int = 0


class Appended(Value, tag="Appended"):
    """`count` is less than was put if the beginning was here already."""

    offset: int
    count: int
    kept: bool  # can anybody ever get it?


class Already(Value, tag="Already"):
    """All of it was appended before, at `offset`; -1 if that is no longer known."""

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
    """Read from `cursor`. What is before `first` is gone, before `suspect_below` maybe seen."""

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
    """One result an ack, in their order."""

    results: tuple[AckResult, ...]


class Sought(Value, tag="Sought"):
    epoch: int
    cursor: int
    already: bool


class Staged(Value, tag="Staged"):
    """`already`: staged before, or its number is published and the part is not taken."""

    already: bool


class Published(Value, tag="Published"):
    """Where the messages of one number went. Of older numbers this is forgotten: no ranges."""

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


class Carried(Value, tag="Carried"):
    """Not `moved`: nobody needs the old place any more, or for something else."""

    moved: bool


class MoveStep(Value, tag="MoveStep"):
    """Whether it is `so` now, by this command or an earlier one like it."""

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
    | Carried
    | MoveStep
)
Result = Done | errors.Refusal
