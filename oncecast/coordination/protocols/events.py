"""What the toolkit is asked for, and what it tells.

    Group                     Join, Leave ↓                  ViewChanged ↑
    LeaderElection                                           LeaderElected ↑
    Synod                     Decide ↓                       Settled, CaughtUp ↑
    LamportMutex, LeaseMutex  Acquire, Release ↓             Acquired, Renewed, Lapsed ↑
    FifoQueue, PaxosQueue     Enqueue, Dequeue, Withdraw ↓   Dequeued ↑
    PaxosQueue                Deposit ↓                      Deposited ↑

Both mutexes have one interface, and both queues: a stack has one of each at most.
"""

from __future__ import annotations

from oncecast.kernel.protocol import NodeId, Value

NOBODY = NodeId("")


class Join(Value):
    """Request: be a member from now on."""


class Leave(Value):
    """Request: be one no longer; others are told."""


class ViewChanged(Value):
    """The members that this node knows of and does not suspect, in order; itself included."""

    view: tuple[NodeId, ...]


class LeaderElected(Value):
    """`leader` may be NOBODY. In the end, all that are up hear of the same one."""

    leader: NodeId


class Decide(Value):
    """Request: have `value` settled for this number of a series, unless something else is."""

    series: str
    number: int
    value: str


class Settled(Value, tag="Settled"):
    """For ever: all who hear of this number of this series hear of the same value.

    Also a record of who has heard of it.
    """

    series: str
    number: int
    value: str


class CaughtUp(Value):
    """More is settled than this node has heard of; for whom, it can find out by Decide."""


class Acquire(Value):
    """Request: wait for this lock and hold it. Who waits or holds already changes nothing."""

    lock: str


class Release(Value):
    """Request: let go of it, or wait for it no longer."""

    lock: str


class Acquired(Value):
    """Here it is. Give the token with all that is done under the lock: see Fence."""

    lock: str
    token: int


class Renewed(Value):
    """It is held on, from now on under this token."""

    lock: str
    token: int


class Lapsed(Value):
    """It is held no longer, though nobody here has released it: its lease ran out."""

    lock: str
    token: int


class Enqueue(Value):
    queue: str
    data: bytes


class Deposit(Value):
    """Request: have the leader put this in. So its process may come and go, and leaves no trace."""

    queue: str
    ticket: int  # comes back with the answer
    data: bytes


class Deposited(Value):
    """The leader has it on its disk; or nobody leads, and it is not put in."""

    queue: str
    ticket: int
    done: bool


class Dequeue(Value):
    """Request: take any one element. If there is none: wait for it, or be told that at once."""

    queue: str
    ticket: int  # comes back with the answer
    wait: bool = False


class Withdraw(Value):
    """Request: wait no longer. An element that was on its way to this ticket goes back.

    One that was deposited under it may or may not be put in.
    """

    queue: str
    ticket: int


class Dequeued(Value):
    """The element is this node's; None: this node knew of no element that was left."""

    queue: str
    ticket: int
    data: bytes | None
