"""Topic and name patterns: `*` matches any run of characters, `?` matches one character.

A pattern is compiled once, and a match takes time linear in the text. Each bit of an integer is a
position in the pattern. Each character of the text advances all positions simultaneously
(Baeza-Yates and Gonnet, "A New Approach to Text Searching", CACM 1992). The match never backtracks.
"""

from __future__ import annotations

from collections.abc import Iterable

LENGTH_MAX = 255  # maximum bytes of a pattern, topic or name


class Pattern:
    """A pattern with at least one wildcard."""

    __slots__ = ("_any", "_begin", "_end", "_final", "_loops", "_masks", "_shortest", "_simple")

    def __init__(self, text: str) -> None:
        wild = [at for at, each in enumerate(text) if each in "*?"]
        self._begin, self._end = text[: wild[0]], text[wild[-1] + 1 :]
        self._simple = text.count("*") == len(wild) == 1
        self._shortest = len(text) - text.count("*")
        self._masks: dict[str, int] = {}  # the positions that a character matches
        self._any = 0  # the positions that every character matches
        self._loops = 0  # the positions of `*`, which match any number of characters
        bit = 1
        for each in text:
            if each == "*":
                self._loops |= bit
                continue
            if each == "?":
                self._any |= bit
            else:
                self._masks[each] = self._masks.get(each, 0) | bit
            bit <<= 1
        self._final = bit

    def matches(self, text: str) -> bool:
        if len(text) < self._shortest:
            return False
        if not text.startswith(self._begin) or not text.endswith(self._end):
            return False
        return self._simple or self._walk(text)

    def _walk(self, text: str) -> bool:
        masks, wild, loops = self._masks, self._any, self._loops
        at = 1
        for each in text:
            at = ((at & (masks.get(each, 0) | wild)) << 1) | (at & loops)
            if not at:
                return False
        return bool(at & self._final)


class Patterns:
    """A set of patterns. One lookup checks all patterns without wildcards."""

    __slots__ = ("_exact", "_wild")

    def __init__(self, texts: Iterable[str]) -> None:
        texts = dict.fromkeys(texts)
        self._exact = frozenset(each for each in texts if not is_wild(each))
        self._wild = tuple(Pattern(each) for each in texts if is_wild(each))

    def __bool__(self) -> bool:
        return bool(self._exact or self._wild)

    def match(self, text: str) -> bool:
        return text in self._exact or any(each.matches(text) for each in self._wild)


def is_wild(text: str) -> bool:
    return "*" in text or "?" in text


def literal_prefix(text: str) -> str:
    """Return the part of a pattern before its first wildcard."""
    return text.partition("*")[0].partition("?")[0]
