"""Commands of the pub/sub machine.

`at` is the leader's time in microseconds; the machine has no other clock. `incarnation` is a random
id of a client process, which distinguishes a repeated command from a command of a new process.

`expected` makes a takeover conditional. It is the epoch that the client believes to be current, or
0 if it believes that no process holds the name. If another epoch is current, the machine refuses
the command as `Fenced` with that epoch and changes nothing. So a late command of a dead process
takes nothing from its successor. `PublishStaged` has the same condition.

`run` identifies a run of the program that stages and publishes under the name of a source. A new
run takes over from earlier ones. Older clients send no run and are not fenced.

`token` is unique to a call, and all copies of the call have the same token. The machine keeps the
results of the last calls with a token (`answered`). A later copy gets the stored result, marked
`already`, and changes nothing. Older clients send no token.
"""

from __future__ import annotations

from typing import get_args

from oncecast.kernel.protocol import Value
from oncecast.security.access import Rule
from oncecast.security.scram import Credentials
from oncecast.wire.limits import Limits
from oncecast.wire.retention import DEFAULT, Policy

ANY_EPOCH = -1  # an unconditional takeover, as sent by older clients

# Where reading starts. If a message is not kept, reading starts at the nearest kept message.


class FromNew(Value, tag="FromNew"):
    """Start with messages that are put from now on."""


class FromEarliest(Value, tag="FromEarliest"):
    """Start with the first kept message."""


class FromOffset(Value, tag="FromOffset"):
    offset: int


class FromTime(Value, tag="FromTime"):
    """Start with the first batch appended at `at` or later. Message timestamps do not count."""

    at: int


Start = FromNew | FromEarliest | FromOffset | FromTime


# Topics.


class CreateTopic(Value, tag="CreateTopic"):
    topic: str
    at: int
    policy: Policy = DEFAULT
    token: str = ""


class SetPolicy(Value, tag="SetPolicy"):
    topic: str
    at: int
    policy: Policy
    token: str = ""


class DeleteTopic(Value, tag="DeleteTopic"):
    topic: str
    at: int
    token: str = ""


class SetLimits(Value):
    """Set the limits, and raise the feature level to `level` unless it is higher already."""

    limits: Limits
    level: int = 1


class Tick(Value):
    """Advance the clock and expire messages by age.

    `elapsed` is the time since the last stamp, measured by the leader's monotonic clock. With
    `producers`, delete the records of producers and sources that were idle for too long.
    """

    at: int
    elapsed: int = 0
    producers: bool = False


# Producers.


class OpenProducer(Value, tag="OpenProducer"):
    """Assign the producer name to `incarnation`, and fence an older incarnation.

    `directory_id` identifies the state directory that numbers the sequences. It survives a restart.
    """

    topic: str
    producer: str
    incarnation: str
    at: int
    create: bool = True  # whether to create a missing topic
    directory_id: str = ""
    expected: int = ANY_EPOCH


class Put(Value, tag="Put"):
    """Append `count` messages in `size` bytes. The first message has the number `sequence`."""

    topic: str
    producer: str
    epoch: int
    sequence: int
    count: int
    size: int
    at: int
    batch: bytes


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


class Unsubscribe(Value, tag="Unsubscribe"):
    topic: str
    subscription: str
    at: int
    token: str = ""


class Attach(Value, tag="Attach"):
    """Make `incarnation` the reader of the subscription, and fence the previous reader."""

    topic: str
    subscription: str
    incarnation: str
    expected: int = ANY_EPOCH


class Detach(Value, tag="Detach"):
    """Stop reading. The reader has delivered exactly the messages before `delivered`."""

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
    """Acks of several subscriptions in one slot of the log."""

    acks: tuple[Ack, ...]
    at: int


class Seek(Value, tag="Seek"):
    """Continue reading at `start`. A nonzero `epoch` must be current. `token` identifies copies."""

    topic: str
    subscription: str
    start: Start
    at: int
    token: str
    epoch: int = 0


# Staged puts.


class Stage(Value, tag="Stage"):
    """Store messages that stay invisible until `source` publishes `number` with this part."""

    source: str
    number: int
    part: str
    topic: str
    count: int
    size: int
    at: int
    batch: bytes
    run: str = ""


class PublishStaged(Value, tag="PublishStaged"):
    """Append the parts to their topics in this order, all or none, once per number.

    On a ring, a source has one record per topic, and `topic` is required.

    A refusal gives the source a new epoch. `expected` is the epoch that the client believes to be
    current. So a late copy of a refused command changes nothing.

    `digest` identifies the content of the number. The machine refuses a repeated publish with
    another digest, and a run that continues below the last number. With `keep`, it also refuses the
    command if a topic without retention and subscriptions would drop the messages.
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

    With `renew`, the source gets a new epoch. So a late copy of a publish has no effect on parts
    that are staged under the same names later. Older clients do not ask for it.
    """

    source: str
    number: int
    topic: str = ""
    token: str = ""
    run: str = ""
    renew: bool = False


class CloseSource(Value, tag="CloseSource"):
    """Delete the record and the parts of a source that will not return.

    `renew` has the same meaning as in DropStaged.
    """

    source: str
    at: int
    topic: str = ""
    token: str = ""
    renew: bool = False


# Access. A command never contains a password or the secret of a token, only derived values.


class AddUser(Value, tag="AddUser"):
    """Add a user, or replace the credentials of an existing user.

    The first user of a cluster must be an administrator.
    """

    name: str
    credentials: Credentials | None  # None if the user logs in by certificate or token only
    admin: bool = False  # whether to add a rule that makes the user an administrator
    token: str = ""


class RemoveUser(Value, tag="RemoveUser"):
    """Remove a user and its tokens and rules."""

    name: str
    token: str = ""


class CreateToken(Value, tag="CreateToken"):
    id: str
    principal: str
    salt: bytes
    hash: bytes  # hash of salt and secret
    at: int
    lifetime_us: int = 0  # 0 if the token never expires
    token: str = ""


class RevokeToken(Value, tag="RevokeToken"):
    id: str
    token: str = ""


class Allow(Value, tag="Allow"):
    """Add a rule, or add its verbs to the rule with the same principal and pattern."""

    rule: Rule
    token: str = ""


class Disallow(Value, tag="Disallow"):
    """Remove these verbs from the rule with the same principal and pattern. No verbs means all."""

    rule: Rule
    token: str = ""


AccessCommand = AddUser | RemoveUser | CreateToken | RevokeToken | Allow | Disallow


# The log.


class Carry(Value):
    """Copy `command` from slot `old` to this slot, so that the log can be truncated.

    `offset` is the offset of its entry in the index of the topic, or -1 for a staged part.
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
    | CloseProducer
    | Subscribe
    | Unsubscribe
    | Attach
    | Detach
    | Ack
    | Acks
    | Seek
    | Stage
    | PublishStaged
    | DropStaged
    | CloseSource
    | AccessCommand
    | Carry
)

# Commands whose copies are recognized by their tokens.
Once = (
    CreateTopic
    | SetPolicy
    | DeleteTopic
    | Subscribe
    | Unsubscribe
    | DropStaged
    | CloseSource
    | AccessCommand
)
ONCE: frozenset[type] = frozenset(get_args(Once))
