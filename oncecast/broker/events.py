"""Requests, events, messages and timers of the broker protocols."""

from __future__ import annotations

from oncecast.broker.moves import AnyCommand
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.results import Done, Result
from oncecast.wire.sharing import Settle

Outcome = Done | errors.AnyRefusal


class Execute(Value):
    """Request: execute a command. Executed reports the result, unless the replica stops leading."""

    token: int
    command: AnyCommand | Settle


class Executed(Value):
    """Event: the command is decided, with this result."""

    token: int
    result: Outcome


class Changed(Value):
    """Event: a topic has new messages, or the state of its readers has changed."""

    topic: str


class SharedChanged(Value):
    """Event: a topic with shared subscriptions has new messages, or its subscriptions changed."""

    topic: str


class Dispatched(Value):
    """Event: a command about leases is decided."""

    command: do.Lease | do.Settles | do.Bury
    result: Result


class AccessChanged(Value):
    """Event: users, tokens or rules may have changed."""


class ClockDisputed(Value):
    """Event: the stamps are `ahead_us` ahead of the trusted time, or 0 if the dispute is over."""

    ahead_us: int


class ClockOutvoted(Value):
    """Event: this node's clock is `ahead_us` ahead of its group's, or 0 if both agree again."""

    ahead_us: int


class FlushAcks(Value):
    """Timer: propose the collected acks."""


class DelayedDue(Value):
    """Timer: a delayed message is due."""


class Upkept(Value):
    """Timer: expire messages and maintain the log."""


class Pump(Value, tag="Pump"):
    """Message to itself: send everything decided since the last pump."""


class AccessApplied(Value):
    """Event: this version of the access rules applies; flows without permission have ended."""

    version: int


class LeaseDue(Value):
    """Timer: check whether the lease was renewed."""


class WorkDue(Value):
    """Timer: look for ended leases, due retries and workers that have been gone too long."""


class WorkLeaseDue(Value):
    """Timer: check whether the leader's lease was renewed."""


class ScanDue(Value):
    """Timer: check whether the lease was renewed."""


class ScanWaitOver(Value):
    """Timer: answer the scans that have waited long enough for a message."""


class ReadClock(Value, tag="ReadClock"):
    """Message: ask a replica for its wall clock."""


class ClockRead(Value, tag="ClockRead"):
    at: int
