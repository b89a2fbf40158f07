"""Shared subscriptions: many workers, and each message is leased to one worker at a time (WRK).

    client → node    Call(SubscribeShared), Work, Call(Settle)
    node → client    Answer, Jobs, WorkEnded
    leader → log     SubscribeShared, Lease, Settles, Bury

A worker says how many messages it wants to hold (`Work`). The leader gathers the requests of a
subscription's workers in one `Lease`. The machine gives each worker a grant: offsets, a token and
the time at which the lease ends. The leader sends the messages (`Jobs`). The worker settles each
message by its token. The leader gathers the settlements of all workers in one `Settles`.

| verb | effect on a message |
|---|---|
| accept | the message is done |
| release | deliver it again after a delay; -1 means the backoff of the subscription |
| reject | do not deliver it again: it becomes a dead letter |
| unused | the worker has not started it: deliver it again at once, and do not count this delivery |
| renew | the lease starts again |

A message with `deliveries_max` deliveries that is released, or whose lease ends, becomes a dead
letter. The leader reads it and proposes `Bury`. This command appends it to the dead-letter topic,
with headers that say why, and settles it.

A token belongs to one grant, and later grants have larger tokens. A settlement whose token is not
the current one of its offset is stale: the machine refuses it for this offset only. `number` counts
the settlements of a worker. So a copy gets the result of the original.

A worker repeats `Work` with `seen`, the last token that it has received completely. The leader
then sends the grants of this worker with larger tokens again. So no grant is lost with a connection
or a leader.

These commands need feature level 2. All times and delays are in microseconds.
"""

# Without `from __future__ import annotations`, because msgspec evaluates annotations more slowly.

from collections.abc import Iterable, Iterator
from typing import ClassVar

from oncecast.kernel.protocol import Value
from oncecast.kernel.topic_tag import tag_of

SHARED_LEVEL = 2  # the feature level of all commands and rules of this module

# Never change these limits: all replicas must compute the same result for the same command.
WINDOW_MAX = 10_000  # maximum number of messages that one worker holds
IN_FLIGHT_MAX = 1_000_000  # maximum number of leased messages of one subscription
# Maximum number of messages of one subscription that are leased or wait for another delivery.
OPEN_MAX = 1_000_000
WORKERS_MAX = 10_000  # maximum number of workers of one subscription
SETTLED_MAX = 10_000  # maximum number of offsets in one Settle
REASON_BYTES_MAX = 1000
REASONS_BYTES_MAX = 100_000  # maximum total size of the reasons in one Settle, in bytes
DELIVERIES_MAX = 1_000_000
DURATION_MAX_US = 365 * 24 * 3600 * 1_000_000
WORKER_IDLE_US = 600 * 1_000_000  # idle time after which the record of an unused worker is deleted

BY_BACKOFF = -1  # the delay of a release that asks for the backoff of the subscription

# Runs of consecutive offsets: the token, the first offset and the number of offsets.
Run = tuple[int, int, int]
Release = tuple[int, int, int, int, str]  # a run with a delay and a reason
Reject = tuple[int, int, int, str]  # a run with a reason

# Headers of a dead letter. All values are text in UTF-8.
DEAD_REASON = "oncecast-dead-reason"
DEAD_DETAIL = "oncecast-dead-detail"  # the reason that the worker gave
DEAD_TOPIC = "oncecast-dead-topic"
DEAD_SUBSCRIPTION = "oncecast-dead-subscription"
DEAD_OFFSET = "oncecast-dead-offset"
DEAD_DELIVERIES = "oncecast-dead-deliveries"
DEAD_HEADERS = (
    *(DEAD_REASON, DEAD_DETAIL, DEAD_TOPIC),
    *(DEAD_SUBSCRIPTION, DEAD_OFFSET, DEAD_DELIVERIES),
)

# Values of DEAD_REASON.
REJECTED = "rejected"
EXHAUSTED = "exhausted"  # a worker has released the last allowed delivery
EXPIRED = "expired"  # the time to live of the message has ended
LEASE_ENDED = "lease-ended"  # the lease of the last allowed delivery has ended
WORKER_LOST = "worker-lost"  # the worker of the last allowed delivery has disconnected


