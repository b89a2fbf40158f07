"""Commands for the pub/sub state machine.

`at` is the leader's time in microseconds; the machine has no other clock. `incarnation` is the
random id of a client process. The id distinguishes a repeated command from one sent by a new
process.

`expected` makes a takeover conditional. It is the epoch that the client believes to be current, or
0 if it believes that the name is free. If a different epoch is current, the machine answers
`Fenced` with that epoch and changes nothing. A late command from a dead process therefore cannot
displace its successor. `PublishStaged` works the same way.

`Stage.epoch` is the epoch of a source that was opened for transactions. The machine refuses to
stage with any other epoch, and refuses `PublishStaged` for such a source.

`run` identifies one run of a program that stages and publishes as a source. A new run takes over
from earlier ones. Older clients send no run and are not fenced.

`token` is unique to a call and shared by its copies. The machine keeps the results of recent calls
that have a token (see `answered`). A later copy gets the stored result, marked `already`, and
changes nothing. Older clients send no token.
"""

from __future__ import annotations

from typing import ClassVar, get_args

from oncecast.kernel.protocol import Value
from oncecast.security.values import Credentials, Rule
from oncecast.wire.limits import Limits
from oncecast.wire.partitions import (
    PARTITION_LEVEL,
    AddGroup,
    OfGroup,
    RemoveGroup,
    SetPartitions,
)
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.ring_transactions import (
    ConfirmTransactions,
    DecideTransaction,
    ExpireTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.sharing import SHARED_LEVEL, Settle, Shared
from oncecast.wire.timing import TIMING_LEVEL, Timing
from oncecast.wire.transactions import TRANSACTION_LEVEL, EndTransaction

ANY_EPOCH = -1  # take over from any process, as older clients do
SEEK_LEVEL = 2  # from this feature level on, a repeated seek has no second effect

# Where to start reading. If that message is no longer kept, reading starts at the nearest one.


class FromNew(Value, tag="FromNew"):
    """Start with the next message put to the topic."""


class FromEarliest(Value, tag="FromEarliest"):
    """Start with the oldest message that is still kept."""


class FromOffset(Value, tag="FromOffset"):
    offset: int


class FromTime(Value, tag="FromTime"):
    """Start with the first batch appended at `at` or later. Message timestamps are ignored."""

    at: int


Start = FromNew | FromEarliest | FromOffset | FromTime


# Topics.


class CreateTopic(Value, tag="CreateTopic"):
    topic: str
    at: int
    policy: Policy = DEFAULT
    token: str = ""
    partitions: int = 0  # create the descriptor of a topic with this many partitions
    partition_of: str = ""  # or create a partition of this topic

    @property
    def field_level(self) -> int:
        partitioned = self.partitions or self.partition_of
        return max(self.policy.level, PARTITION_LEVEL if partitioned else 1)


class SetPolicy(Value, tag="SetPolicy"):
    topic: str
    at: int
    policy: Policy
    token: str = ""

    @property
    def field_level(self) -> int:
        return self.policy.level


class DeleteTopic(Value, tag="DeleteTopic"):
    topic: str
    at: int
    token: str = ""
    # Delete the topic only if it is a partition of this topic, or the closed descriptor itself.
    partition_of: str = ""

    @property
    def field_level(self) -> int:
        return PARTITION_LEVEL if self.partition_of else 1


class SetLimits(Value):
    """Set the limits, and raise the feature level to `level` unless it is already higher."""

    limits: Limits
    level: int = 1


class Tick(Value):
    """Advance the clock, expire messages by age, and release the delayed messages that are due.

    `elapsed` is the time since the last stamp, measured by the leader's monotonic clock. With
    `producers`, also delete the records of producers and sources that have been idle for too long.
    """

    at: int
    elapsed: int = 0
    producers: bool = False


# Producers.


class OpenProducer(Value, tag="OpenProducer"):
    """Give the producer name to `incarnation`, and fence any older incarnation.

    `directory_id` identifies the state directory that assigns sequence numbers. It survives
    restarts.
    """

    topic: str
    producer: str
    incarnation: str
    at: int
    create: bool = True  # whether to create a missing topic
    directory_id: str = ""
    expected: int = ANY_EPOCH


class Put(Value, tag="Put"):
    """Append a batch of `count` messages and `size` bytes, numbered from `sequence`."""

    topic: str
    producer: str
    epoch: int
    sequence: int
    count: int
    size: int
    at: int
    batch: bytes


class TimedPut(Put, tag="TimedPut"):
    """A put whose messages are delayed, or have a time to live."""

    feature_level: ClassVar[int] = TIMING_LEVEL

    timing: Timing = Timing()


class CloseProducer(Value, tag="CloseProducer"):
    """Delete the record of a producer that will not return."""

    topic: str
    producer: str
    epoch: int


# Subscriptions.


class Subscribe(Value, tag="Subscribe"):
    topic: str
    subscription: str
    start: Start
    at: int
    token: str = ""
    create: bool = True  # whether to create a missing topic

    @property
    def field_level(self) -> int:
        return 1 if self.create else PARTITION_LEVEL


class Unsubscribe(Value, tag="Unsubscribe"):
    topic: str
    subscription: str
    at: int
    token: str = ""


class Attach(Value, tag="Attach"):
    """Make `incarnation` the reader of the subscription, and fence the previous reader.

    A member of a consumer group gives the term of its assignment. The machine refuses a lower term
    than that of an earlier Attach.
    """

    topic: str
    subscription: str
    incarnation: str
    expected: int = ANY_EPOCH
    term: int = 0

    @property
    def field_level(self) -> int:
        return PARTITION_LEVEL if self.term else 1


class Detach(Value, tag="Detach"):
    """Stop reading. `delivered` is the offset after the last message that the reader delivered."""

    topic: str
    subscription: str
    epoch: int
    delivered: int


class Ack(Value, tag="Ack"):
    """Acknowledge all messages before `upto`."""

    topic: str
    subscription: str
    epoch: int
    upto: int


class Acks(Value):
    """Acks for several subscriptions, combined into one log slot."""

    acks: tuple[Ack, ...]
    at: int


class Seek(Value, tag="Seek"):
    """Move the cursor to `start`. Copies share a `token`.

    The seek of a reader has the reader's `epoch`. Any other seek has epoch 0, and names the epoch
    of the subscription that it replaces as `expected`. A group below `SEEK_LEVEL` ignores
    `expected`.
    """

    topic: str
    subscription: str
    start: Start
    at: int
    token: str
    epoch: int = 0
    expected: int = ANY_EPOCH


# Shared subscriptions: see the module `sharing`.


class SubscribeShared(Value, tag="SubscribeShared"):
    """Create a shared subscription, or change its settings.

    Without `settings`, an existing subscription keeps its settings, and a new one gets the default.
    """

    feature_level: ClassVar[int] = SHARED_LEVEL

    topic: str
    subscription: str
    start: Start
    at: int
    settings: Shared | None = None
    token: str = ""


class Lease(Value, tag="Lease"):
    """Release expired messages, and fill these workers' windows. Only the leader proposes a Lease.

    `wants` says how many messages each worker may hold in total. `gone` are workers that have
    disconnected. With `by_key`, `keys` holds a hash of each message's key from offset `keys_from`
    on, or 0 for a message without a key.
    """

    feature_level: ClassVar[int] = SHARED_LEVEL

    topic: str
    subscription: str
    at: int
    wants: tuple[tuple[str, int], ...] = ()
    gone: tuple[str, ...] = ()
    keys_from: int = 0
    keys: tuple[int, ...] = ()


class Settles(Value, tag="Settles"):
    """Settlements of several workers in one slot of the log."""

    feature_level: ClassVar[int] = SHARED_LEVEL

    settles: tuple[Settle, ...]
    at: int


# Staged puts.


class Stage(Value, tag="Stage"):
    """Store messages that stay invisible until `source` publishes `number` with `part`."""

    source: str
    number: int
    part: str
    topic: str
    count: int
    size: int
    at: int
    batch: bytes
    run: str = ""
    epoch: int = 0  # epoch of a source that was opened for transactions, or 0


class PublishStaged(Value, tag="PublishStaged"):
    """Append the parts to their topics in this order, all or nothing, once per number.

    On a ring, a source has one record per topic, and `topic` is required.

    A refusal gives the source a new epoch. A late copy of the refused command then no longer
    matches `expected`, and changes nothing.

    `digest` identifies the published content. The machine refuses to publish a number again with a
    different digest, and refuses a run that resumes below the last number. With `keep`, it also
    refuses to publish to a topic that has neither retention nor subscriptions and so would drop
    the messages.
    """

    source: str
    number: int
    parts: tuple[str, ...]
    at: int
    topic: str = ""
    expected: int = ANY_EPOCH
    run: str = ""
    digest: bytes = b""
    keep: bool = False


class DropStaged(Value, tag="DropStaged"):
    """Drop the parts of a number, unless another run has taken over.

    With `renew`, the source gets a new epoch, so that a late copy of a publish cannot affect parts
    staged later under the same names. Older clients never set it.
    """

    source: str
    number: int
    topic: str = ""
    token: str = ""
    run: str = ""
    renew: bool = False


class CloseSource(Value, tag="CloseSource"):
    """Delete the record and parts of a source that will not return.

    `renew` works as in DropStaged.
    """

    source: str
    at: int
    topic: str = ""
    token: str = ""
    renew: bool = False


# Transactions: see the module `transactions`.


class OpenSource(Value, tag="OpenSource"):
    """Give the source to `incarnation` for transactions, and fence any older incarnation.

    Drop the parts that older incarnations have staged. On a ring, the tag of `topic` has its own
    record of the source.
    """

    feature_level: ClassVar[int] = TRANSACTION_LEVEL

    source: str
    incarnation: str
    topic: str
    at: int
    expected: int = ANY_EPOCH


# Access. Commands never contain passwords or token secrets, only values derived from them.


class AddUser(Value, tag="AddUser"):
    """Add a user, or replace the credentials of an existing user.

    The first user of a cluster must be an administrator.
    """

    name: str
    credentials: Credentials | None  # None if the user logs in only by certificate or token
    admin: bool = False  # also add a rule that makes the user an administrator
    token: str = ""


class RemoveUser(Value, tag="RemoveUser"):
    """Remove a user, along with its tokens and rules."""

    name: str
    token: str = ""


class CreateToken(Value, tag="CreateToken"):
    id: str
    principal: str
    salt: bytes
    hash: bytes  # SHA-256 of the salt and the secret
    at: int
    lifetime_us: int = 0  # validity of the token in microseconds; 0 if it never expires
    token: str = ""


class RevokeToken(Value, tag="RevokeToken"):
    id: str
    token: str = ""


class Allow(Value, tag="Allow"):
    """Add a rule, or add its verbs to the rule with the same principal and pattern."""

    rule: Rule
    token: str = ""


class Disallow(Value, tag="Disallow"):
    """Remove these verbs from the rule with the same principal and pattern.

    If `rule` has no verbs, remove the whole rule.
    """

    rule: Rule
    token: str = ""


AccessCommand = AddUser | RemoveUser | CreateToken | RevokeToken | Allow | Disallow


class Bury(Value, tag="Bury"):
    """Append dead letters to their topic and settle them. Only the leader proposes it.

    `put` holds one message per offset, in the same order.
    """

    feature_level: ClassVar[int] = SHARED_LEVEL

    topic: str
    subscription: str
    offsets: tuple[int, ...]
    at: int
    put: Put


# The log.


class Carry(Value):
    """Copy `command` from slot `old` to this slot, so that the log can be truncated.

    `offset` identifies the batch's entry in the topic's index. It is -1 for a staged part, and
    below -1 for a delayed batch (see `delays.position`).
    """

    old: int
    offset: int
    command: Put | Stage


Command = (
    CreateTopic
    | SetPolicy
    | DeleteTopic
    | SetLimits
    | Tick
    | OpenProducer
    | Put
    | TimedPut
    | CloseProducer
    | Subscribe
    | Unsubscribe
    | Attach
    | Detach
    | Ack
    | Acks
    | Seek
    | SubscribeShared
    | Lease
    | Settles
    | Bury
    | Stage
    | PublishStaged
    | DropStaged
    | CloseSource
    | OpenSource
    | EndTransaction
    | SetPartitions
    | OfGroup
    | PrepareTransaction
    | DecideTransaction
    | ResolveTransaction
    | ExpireTransaction
    | ConfirmTransactions
    | AccessCommand
    | Carry
)

# Commands that the machine deduplicates by token.
Once = (
    CreateTopic
    | SetPolicy
    | DeleteTopic
    | Subscribe
    | SubscribeShared
    | Unsubscribe
    | DropStaged
    | CloseSource
    | SetPartitions
    | AddGroup
    | RemoveGroup
    | AccessCommand
)
ONCE: frozenset[type] = frozenset(get_args(Once))
