"""The open messages of each key, in the order of their offsets.

A subscription may have a million open messages with different keys. So a message that is alone in
its line is stored without a deque, which would need 700 bytes.
"""

from __future__ import annotations

from collections import deque


class KeyLines:
    __slots__ = ("_keys", "_lines")

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}  # hashes of the keys of open messages
        self._lines: dict[int, int | deque[int]] = {}  # lowest offset first

    def key(self, offset: int) -> int:
        """Return the hash of a message's key, or 0 without a key."""
        return self._keys.get(offset, 0)

    def add(self, offset: int, key: int) -> bool:
        """Add a message at the end of its line. Return whether another message is before it."""
        self._keys[offset] = key
        line = self._lines.get(key)
        if line is None:
            self._lines[key] = offset
        elif isinstance(line, int):
            self._lines[key] = deque((line, offset))
        else:
            line.append(offset)
        return line is not None

    def remove(self, offset: int) -> int | None:
        """Remove a message. If it was the first of its line, return the new first."""
        key = self._keys.pop(offset, 0)
        if not key:
            return None
        line = self._lines[key]
        if isinstance(line, int):
            del self._lines[key]
            return None
        first = line[0] == offset
        line.remove(offset)
        head = line[0]
        if len(line) == 1:
            self._lines[key] = head
        return head if first else None
