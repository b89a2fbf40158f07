"""Feature levels: the commands and rules that every member of a group supports.

A group decides its level through its log. The level starts at the founder's. It rises when all
members are up and support a higher level, and never falls. The leader refuses commands above the
level, so no member ever receives a command that it cannot decode.

| level | adds |
|---|---|
| 1 | all commands and rules of the first version |
| 2 | shared subscriptions, tags in topic names, and seeks that take effect once |
| 3 | transactions |
| 4 | delayed messages and time to live |
| 5 | transactions across groups of a ring |
| 6 | partitioned topics and their consumer groups |

To add a level, raise `KNOWN`, add a row here, and declare `feature_level` in each new command:

    class Rename(Value, tag="Rename"):
        feature_level: ClassVar[int] = 7

If a rule of the state machine changes, make it depend on `registry.level`. If only newer members
understand a field, set it only at its level, or declare the level that its value needs as
`field_level`.
"""

from __future__ import annotations

from collections.abc import Iterable

KNOWN = 6  # the highest feature level that this program supports


def level_of(command: type) -> int:
    """Return the level that a group needs to decide this type of command."""
    level: int = getattr(command, "feature_level", 1)
    return level


def needed_by(command: object) -> int:
    """Return the level that a group needs to decide this command with these fields."""
    level: int = getattr(command, "field_level", 1)
    return max(level, level_of(type(command)))


def above(level: int, commands: Iterable[type]) -> frozenset[type]:
    """Return the command types that a group at `level` must not decide."""
    return frozenset(kind for kind in commands if level_of(kind) > level)
