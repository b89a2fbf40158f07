"""What a client raises: exceptions a caller can tell apart, each with a `code` that stays (SVC-7).

OncecastError
├── InvalidTopic · InvalidName · InvalidArgument     correct what was asked for
├── PayloadTooLarge · TooMany                        over a limit
├── NoSuchTopic · TopicExists · NotSubscribed        not there, or there already
├── TopicReplaced                                    another one of the same name
├── NameInUse · Fenced                               somebody else goes by this name
├── OutOfRange · MessagesLost                        an offset that is not kept
├── NotStaged · BadBatch
├── Forgotten                                        whether a put is stored is unknown
├── Overloaded · TimedOut · NoQuorum                 later, perhaps
├── NotConnected · Closed                            there is no session
└── StateUnusable                                    the state directory

What a node refuses becomes one of these in `raised`, and nowhere else.
"""

from __future__ import annotations

from oncecast.client.session.local import NoAnswer
from oncecast.wire import errors as refusals


class OncecastError(Exception):
    """The root. Its text is the `fact`, and the `remedy`, which says what to do."""

    code = "error"
    remedy = ""

    def __init__(self, fact: str, remedy: str = "") -> None:
        self.fact, self.remedy = fact, remedy or type(self).remedy
        super().__init__(f"{fact}; {self.remedy}" if self.remedy else fact)


class InvalidTopic(OncecastError, ValueError):
    code = refusals.InvalidTopic.code
    remedy = refusals.InvalidTopic.remedy


class InvalidName(OncecastError, ValueError):
    code = refusals.InvalidName.code
    remedy = refusals.InvalidName.remedy


class InvalidArgument(OncecastError, ValueError):
    code = refusals.InvalidArgument.code


class PayloadTooLarge(OncecastError, ValueError):
    code = refusals.TooLarge.code
    remedy = "put less at once, or raise batch_bytes_max of the node"


class TooMany(OncecastError):
    code = refusals.TooMany.code
    remedy = refusals.TooMany.remedy


class NoSuchTopic(OncecastError, LookupError):
    code = refusals.NoSuchTopic.code
    remedy = refusals.NoSuchTopic.remedy


class TopicExists(OncecastError):
    code = refusals.TopicExists.code
    remedy = refusals.TopicExists.remedy


class TopicReplaced(OncecastError, LookupError):
    """What was read, or asked for, belongs to a topic that is no more."""

    code = "topic-replaced"
    remedy = "begin anew, from the start of the topic that goes by its name now"

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} was deleted and made again")


class NotSubscribed(OncecastError, LookupError):
    code = refusals.NotSubscribed.code
    remedy = refusals.NotSubscribed.remedy


class NameInUse(OncecastError):
    code = refusals.NameInUse.code
    remedy = refusals.NameInUse.remedy


class Fenced(OncecastError):
    """A newer process took over. What it was told of is done; the rest it cannot know."""

    code = refusals.Fenced.code
    remedy = refusals.Fenced.remedy


class OutOfRange(OncecastError, ValueError):
    code = refusals.OutOfRange.code
    remedy = "read from an offset that the topic has; was it deleted and made again?"


class MessagesLost(OncecastError):
    """The topic's policy let messages go unread: those from `first` to before `next`.

    It is raised once, in their place; whoever goes on reading gets what comes behind them.
    """

    code = "messages-lost"
    remedy = "read sooner, or give the topic a policy without drop_unread"

    def __init__(self, topic: str, first: int, next_: int) -> None:
        self.first, self.next = first, next_
        super().__init__(f"offsets {first} to {next_ - 1} of topic {topic!r} went unread")


class NotStaged(OncecastError):
    code = refusals.NotStaged.code
    remedy = refusals.NotStaged.remedy


class BadBatch(OncecastError):
    code = refusals.BadBatch.code
    remedy = "if you were putting, put the messages again; if you were reading, seek past them"


class Forgotten(OncecastError):
    """The topic has no record of this client: the client was idle for too long, or the topic was
    deleted and created again. Whether the messages were stored is unknown."""

    code = refusals.Forgotten.code
    remedy = refusals.Forgotten.remedy


class Overloaded(OncecastError):
    code = refusals.Overloaded.code
    remedy = refusals.Overloaded.remedy


class TimedOut(OncecastError, TimeoutError):
    """Whether it was done is not known. To ask for the same again does no harm, but for a put:

    what was put stays under way, and to put it again would be another message.
    """

    code = "timed-out"
    remedy = "try again, or give it more time"


class NoQuorum(TimedOut):
    """As TimedOut, and the nodes say why: nobody leads them, because too few are there."""

    code = "no-quorum"
    remedy = "start more nodes of the group; more than half of them must be there"


class NotConnected(OncecastError, ConnectionError):
    code = "not-connected"

    def __init__(self, fact: str, remedy: str = "", *, refused: bool = True) -> None:
        super().__init__(fact, remedy)
        self.refused = refused  # or else nobody was reached who could say why


class Closed(OncecastError):
    code = "closed"
    remedy = "open another one"


class StateUnusable(OncecastError):
    code = "state-unusable"


BY_REFUSAL: dict[type[refusals.Refusal], type[OncecastError]] = {
    refusals.InvalidTopic: InvalidTopic,
    refusals.InvalidName: InvalidName,
    refusals.InvalidArgument: InvalidArgument,
    refusals.TooLarge: PayloadTooLarge,
    refusals.TooMany: TooMany,
    refusals.NoSuchTopic: NoSuchTopic,
    refusals.TopicExists: TopicExists,
    refusals.NameInUse: NameInUse,
    refusals.Unopened: OncecastError,  # the session opens by itself: nobody ever sees
    refusals.Gap: OncecastError,  # these four
    refusals.Repositioned: OncecastError,
    refusals.NotHere: OncecastError,
    refusals.NotSubscribed: NotSubscribed,
    refusals.OutOfRange: OutOfRange,
    refusals.Fenced: Fenced,
    refusals.NotStaged: NotStaged,
    refusals.Overloaded: Overloaded,
    refusals.BadBatch: BadBatch,
    refusals.Forgotten: Forgotten,
}


def raised(refused: refusals.Refusal | NoAnswer) -> OncecastError:
    """The exception for what a session was refused."""
    if isinstance(refused, NoAnswer):
        late = TimedOut if refused.led else NoQuorum
        return late(f"no answer within {refused.seconds:g} s")
    return BY_REFUSAL[type(refused)](refused.text)
