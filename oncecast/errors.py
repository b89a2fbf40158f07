"""Every error that oncecast raises, with its code, fields, message, remedy and exit status.

OncecastError
├── InvalidTopic · InvalidName · InvalidArgument     the request is invalid
├── PayloadTooLarge · TooMany                        a limit is exceeded
├── NoSuchTopic · TopicExists · TopicReplaced · NotSubscribed
├── Partitioned · NotAssigned                        partitioned topics
├── WrongKind · LeaseLost                            shared subscriptions
├── NameInUse · Fenced                               another process uses the name
├── Denied                                           the principal has no permission
├── Revoked                                          the outcome is unknown
├── OutOfRange · MessagesLost                        the topic has no message at this offset
├── NotStaged · OldNumber · OtherContent · TakenOver staged puts
├── NotAcknowledged · NotDecided                      a transaction was aborted
├── NotKept · BadBatch
├── Forgotten                                        the outcome of a put is unknown
├── Overloaded · TimedOut ── NoQuorum                try again later
├── NotConnected · Closed                            there is no connection
├── StateUnusable                                    the state directory cannot be used
├── SessionError                                     handled by the client, not seen by applications
│   └── Unopened · Gap · Repositioned · NotHere
├── CoordinationError
│   ├── NotReached · NotDeposited · Lapse · Stale · BadName · Stopped
│   └── StreamError
│       └── BadQoS · CacheFull · NotMatched · NotReceived · NotOpen · NoCluster
├── StorageError
│   ├── DiskFull · SyncFailed · Corrupt · Crippled
│   └── NoSuchRecord · RecordTooLarge · WrongFormat · InUse
├── NetworkError
│   ├── CannotListen · BadAddress · TlsUnusable · Absent
│   ├── Refused ── NotAuthenticated                  the login failed
│   └── ProtocolError                                the connection is closed
│       └── NotOncecast · WrongWireFormat · FrameTooLong · Malformed · OutOfPlace
├── LevelTooLow                                      not all nodes are upgraded
├── Diverged · Outdated                              a replica must stop
├── SettingsError
│   └── BadSetting · NotAllowed · BadOption
├── WebError                                         an HTTP request is refused
│   └── BadRequest · NoSuchPage · WrongMethod · WrongContent · CrossSite · WrongHost · BodyTooLarge
│       · HeadTooLarge · TooSlow · NotARing
└── BadHistory · BadRows · NoSpark · DataLost · BadArchive

These classes define the refusals that nodes send (wire/errors.py) and the exit status of each
command. docs/errors.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from enum import IntEnum
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform


class ExitStatus(IntEnum):
    """The exit status of the `oncecast` command."""

    OK = 0
    FAILURE = 1
    USAGE = 2  # exit status of a usage error, as in argparse
    NOT_FOUND = 3
    EMPTY = 4  # exit status if no message arrived in time
    NOT_ALLOWED = 5
    NO_QUORUM = 6
    INTERRUPTED = 130  # exit status that shells report for a command killed by SIGINT
    BROKEN_PIPE = 141  # exit status that shells report for a command killed by SIGPIPE


class OncecastError(Exception):
    """Base class for all oncecast errors."""

    # On a class, `message` and `remedy` are format strings that refer to its fields. On an
    # instance, they are the formatted text. Classes without fields take both as arguments.
    code: ClassVar[str] = "error"
    message: str = "the operation failed"
    remedy: str = ""
    cli_remedy: str = ""  # shown by the command line in place of `remedy`
    exit_status: ExitStatus = ExitStatus.FAILURE
    # Whether the put is still in flight; only TimedOut and Overloaded set it.
    in_flight: bool = False
    __match_args__: ClassVar[tuple[str, ...]] = ()  # field names

    def __init__(self, message: str = "", remedy: str = "") -> None:
        self.message = message or type(self).message
        self.remedy = remedy or type(self).remedy

    def __post_init__(self) -> None:
        """Format the message and the remedy. Only classes with fields call this."""
        fields = _Fields(self)
        self.message = type(self).message.format_map(fields)
        self.remedy = type(self).remedy.format_map(fields)

    def reworded(self, message: str = "", remedy: str = "") -> Self:
        """Return a copy with another message, another remedy or both."""
        error = copy(self)
        error.message, error.remedy = message or self.message, remedy or self.remedy
        return error

    def within(self, context: str) -> Self:
        """Return a copy whose message is prefixed with `context`, such as the topic."""
        return self.reworded(f"{context}: {self.message}")

    def in_cli(self) -> str:
        """Return the message with the remedy for the command line."""
        return str(self.reworded(remedy=self.cli_remedy))

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[..., OncecastError], tuple[Any, ...]]:
        return _rebuilt, (type(self), vars(self))


class _Fields(dict[str, Any]):
    """Looks up an error's attributes and properties to fill in its templates."""

    def __init__(self, error: OncecastError) -> None:
        self._error = error

    def __missing__(self, name: str) -> Any:
        return getattr(self._error, name)


