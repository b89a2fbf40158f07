"""Requests (↓) and events (↑) of the coordination protocols.

    Group                     Join, Leave ↓                  ViewChanged ↑
    LeaderElection                                           LeaderElected ↑
    Synod                     Decide ↓                       Settled, CaughtUp ↑
    LamportMutex, LeaseMutex  Acquire, Release ↓             Acquired, Renewed, Lapsed ↑
    FifoQueue, PaxosQueue     Enqueue, Dequeue, Withdraw ↓   Dequeued ↑
    PaxosQueue                Deposit ↓                      Deposited ↑

Both mutexes have the same interface, and so do both queues. A stack has at most one of each.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

NO_NODE = NodeId("")


class Join(Value):
    """Request: become a member."""


class Leave(Value):
    """Request: leave the group and announce it."""


class ViewChanged(Value):
    """The members that this node knows and does not suspect, sorted, including itself."""

    view: tuple[NodeId, ...]


class LeaderElected(Value):
    """The leader has changed. NO_NODE stands for none."""

    leader: NodeId


class Decide(Value):
    """Request: settle on `value` for this number in a series, unless the number has a value."""

    series: str
    number: int
    value: str


class Settled(Value, tag="Settled"):
    """The final value for this number in a series. Every node learns the same value.

    This event is also the record that an acceptor stores when it has learned the value.
    """

    series: str
    number: int
    value: str


class CaughtUp(Value):
    """More numbers are settled than this node knew of. Decide returns their values."""


class Acquire(Value):
    """Request: wait for this lock and hold it. The node ignores a repeated request."""

    lock: str


class Release(Value):
    """Request: release this lock, or stop waiting for it."""

    lock: str


class Acquired(Value):
    """The node holds the lock. Pass the token to the protected resource: see Fence."""

    lock: str
    token: int


class Renewed(Value):
    """The lease was renewed. The lock now has this token."""

    lock: str
    token: int


class Lapsed(Value):
    """The lease has expired, so the node no longer holds the lock."""

    lock: str
    token: int


class Enqueue(Value):
    queue: str
    data: bytes


class Deposit(Value):
    """Request: let the leader add an element, so that a short-lived process leaves no state."""

    queue: str
    ticket: int  # repeated in the answer
    data: bytes


class Deposited(Value):
    """If `done`, the leader has the element on disk. If not, the group has no leader."""

    queue: str
    ticket: int
    done: bool


class Dequeue(Value):
    """Request: take one element. If the queue is empty, wait for one or answer at once."""

    queue: str
    ticket: int  # repeated in the answer
    wait: bool = False


class Withdraw(Value):
    """Request: stop waiting. An element that arrives for this ticket returns to the queue.

    If the ticket is a deposit, the element may or may not be added.
    """

    queue: str
    ticket: int


class Dequeued(Value):
    """This node owns the element. None means that its copy of the queue was empty."""

    queue: str
    ticket: int
    data: bytes | None
