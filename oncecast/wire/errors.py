"""Why the pub/sub machine refused a command: results with a code that stays, a text and a remedy.

A refused command has changed nothing (but the clock).

    Refusal
    ├── InvalidTopic · InvalidName · InvalidArgument · TooLarge · TooMany
    ├── NoSuchTopic · TopicExists · NameInUse
    ├── Unopened · Gap · NotSubscribed · OutOfRange
    ├── Fenced · Repositioned
    ├── NotStaged
    ├── Overloaded · BadBatch · NotHere    of the node, before the machine sees the command
    └── Forgotten                          of the client, about its own outbox
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, get_args

from oncecast.kernel.protocol import Value


class Refusal(Value):
    code: ClassVar[str]
    remedy: ClassVar[str]

    @property
    @abstractmethod
    def text(self) -> str:
        """Say what is wrong."""

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}"


class InvalidTopic(Refusal, tag="InvalidTopic"):
    code = "invalid-topic"
    remedy = "name it with 1 to 255 bytes of UTF-8"

    @property
    def text(self) -> str:
        return "the topic's name is empty, too long or no Unicode"


class InvalidName(Refusal, tag="InvalidName"):
    what: str

    code = "invalid-name"
    remedy = "name it with 1 to 255 bytes of UTF-8"

    @property
    def text(self) -> str:
        return f"the {self.what} is empty, too long or no Unicode"


class InvalidArgument(Refusal, tag="InvalidArgument"):
    fact: str

    code = "invalid-argument"
    remedy = "correct the request"

    @property
    def text(self) -> str:
        return self.fact


class TooLarge(Refusal, tag="TooLarge"):
    what: str
    max: int

    code = "too-large"
    remedy = "put less at once"

    @property
    def text(self) -> str:
        return f"more than {self.max} {self.what} in one batch"


class TooMany(Refusal, tag="TooMany"):
    what: str
    max: int

    code = "too-many"
    remedy = "remove some, or raise the limit"

    @property
    def text(self) -> str:
        return f"there are {self.max} {self.what} already"


class NoSuchTopic(Refusal, tag="NoSuchTopic"):
    topic: str

    code = "no-such-topic"
    remedy = "create it, or subscribe to it"

    @property
    def text(self) -> str:
        return f"topic {self.topic!r} does not exist"


class TopicExists(Refusal, tag="TopicExists"):
    topic: str

    code = "topic-exists"
    remedy = "change the policy of the existing topic, or delete it first"

    @property
    def text(self) -> str:
        return f"topic {self.topic!r} exists with another policy"


class NameInUse(Refusal, tag="NameInUse"):
    topic: str
    name: str

    code = "name-in-use"
    remedy = "choose another name"

    @property
    def text(self) -> str:
        return f"in topic {self.topic!r} a producer and a source are both called {self.name!r}"


class Unopened(Refusal, tag="Unopened"):
    topic: str
    producer: str

    code = "unopened"
    remedy = "open the producer first"

    @property
    def text(self) -> str:
        return f"topic {self.topic!r} does not know the producer {self.producer!r}"


class Gap(Refusal, tag="Gap"):
    """A request to resend from `expected` on."""

    expected: int

    code = "gap"
    remedy = "send again from there"

    @property
    def text(self) -> str:
        return f"messages before this one are missing, from {self.expected} on"


class NotSubscribed(Refusal, tag="NotSubscribed"):
    topic: str
    subscription: str

    code = "not-subscribed"
    remedy = "subscribe first"

    @property
    def text(self) -> str:
        return f"topic {self.topic!r} has no subscription {self.subscription!r}"


class OutOfRange(Refusal, tag="OutOfRange"):
    next: int

    code = "out-of-range"
    remedy = "name only offsets that were delivered"

    @property
    def text(self) -> str:
        return f"the topic ends before offset {self.next}"


class Fenced(Refusal, tag="Fenced"):
    """`epoch` is the one that holds."""

    epoch: int

    code = "fenced"
    remedy = "stop, or take another name"

    @property
    def text(self) -> str:
        return "a newer process goes by this name"


class Repositioned(Refusal, tag="Repositioned"):
    """Still the same life, but somebody sought in between: go on from `cursor`, in `epoch`."""

    epoch: int
    cursor: int

    code = "repositioned"
    remedy = "read on from there"

    @property
    def text(self) -> str:
        return f"the subscription was moved to offset {self.cursor}"


class NotStaged(Refusal, tag="NotStaged"):
    source: str
    number: int
    part: str

    code = "not-staged"
    remedy = "stage all parts of the number again, then publish"

    @property
    def text(self) -> str:
        return f"part {self.part!r} of {self.source!r} number {self.number} is not staged"


DISK = "data on the node's disk"


class Overloaded(Refusal, tag="Overloaded"):
    """The node's, not the machine's: it takes nothing more until some of it is done."""

    what: str

    code = "overloaded"
    remedy = "try again a little later"

    @property
    def text(self) -> str:
        if self.what == DISK:
            return "the node's disk is full"
        return f"there is too much of {self.what} at once"


class BadBatch(Refusal, tag="BadBatch"):
    """The node's, not the machine's: what was put is damaged, or not what it is said to be."""

    fact: str

    code = "bad-batch"
    remedy = "put the messages again"

    @property
    def text(self) -> str:
        return self.fact


class NotHere(Refusal, tag="NotHere"):
    """The group's: others own the topic. A session finds them; no application ever sees this."""

    topic: str

    code = "not-here"
    remedy = "ask any node of the ring whose it is"

    @property
    def text(self) -> str:
        return f"topic {self.topic!r} is not of this group"


class Forgotten(Refusal, tag="Forgotten"):
    """The client's: the topic no longer has the record by which it would know these messages."""

    topic: str
    producer: str

    code = "forgotten"
    remedy = "check the topic before you put them again"

    @property
    def text(self) -> str:
        return (
            f"topic {self.topic!r} no longer has a record of producer {self.producer!r} (it was "
            "idle for too long, or the topic was deleted): whether these messages are stored is "
            "unknown"
        )


MachineRefusal = (
    InvalidTopic
    | InvalidName
    | InvalidArgument
    | TooLarge
    | TooMany
    | NoSuchTopic
    | TopicExists
    | NameInUse
    | Unopened
    | Gap
    | NotSubscribed
    | OutOfRange
    | Fenced
    | Repositioned
    | NotStaged
)
AnyRefusal = MachineRefusal | Overloaded | BadBatch | NotHere | Forgotten
REFUSALS: tuple[type[Refusal], ...] = get_args(MachineRefusal)
