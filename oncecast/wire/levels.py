"""Feature levels: the commands and rules that the nodes of a group must know.

A group decides its level in its log. It starts at the level of its founder, and rises when all
members are present and know a higher one. It never falls. The leader refuses commands above it, so
no member meets a command that it cannot decode.

| level | adds |
|---|---|
| 1 | all commands and rules of the first version |

To add a level, raise `KNOWN`, add a row here, and declare `feature_level` in each new command:

    class Lease(Value, tag="Lease"):
        feature_level: ClassVar[int] = 2

A rule of the machine that changes asks for `registry.level`. A field that only newer members
understand is set only at its level.
"""

from __future__ import annotations

from collections.abc import Iterable

KNOWN = 1  # the highest level that this program knows


def level_of(command: type) -> int:
    """Return the level that a group needs for this type of command."""
    level: int = getattr(command, "feature_level", 1)
    return level


def above(level: int, commands: Iterable[type]) -> frozenset[type]:
    """Return the types of commands that a group at `level` must not decide."""
    return frozenset(kind for kind in commands if level_of(kind) > level)