def _rebuilt(kind: type[OncecastError], attributes: dict[str, Any]) -> OncecastError:
    error = kind.__new__(kind)
    vars(error).update(attributes)
    return error


Error = TypeVar("Error", bound=OncecastError)


@dataclass_transform(eq_default=False)
def with_fields(kind: type[Error]) -> type[Error]:
    """Class decorator that adds a constructor with one parameter per field.

    A dataclass would do the same but takes twenty times as long to define, and every command
    imports all errors.
    """
    own = [name for name in kind.__annotations__ if name not in kind.__match_args__]
    kind.__match_args__ = (*kind.__match_args__, *own)  # type: ignore[misc]
    kind.__init__ = _take_fields  # type: ignore[assignment]
    return kind


def _take_fields(error: OncecastError, *values: object, **named: object) -> None:
    names = error.__match_args__
    fields = dict(zip(names, values, strict=False)) | named
    missing = [name for name in names if name not in fields and not hasattr(error, name)]
    if missing or len(fields) != len(values) + len(named) or not fields.keys() <= set(names):
        raise TypeError(f"{type(error).__name__} takes {names}, but got {values} and {named}")
    vars(error).update(fields)
    error.__post_init__()


# The request


class InvalidTopic(OncecastError, ValueError):
    """The topic name is invalid."""

    code = "invalid-topic"
    message = "the topic name is empty, longer than 255 bytes, or not valid Unicode"
    remedy = "use 1 to 255 bytes of UTF-8"
    exit_status = ExitStatus.USAGE


@with_fields
class InvalidName(OncecastError, ValueError):
    """The name of a client, producer or subscription is invalid."""

    what: str

    code = "invalid-name"
    message = "the {what} name is empty, longer than 255 bytes, or not valid Unicode"
    remedy = "use 1 to 255 bytes of UTF-8"
    exit_status = ExitStatus.USAGE


class InvalidArgument(OncecastError, ValueError):
    """An argument is invalid: for example, a policy contradicts itself."""

    code = "invalid-argument"
    message = "an argument is invalid"
    exit_status = ExitStatus.USAGE


@with_fields
class PayloadTooLarge(OncecastError, ValueError):
    """A message or batch exceeds one of the node's limits, so the node did not store it."""

    what: str
    max: int

    code = "too-large"
    message = "the batch has more than {max:,} {what}"
    remedy = "send smaller messages or batches, or raise batch_bytes_max on the node"
    exit_status = ExitStatus.USAGE


@with_fields
class TooMany(OncecastError):
    """The request would exceed a limit of the node."""

    what: str
    max: int

    code = "too-many"
    message = "too many {what} (limit {max:,})"
    remedy = "remove some of them, or raise the limit"


# Topics and subscriptions


@with_fields
class NoSuchTopic(OncecastError, LookupError):
    """The topic does not exist."""

    topic: str

    code = "no-such-topic"
    message = "topic {topic!r} does not exist"
    remedy = "create it, or subscribe to it"
    cli_remedy = "create it with `oncecast topic create` or `oncecast sub`"
    exit_status = ExitStatus.NOT_FOUND


@with_fields
class TopicExists(OncecastError):
    """The topic already exists with a different policy or number of partitions."""

    topic: str

    code = "topic-exists"
    message = "topic {topic!r} already exists with a different policy or number of partitions"
    remedy = "change the policy of the existing topic, or delete it first"
    cli_remedy = "change its policy with `oncecast topic set`"


