"""What the pub/sub machine answers. `already` means: done before, nothing has changed now."""

from __future__ import annotations

from oncecast.kernel.protocol import Value
from oncecast.pubsub import errors


class TopicCreated(Value):
    topic_id: int  # of this life of the topic: another one has another
    already: bool


class PolicySet(Value):
    already: bool


class TopicDeleted(Value):
    already: bool


class LimitsSet(Value):
    pass


class Ticked(Value):
    pass


class Opened(Value):
    """The books that it was opened with have put `mine` last: the first sequence, and the end.

    Another `record` than before: what the topic knew of the producer was given back meanwhile.
    """

    epoch: int
    next_sequence: int
    topic_id: int
    mine: tuple[int, int]
    record: int = 0


class Appended(Value):
    """`count` is less than was put if the beginning was here already."""

    offset: int
    count: int
    kept: bool  # can anybody ever get it?


class Already(Value):
    """All of it was appended before, at `offset`; -1 if that is no longer known."""

    offset: int
    count: int


class ProducerClosed(Value):
    already: bool


class Subscribed(Value):
    cursor: int
    topic_id: int
    already: bool


class Unsubscribed(Value):
    already: bool


class Attached(Value):
    """Read from `cursor`. What is before `first` is gone, before `suspect_below` maybe seen."""

    epoch: int
    cursor: int
    first: int
    next: int
    suspect_below: int
    topic_id: int


class Detached(Value):
    suspect_below: int


class Acked(Value):
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


class AcksDone(Value):
    """One result an ack, in their order."""

    results: tuple[AckResult, ...]


class Sought(Value):
    epoch: int
    cursor: int
    already: bool


class Staged(Value):
    """`already`: staged before, or its number is published and the part is not taken."""

    already: bool


class Published(Value):
    """Where the messages of one number went. Of older numbers this is forgotten: no ranges."""

    ranges: tuple[PublishedRange, ...]
    already: bool


class PublishedRange(Value, tag=False):
    topic: str
    offset: int
    count: int
    kept: bool


class StagedDropped(Value):
    parts: int


class SourceClosed(Value):
    already: bool


class Carried(Value):
    """Not `moved`: nobody needs the old place any more, or for something else."""

    moved: bool


class MoveStep(Value):
    """Whether it is `so` now, by this command or an earlier one like it."""

    so: bool


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