class Shared(Value, tag="Shared"):
    """The settings of a shared subscription.

    `by_key` delivers messages with the same key one at a time and in order. A later message waits
    until the earlier one is accepted or dead. Messages without a key do not wait.
    """

    lease_us: int = 30 * 1_000_000
    deliveries_max: int = 10  # maximum deliveries of a message; 0 for no limit
    # Delay before the second delivery; it doubles for each further delivery.
    backoff_min_us: int = 1_000_000
    backoff_max_us: int = 60 * 1_000_000
    in_flight_max: int = 100_000  # maximum number of messages leased at a time
    dead_letters: str = ""  # name of the dead-letter topic; empty for `dead_letter_topic`
    by_key: bool = False

    @property
    def fault(self) -> str:
        """Return what is wrong with the settings, or "" if they are valid."""
        if not 1000 <= self.lease_us <= DURATION_MAX_US:
            return (
                f"the lease is {seconds(self.lease_us)} s (limits 0.001 s and one year); "
                "choose a lease within the limits"
            )
        if not 0 <= self.backoff_min_us <= self.backoff_max_us:
            return (
                f"the backoff is {seconds(self.backoff_min_us)} to {seconds(self.backoff_max_us)} "
                "s; use a minimum of at least 0 s, and a maximum that is not below it"
            )
        if self.backoff_max_us > DURATION_MAX_US:
            return (
                f"the maximum backoff is {seconds(self.backoff_max_us)} s (limit one year); "
                "choose a shorter backoff"
            )
        if not 0 <= self.deliveries_max <= DELIVERIES_MAX:
            return (
                f"the maximum of deliveries is {self.deliveries_max} (limits 0 and "
                f"{DELIVERIES_MAX:,}); use 0 for no limit"
            )
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            return (
                f"the in-flight maximum is {self.in_flight_max} (limits 1 and {IN_FLIGHT_MAX:,}); "
                "choose a number within the limits"
            )
        return ""


DEFAULT_SHARED = Shared()


class Settle(Value, tag="Settle"):
    """Settle messages that `worker` holds. `number` counts its settlements, starting at 1."""

    feature_level: ClassVar[int] = SHARED_LEVEL

    topic: str
    subscription: str
    worker: str
    number: int
    accept: tuple[Run, ...] = ()
    release: tuple[Release, ...] = ()
    reject: tuple[Reject, ...] = ()
    unused: tuple[Run, ...] = ()
    renew: tuple[Run, ...] = ()
    # Whether the worker leaves, which releases all other messages that it holds.
    leave: bool = False

    @property
    def runs(self) -> int:
        """Return the total number of runs, over all verbs."""
        verbs = (self.accept, self.release, self.reject, self.unused, self.renew)
        return sum(map(len, verbs))

    @property
    def fault(self) -> str:
        """Return what is wrong with the settlement, or "" if it is valid."""
        left = SETTLED_MAX
        runs = [*self.accept, *self.unused, *self.renew]
        runs += [(token, first, count) for token, first, count, *_ in self.release]
        runs += [(token, first, count) for token, first, count, _ in self.reject]
        for _, first, count in runs:
            if first < 0 or count < 1:
                return (
                    f"a run has {count} messages (minimum 1), "
                    f"starting at offset {first} (minimum 0); settle only delivered messages"
                )
            left -= count
            if left < 0:
                return f"one call settles more than {SETTLED_MAX:,} messages; use several calls"
        if fault := self._delay_fault or self._reason_fault:
            return fault
        if self.number < 1:
            return f"the settlement number is {self.number} (minimum 1); count settlements from 1"
        return ""

    @property
    def _delay_fault(self) -> str:
        for release in self.release:
            if not BY_BACKOFF <= release[3] <= DURATION_MAX_US:
                return (
                    f"the delay is {seconds(release[3])} s (limits 0 and one year); "
                    "choose a delay within the limits"
                )
        return ""

    @property
    def _reason_fault(self) -> str:
        reasons = (*(each[4] for each in self.release), *(each[3] for each in self.reject))
        sizes = [len(reason.encode(errors="replace")) for reason in reasons]
        if max(sizes, default=0) > REASON_BYTES_MAX:
            return (
                f"a reason is {max(sizes):,} bytes long (limit {REASON_BYTES_MAX:,}); "
                "use a shorter reason"
            )
        if sum(sizes) > REASONS_BYTES_MAX:
            return (
                f"the reasons are {sum(sizes):,} bytes long in total (limit "
                f"{REASONS_BYTES_MAX:,}); use shorter reasons, or several calls"
            )
        return ""


def runs_of(offsets: Iterable[tuple[int, int]]) -> Iterator[Run]:
    """Group (token, offset) pairs into runs of consecutive offsets with the same token."""
    last, first, count = 0, 0, 0
    for token, offset in offsets:
        if count and token == last and offset == first + count:
            count += 1
            continue
        if count:
            yield last, first, count
        last, first, count = token, offset, 1
    if count:
        yield last, first, count


def dead_letter_topic(topic: str, subscription: str) -> str:
    """Return the default name of the dead-letter topic. On a ring, both topics have one owner."""
    return f"{topic if tag_of(topic) != topic else f'{{{topic}}}'}.dead.{subscription}"


def seconds(us: int) -> str:
    return f"{us / 1e6:g}"