@with_fields
class Partitioned(OncecastError):
    """The operation needs a topic without partitions."""

    topic: str
    partitions: int

    code = "partitioned"
    message = "topic {topic!r} has {partitions} partitions, so it cannot be used this way"
    remedy = "use one of its partitions, such as {topic}#0"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class NotAssigned(OncecastError):
    """The consumer group has assigned the partition to another member."""

    topic: str
    subscription: str

    code = "not-assigned"
    message = "{topic!r} is assigned to another member of consumer group {subscription!r}"
    remedy = "read the partitions that are assigned to this member"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class TopicReplaced(OncecastError, LookupError):
    """The topic was deleted and recreated during a scan."""

    topic: str

    code = "topic-replaced"
    message = "topic {topic!r} was deleted and recreated"
    remedy = "start again from the beginning of the new topic"


@with_fields
class NotSubscribed(OncecastError, LookupError):
    """The subscription does not exist or was removed."""

    topic: str
    subscription: str

    code = "not-subscribed"
    message = "topic {topic!r} has no subscription {subscription!r}"
    remedy = "subscribe first"
    cli_remedy = "create it with `oncecast sub`"
    exit_status = ExitStatus.NOT_FOUND


@with_fields
class WrongKind(OncecastError):
    """A shared subscription is used as an exclusive one, or vice versa."""

    topic: str
    subscription: str
    kind: str  # the actual kind: "shared" or "exclusive"

    code = "wrong-kind"
    message = "subscription {subscription!r} of topic {topic!r} is {kind}"
    remedy = (
        "use work() for a shared subscription and subscribe() for an exclusive one, or choose "
        "another name"
    )
    cli_remedy = (
        "use `oncecast work` for a shared subscription and `oncecast get` for an exclusive one"
    )
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class LeaseLost(OncecastError):
    """The worker's lease on the message has ended, so the worker can no longer settle it.

    Another worker may have the message now. If the handler has stored its effect, the next
    delivery's larger token shows which effect counts.
    """

    topic: str
    subscription: str
    offset: int

    code = "lease-lost"
    message = (
        "the lease on offset {offset} of topic {topic!r} in subscription {subscription!r} has ended"
    )
    remedy = "stop working on this message; if this happens often, use a longer lease"


@with_fields
class NameInUse(OncecastError):
    """A producer and a source of staged puts cannot share a name within a topic."""

    topic: str
    name: str

    code = "name-in-use"
    message = "topic {topic!r} cannot have both a producer and a source named {name!r}"
    remedy = "choose another name"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class Fenced(OncecastError):
    """Another process has taken over this client name or subscription.

    Acknowledged calls took effect. The outcome of calls in flight is unknown.
    """

    epoch: int = 0  # the epoch of the process that took over

    code = "fenced"
    message = "another process has taken over this name"
    remedy = "stop this process, or use another name"
    exit_status = ExitStatus.NOT_ALLOWED


class Denied(OncecastError, PermissionError):
    """No rule permits the client's user to make this request.

    The error is the same whether or not the topic or name exists.
    """

    code = "denied"
    message = "permission denied"
    remedy = "ask an administrator for a rule that permits the request, or log in as another user"
    exit_status = ExitStatus.NOT_ALLOWED


class Revoked(OncecastError):
    """The node denied a repeated request, but may have executed an earlier copy of it.

    Between the copies, the permission was withdrawn or the client logged in as another user.
    """

    code = "revoked"
    message = "outcome unknown: permission was denied when the client repeated the request"
    remedy = "check whether the change was made before you repeat the request"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class OutOfRange(OncecastError, ValueError):
    """The offset is beyond the end of the topic."""

    next: int

    code = "out-of-range"
    message = "the offset is beyond the end of the topic (next offset {next})"
    remedy = "use a lower offset, and check whether the topic was deleted and recreated"
    exit_status = ExitStatus.USAGE


@with_fields
class MessagesLost(OncecastError):
    """The topic's policy dropped unread messages, from `first` to `next` (exclusive).

    A reader raises this error once. The next read continues after the lost messages.
    """

    topic: str
    first: int
    next: int

    code = "messages-lost"
    message = "offsets {first} to {last} of topic {topic!r} were dropped before they were read"
    remedy = "read sooner, or turn off drop_unread in the topic's policy"

    @property
    def last(self) -> int:
        return self.next - 1


