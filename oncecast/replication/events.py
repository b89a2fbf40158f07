"""What a replica group is asked for and what it tells, whatever protocol is behind it (REP-3).

    Propose, Compact ↓    Decided ↑    and, to whoever holds the group: `entry(place)` reads again

A proposal may be decided more than once, or never, if its node crashes: whoever proposes must make
its commands idempotent, and propose again until it hears.
"""

from __future__ import annotations

from typing import Protocol

from oncecast.kernel.protocol import Value


class Propose(Value):
    """Request: put `value` into the order. `token` comes back with it, at this node only."""

    token: int
    value: bytes


class Compact(Value):
    """Request: `state` stands for all that was decided up to `place`; nothing before `needed` will
    be read again."""

    place: int
    needed: int
    state: tuple[bytes, ...]


class Decided(Value):
    """`value` stands at `place`, for ever. Places grow; `token` is -1 for what others proposed."""

    place: int
    value: bytes
    token: int = -1


class Entries(Protocol):
    """Read access to what was decided and not yet trimmed."""

    def entry(self, place: int) -> bytes: ...


class Learner(Protocol):
    """Who is told, before the start, what was decided in earlier lives: at most one state, then
    values, in order."""

    def install(self, place: int, state: tuple[bytes, ...]) -> None: ...
    def learn(self, place: int, value: bytes) -> None: ...