@with_fields
class NotStaged(OncecastError):
    """A publish names a part that is not staged."""

    source: str
    number: int
    part: str

    code = "not-staged"
    message = "part {part!r} of number {number} from source {source!r} is not staged"
    remedy = "stage all parts of this number again, then publish it"


@with_fields
class OldNumber(OncecastError):
    """A source used a number below the last one that it published."""

    source: str
    number: int
    last: int

    code = "old-number"
    message = "number {number} of source {source!r} is below the last published number, {last}"
    remedy = "use a number above {last}, or another source"


@with_fields
class OtherContent(OncecastError):
    """The source has already published this number with different content."""

    source: str
    number: int

    code = "other-content"
    message = "source {source!r} has already published number {number} with different content"
    remedy = "use a higher number for new content, or use another source"


@with_fields
class TakenOver(OncecastError):
    """A newer run of the program has taken over this source."""

    source: str

    code = "taken-over"
    message = "a newer run has taken over source {source!r}"
    remedy = "stop this run, or use another source"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class NotAcknowledged(OncecastError):
    """A transaction was aborted, because a message that it consumed is no longer its own.

    Another reader or worker may have the message now. Nothing was put or acknowledged.
    """

    topic: str
    subscription: str
    offset: int
    fact: str

    code = "not-acknowledged"
    message = (
        "the transaction was aborted: offset {offset} of topic {topic!r} cannot be acknowledged in "
        "subscription {subscription!r}, because {fact}"
    )
    remedy = "stop working on the message; if it is delivered again, process it again"


@with_fields
class NotDecided(OncecastError):
    """A transaction was aborted, because the groups of its topics did not agree in time.

    Nothing was put or acknowledged.
    """

    source: str

    code = "not-decided"
    message = (
        "the transaction of {source!r} was aborted, because it was not decided within 10 seconds"
    )
    remedy = "run the transaction again"


@with_fields
class NotKept(OncecastError):
    """The caller asked to keep the messages, but the topic would drop them immediately."""

    topic: str

    code = "not-kept"
    message = "topic {topic!r} would drop the messages: it has no retention and no subscription"
    remedy = "set a policy that retains messages, or subscribe to the topic first"
    cli_remedy = "set its policy with `oncecast topic set`, or subscribe with `oncecast sub`"


class BadBatch(OncecastError):
    """A batch is damaged or has a format that this version cannot read.

    Reads return all messages before the batch, then raise this error.
    """

    code = "bad-batch"
    message = "the batch is damaged or has an unknown format"
    remedy = "if this was a put, put the messages again; if it was a read, seek past the batch"
    cli_remedy = "skip it with `oncecast subs seek`"


@with_fields
class Forgotten(OncecastError):
    """The topic no longer has a record of this producer, so the outcome of its puts is unknown.

    The producer was idle for longer than `producer_idle`, or the topic was deleted and recreated.
    The client does not resend the messages.
    """

    topic: str
    producer: str

    code = "forgotten"
    message = (
        "outcome unknown: topic {topic!r} no longer has a record of producer {producer!r}, because "
        "the producer was idle for too long or the topic was deleted"
    )
    remedy = "check the topic before resending"


# Calls and connections


# Nodes send these strings as `what`, so they must not change.
DISK = "data on the node's disk"
UNDECIDED = "transactions that are not decided yet"
RULES = "administrative requests to a process that does not know the rules of its ring yet"


@with_fields
class Overloaded(OncecastError):
    """The node, or the client's buffer, cannot accept more requests at the moment.

    If a call raises this error after a timeout, the node may have executed an earlier copy of it.
    """

    what: str

    code = "overloaded"
    message = "too many {what}"
    remedy = "try again later"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what == DISK:
            self.message = "the node's disk is full"
        elif self.what == RULES:
            self.message = "the process has just joined its ring and has no access rules yet"
        elif self.what == UNDECIDED:
            self.message = "a transaction that is not decided yet has messages of the subscription"


class TimedOut(OncecastError, TimeoutError):
    """No answer arrived in time, so the outcome is unknown.

    It is safe to repeat the call unless it is a put: the messages of a put are still in flight.
    """

    code = "timed-out"
    message = "no answer in time"
    remedy = "try again, or raise the timeout"
    exit_status = ExitStatus.EMPTY


class NoQuorum(TimedOut):
    """No answer arrived in time, because too few nodes are up to elect a leader."""

    code = "no-quorum"
    message = "no answer in time, and the group has no leader"
    remedy = "start more nodes of the group; a majority must be up"
    exit_status = ExitStatus.NO_QUORUM


class NotConnected(OncecastError, ConnectionError):
    """The client could not reach any node, or a node refused it (`refused` is true)."""

    code = "not-connected"
    message = "could not reach any node"
    cli_remedy = "start a node with `oncecast serve`, or set --server or ONCECAST_SERVER"

    def __init__(
        self, message: str = "", remedy: str = "", cli_remedy: str = "", *, refused: bool = True
    ) -> None:
        super().__init__(message, remedy)
        self.refused = refused
        if refused or remedy:
            self.cli_remedy = cli_remedy


class Closed(OncecastError):
    """The client or the subscription is closed."""

    code = "closed"
    message = "the client is closed"
    remedy = "open a new one"


class StateUnusable(OncecastError):
    """The state directory is in use, damaged or full, or belongs to another client."""

    code = "state-unusable"
    message = "the state directory cannot be used"


# Handled by the client session


class SessionError(OncecastError):
    """A refusal that the client session handles itself. Applications never see it."""

    code = "session"
    message = "the session handles this refusal"


@with_fields
class Unopened(SessionError):
    """The session must open the producer first."""

    topic: str
    producer: str

    code = "unopened"
    message = "producer {producer!r} is not open in topic {topic!r}"
    remedy = "open the producer first"


@with_fields
class Gap(SessionError):
    """The session must resend all messages, starting with sequence number `expected`."""

    expected: int

    code = "gap"
    message = "messages are missing, starting with sequence number {expected}"
    remedy = "resend the missing messages"


@with_fields
class Repositioned(SessionError):
    """Another client moved the subscription. Reading continues at `cursor`, in epoch `epoch`."""

    epoch: int
    cursor: int

    code = "repositioned"
    message = "another client moved the subscription to offset {cursor}"
    remedy = "continue reading there"


@with_fields
class NotHere(SessionError):
    """Another group owns the topic."""

    topic: str

    code = "not-here"
    message = "this group does not own topic {topic!r}"
    remedy = "ask any process of the ring which group owns the topic"


# Coordination and streams


class CoordinationError(OncecastError):
    """Base class for coordination errors."""

    code = "coordination"
    message = "coordination failed"


@with_fields
class NotReached(CoordinationError):
    """The group did not reach the requested size in time."""

    size: int
    view: tuple[str, ...]

    code = "not-reached"
    message = "the group has {count} of {size} members: {members}"
    remedy = "start more processes, use a peer that is running, or wait for fewer members"

    @property
    def count(self) -> int:
        return len(self.view)

    @property
    def members(self) -> str:
        return ", ".join(self.view) or "none"


@with_fields
class NotDeposited(CoordinationError):
    """An element was not added to the queue. If `perhaps` is true, it may have been added."""

    queue: str
    perhaps: bool

    code = "not-deposited"
    message = "queue {queue!r}: {cause}"
    remedy = "check that a majority of the acceptors are running, then try again"

    @property
    def cause(self) -> str:
        return "no answer; the element may be in the queue" if self.perhaps else "no acceptor is up"


@with_fields
class Lapse(CoordinationError):
    """The lock's lease expired while the lock was held."""

    lock: str
    token: int

    code = "lapse"
    message = "lock {lock!r} is no longer held: the lease with token {token} has expired"
    remedy = "acquire the lock again, and check for unfinished work"


@with_fields
class Stale(CoordinationError):
    """Another process has held the lock since this token was issued."""

    token: int
    highest: int

    code = "stale"
    message = "token {token} is stale: token {highest} has already been used"
    remedy = "acquire the lock again"


@with_fields
class BadName(CoordinationError):
    """The name of a stream, lock or queue is invalid."""

    name: str

    code = "bad-name"
    message = "{name!r:.80} is not a valid name (1 to 255 bytes of UTF-8)"
    remedy = "choose another name"


class Stopped(CoordinationError):
    """This node has stopped."""

    code = "stopped"
    message = "this node has stopped"
    remedy = "join again"


class StreamError(CoordinationError):
    """Base class for stream errors."""

    code = "stream"
    message = "the stream failed"

    def __init__(self, stream: str = "", message: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.stream = stream
        if stream:
            self.message = f"stream {stream!r}: {self.message}"


class BadQoS(StreamError, ValueError):
    """A QoS setting is invalid or conflicts with another."""

    code = "bad-qos"
    message = "the QoS settings conflict with each other"
    exit_status = ExitStatus.USAGE

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__("", message, remedy)


class CacheFull(StreamError):
    """The writer's cache is full, and no space was freed in time."""

    code = "no-room"
    message = "the cache is full, and no space became free in time"


class NotMatched(StreamError):
    """Too few writers or readers appeared, or their QoS settings do not match."""

    code = "not-matched"
    message = "too few matching writers or readers"
    exit_status = ExitStatus.NOT_FOUND

    def __init__(
        self,
        stream: str,
        wanted: str,
        there: int,
        mismatched: Mapping[Any, tuple[str, ...]],
        known: Sequence[str],
    ) -> None:
        message = f"waited {wanted}, found {there}"
        if mismatched:
            each = (f"{peer} ({', '.join(less)})" for peer, less in sorted(mismatched.items()))
            message += f"; the writer offers less than the reader requests: {', '.join(each)}"
            remedy = "offer more in the writer's QoS, or request less in the reader's"
            self.exit_status = ExitStatus.NOT_ALLOWED
        elif known:
            message += f"; other processes have opened these streams: {', '.join(known)}"
            remedy = "open one of these streams, or wait longer"
        else:
            message += "; no other process has opened a stream"
            remedy = "start the other processes, or use a peer that is running"
        super().__init__(stream, message, remedy)
        self.there, self.mismatched = there, dict(mismatched)


class NotReceived(StreamError):
    """Readers did not acknowledge all values in time."""

    code = "not-received"
    message = "readers did not acknowledge all values in time"
    remedy = "raise the timeout"


class NotOpen(StreamError):
    """A writer or reader is closed, or the stream cannot be opened."""

    code = "not-open"
    message = "the stream is not open"


class NoCluster(StreamError):
    """A persistent stream needs a cluster to store its values."""

    code = "no-cluster"
    message = "a persistent stream needs a cluster, but this node is not connected to one"
    remedy = "join with through='HOST:PORT' of a cluster node, or use TRANSIENT_LOCAL"


# Storage


class StorageError(OncecastError):
    """Base class for storage errors."""

    code = "storage"
    message = "storage failed"


class DiskFull(StorageError):
    """The disk is full. Nothing was written, and the log is still usable."""

    code = "disk-full"
    message = "the disk is full"
    remedy = "free up disk space"


class SyncFailed(StorageError):
    """A write or fsync failed. The disk contents are unknown, so the node must stop."""

    code = "sync-failed"
    message = "could not write to the disk"
    remedy = "check the disk and restart the node"


@with_fields
class Corrupt(StorageError):
    """The data on disk differs from what was written. Records `first` to `last` are lost.

    If the numbers of the lost records are unknown, `first` is 0.
    """

    file: str
    offset: int
    first: int
    last: int
    fact: str

    code = "corrupt"
    message = "{where}; {records} cannot be read"
    remedy = 'run "oncecast log verify" and restore this replica from its peers'

    @property
    def where(self) -> str:
        at = f" at byte {self.offset}" if self.offset else ""
        return f"{self.file}: {self.fact}{at}"

    @property
    def records(self) -> str:
        if not self.first:
            return "its records"  # their numbers are unknown
        alone = self.first == self.last
        return f"record {self.first}" if alone else f"records {self.first} to {self.last}"


class Crippled(StorageError):
    """The disk has lost records that this replica needs and cannot get from its peers."""

    code = "crippled"
    message = "this replica has lost log records that it needs"


class NoSuchRecord(StorageError, LookupError):
    """The record was never written, or the log has been truncated."""

    code = "no-such-record"
    message = "the record is not in the log"


@with_fields
class RecordTooLarge(StorageError, ValueError):
    """The record does not fit into a segment."""

    size: int
    max: int

    code = "record-too-large"
    message = "the record is {size:,} bytes long (limit {max:,})"
    remedy = "split the record"


class WrongFormat(StorageError):
    """This version of oncecast does not support the format of the directory."""

    code = "wrong-format"
    message = "this version of oncecast does not support the directory's format"


@with_fields
class InUse(StorageError):
    """Another process has the directory open."""

    path: str
    holder: str

    code = "in-use"
    message = "{path}: in use by process {holder}"
    remedy = "stop that process, or use another directory"


# Network


class NetworkError(OncecastError):
    """Base class for network errors."""

    code = "network"
    message = "the network failed"


class CannotListen(NetworkError):
    """The node cannot listen on the address, for example because the port is in use."""

    code = "cannot-listen"
    message = "cannot listen on the address"
    remedy = "free the port or choose another one"


class BadAddress(NetworkError, ValueError):
    """An address does not have the form "host:port"."""

    code = "bad-address"
    message = "the address is invalid"
    remedy = 'write "host:port", such as 127.0.0.1:7400'
    exit_status = ExitStatus.USAGE


class TlsUnusable(NetworkError):
    """The certificate, key or CA cannot be used."""

    code = "tls-unusable"
    message = "the TLS files cannot be used"
    exit_status = ExitStatus.USAGE


class Refused(NetworkError):
    """The peer refused the connection. The message says why."""

    code = "refused"
    message = "the peer refused the connection"


class NotAuthenticated(Refused):
    """The node rejected the login, or could not prove that it knows the user.

    An unknown user and a wrong password produce the same message.
    """

    code = "not-authenticated"
    message = "the login failed: unknown user, wrong password, or invalid token"
    remedy = "check the user name and password, or the token"
    exit_status = ExitStatus.NOT_ALLOWED


class Absent(NetworkError):
    """The process does not currently host this node. Try again later."""

    code = "absent"
    message = "the process does not host this node"


class ProtocolError(NetworkError):
    """The peer violated the wire protocol. Its connection is closed."""

    code = "protocol"
    message = "the peer violated the wire protocol"
    remedy = "check that the peer runs a compatible version of oncecast"


class NotOncecast(ProtocolError):
    """The peer does not speak the oncecast protocol. It may be a web browser or a port scanner."""

    code = "not-oncecast"
    message = "the peer does not speak the oncecast protocol"


@with_fields
class WrongWireFormat(ProtocolError):
    """The peer uses a different wire format."""

    theirs: int
    ours: int

    code = "wrong-wire-format"
    message = "the peer uses wire format {theirs}, but this node uses {ours}"
    remedy = "upgrade the older of the two"


@with_fields
class FrameTooLong(ProtocolError):
    """A frame exceeds the maximum length."""

    kind: int
    length: int
    limit: int

    code = "frame-too-long"
    message = "a frame of kind {kind} is {length:,} bytes long (limit {limit:,})"
    remedy = "raise frame_bytes_max on all nodes, or send smaller messages"


class Malformed(ProtocolError):
    """The bytes cannot be decoded."""

    code = "malformed"
    message = "the bytes cannot be decoded"


class OutOfPlace(ProtocolError):
    """The frame is not allowed at this point in the connection."""

    code = "out-of-place"
    message = "the frame is not allowed at this point in the connection"


# Nodes, settings and Spark


class Diverged(OncecastError):
    """This replica's state differs from the majority's, so the replica must stop."""

    code = "diverged"
    message = "the state of this replica differs from that of the majority"
    remedy = "move its data directory aside and restart it, so that it joins again"


@with_fields
class Outdated(OncecastError):
    """The group uses commands or rules that this version of oncecast does not support."""

    level: int
    known: int

    code = "outdated"
    message = "the group is at feature level {level}; this program supports levels up to {known}"
    remedy = "upgrade oncecast on this node, then restart the node with the same data directory"


@with_fields
class LevelTooLow(OncecastError):
    """The group cannot run the command until all of its nodes have been upgraded."""

    needed: int
    level: int

    code = "level-too-low"
    message = "the command needs feature level {needed}, but the group is at level {level}"
    remedy = "upgrade and start all nodes of the group, or remove nodes that stay down"
    cli_remedy = "upgrade and start all nodes; `oncecast cluster status` shows their levels"


class SettingsError(OncecastError):
    """Base class for settings errors."""

    code = "settings"
    message = "the settings are invalid"
    exit_status = ExitStatus.USAGE


class BadSetting(SettingsError, ValueError):
    """A setting is unknown or has an invalid value."""

    code = "bad-setting"
    message = "a setting is invalid"


class NotAllowed(SettingsError):
    """Other machines can reach the node without TLS, and `insecure` is not set."""

    code = "not-allowed"
    message = "the address is reachable from other machines, but TLS is off"
    exit_status = ExitStatus.NOT_ALLOWED


class BadOption(SettingsError, ValueError):
    """An option of the Spark source or sink is invalid."""

    code = "bad-option"
    message = "an option is invalid"


# HTTP


class WebError(OncecastError):
    """Base class for refusals of HTTP requests."""

    code = "web"
    message = "the HTTP request is refused"


class BadRequest(WebError, ValueError):
    """The HTTP request, one of its parameters or its body is invalid."""

    code = "bad-request"
    message = "the HTTP request is invalid"
    remedy = "see /api/v1/openapi.json for the parameters and bodies"


class NoSuchPage(WebError, LookupError):
    """The path of the HTTP request does not exist."""

    code = "not-found"
    message = "there is nothing at this path"
    remedy = "see /api/v1/openapi.json for the paths"
    exit_status = ExitStatus.NOT_FOUND


@with_fields
class WrongMethod(WebError):
    """The path exists, but not for this HTTP method."""

    allowed: str

    code = "method-not-allowed"
    message = "the path does not support this method"
    remedy = "use {allowed}"


class WrongContent(WebError):
    """The body of the HTTP request has an unsupported content type."""

    code = "wrong-content-type"
    message = "the content type of the body is not supported"
    remedy = "send Content-Type: application/json"


class CrossSite(WebError):
    """The HTTP request may come from a page of another site, so it is refused."""

    code = "cross-site"
    message = "the request may come from a page of another site"
    remedy = "send the header Oncecast-Request: 1, or Content-Type: application/json"
    exit_status = ExitStatus.NOT_ALLOWED


class WrongHost(WebError):
    """The Host header does not name this server."""

    code = "wrong-host"
    message = "the Host header does not name this server"
    remedy = "use the address of the server, or allow the name with --host"
    exit_status = ExitStatus.NOT_ALLOWED


@with_fields
class BodyTooLarge(WebError):
    """The body of the HTTP request exceeds the limit."""

    max: int

    code = "body-too-large"
    message = "the body is longer than {max:,} bytes"
    remedy = "send less in one request, or raise --body-max"
    exit_status = ExitStatus.USAGE


@with_fields
class HeadTooLarge(WebError):
    """The headers of the HTTP request exceed the limit."""

    max: int

    code = "head-too-large"
    message = "the headers are longer than {max:,} bytes"
    remedy = "send fewer or shorter headers"
    exit_status = ExitStatus.USAGE


class TooSlow(WebError):
    """The body of the HTTP request did not arrive in time."""

    code = "too-slow"
    message = "the body did not arrive in time"
    remedy = "send the request again, over a faster connection or in smaller parts"


class NotARing(WebError, LookupError):
    """The nodes form one replica group, and not a ring."""

    code = "not-a-ring"
    message = "the nodes do not form a ring"
    remedy = "use /cluster"
    exit_status = ExitStatus.NOT_FOUND


class BadHistory(OncecastError, ValueError):
    """The file is not a history of operations."""

    code = "bad-history"
    message = "the file is not a history"


class BadRows(OncecastError, ValueError):
    """The rows of a Spark query cannot be written to a topic."""

    code = "bad-rows"
    message = "the rows cannot be written to a topic"


class NoSpark(OncecastError):
    """Spark is not installed or cannot be started."""

    code = "no-spark"
    message = "Spark cannot be started"


class DataLost(OncecastError):
    """Messages were deleted before a Spark query read them, and `failOnDataLoss` is true."""

    code = "data-lost"
    message = "messages were deleted before the query read them"
    remedy = (
        "set the option `subscription`, or a longer retention; to skip the messages, set "
        "failOnDataLoss to false"
    )


class BadArchive(OncecastError):
    """The directory is not an archive, or the archive is damaged or has a different format."""

    code = "bad-archive"
    message = "the directory is not an archive"
    remedy = "choose another directory"
