"""What a line of the shell means, and how an unfinished one may go on. Pure: no terminal, no node.

Words are divided as in a Unix shell: blanks between them, quotes and backslashes around blanks.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

# Words of the shell for commands that have a longer name elsewhere.
SHORT: dict[str, tuple[str, ...]] = {
    "publish": ("put",),
    "subscribe": ("sub",),
    "unsubscribe": ("unsub",),
    "topics": ("topic", "list"),
    "lag": ("subs", "lag"),
    "seek": ("subs", "seek"),
    "quit": ("exit",),
}
PLACES = ("earliest", "new")

Parser = argparse.ArgumentParser


def divide(line: str) -> list[str]:
    """The words of a command in full; nothing for a comment. ValueError: a quote is missing."""
    if line.lstrip().startswith("#"):
        return []
    words = shlex.split(line)
    if words and words[0] == "oncecast":  # copied from a page, or from a remedy
        del words[0]
    return in_full(words)


def in_full(words: list[str]) -> list[str]:
    if not words:
        return []
    if words[0] == "subs" and (len(words) == 1 or words[1] not in ("list", "lag", "seek", "-h")):
        return ["subs", "list", *words[1:]]
    return [*SHORT.get(words[0], words[:1]), *words[1:]]


def verbs(parser: Parser) -> dict[str, Parser]:
    """The commands of a parser; none if it is a command itself."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def command(parser: Parser, words: Sequence[str]) -> tuple[Parser, Sequence[str]]:
    """The parser that the first words lead to, and the words that are left."""
    while words and words[0] in (known := verbs(parser)):
        parser, words = known[words[0]], words[1:]
    return parser, words


# Completion.


class Unfinished(NamedTuple):
    """The word before the cursor: as it is typed, and what it means so far."""

    typed: str
    text: str


def unfinished(line: str) -> tuple[list[str], Unfinished]:
    """The words that are finished, and the one that is not."""
    begin, quote, escaped = 0, "", False
    for at, char in enumerate(line):
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in " \t":
            begin = at + 1
    typed = line[begin:]
    text = shlex.split(typed.removesuffix("\\") + quote if escaped else typed + quote)
    return shlex.split(line[:begin]), Unfinished(typed, "".join(text))


def spelled(names: Iterable[str], typed: str) -> list[str]:
    """Names as they would be typed, in the manner in which `typed` begins."""
    names = [name for name in names if name.isprintable()]
    if typed[:1] == "'":
        return [shlex.quote(name) if "'" in name else f"'{name}'" for name in names]
    if typed[:1] != '"' and "\\" in typed:
        return ["".join(c if shlex.quote(c) == c else f"\\{c}" for c in name) for name in names]
    if typed[:1] == '"' or any(shlex.quote(name) != name for name in names):
        escapes = str.maketrans({'"': '\\"', "\\": "\\\\"})
        return [f'"{name.translate(escapes)}"' for name in names]
    return names


class Completion:
    """`topics(prefix)` and `subscriptions(topic)` name what the node has."""

    def __init__(
        self,
        parser: Parser,
        topics: Callable[[str], Iterable[str]],
        subscriptions: Callable[[str], Iterable[str]],
    ) -> None:
        self._parser, self._topics, self._subscriptions = parser, topics, subscriptions

    def __call__(self, line: str) -> tuple[str, list[str]]:
        """The word at the end of `line` and what may replace it; with a blank if that is all."""
        try:
            words, word = unfinished(line)
        except ValueError:
            return "", []
        names = {each for each in self._names(words, word.text) if each.startswith(word.text)}
        found = spelled(sorted(names), word.typed)
        return word.typed, [f"{found[0]} "] if len(found) == 1 else found

    def _names(self, words: list[str], text: str) -> Iterator[str]:
        if not words:
            yield from self._commands()
            return
        if len(words) == 1:
            yield from verbs(command(self._parser, words)[0])
        leaf, rest = command(self._parser, in_full(words))
        if text.startswith("-"):
            yield from (name for action in leaf._actions for name in action.option_strings)
        else:
            yield from self._values(leaf, rest, text)

    def _commands(self) -> list[str]:
        return [*verbs(self._parser), *SHORT]

    def _values(self, leaf: Parser, rest: Sequence[str], text: str) -> Iterable[str]:
        options = {name: action for action in leaf._actions for name in action.option_strings}
        places = [action for action in leaf._actions if not action.option_strings]
        given: list[str] = []  # in places
        waiting = False  # for the value of the option before it
        for word in rest:
            if waiting:
                waiting = False
            elif word in options:
                waiting = options[word].nargs != 0
            else:
                given.append(word)
        if waiting:
            return self._of_option(rest[-1], given)
        match places[len(given)].metavar if len(given) < len(places) else None:
            case "TOPIC":
                return self._topics(text)
            case "PLACE":
                return PLACES
            case "COMMAND":
                return self._commands()
            case _:
                return ()

    def _of_option(self, option: str, given: list[str]) -> Iterable[str]:
        if option == "--subscription":
            return self._subscriptions(given[0]) if given else ()
        return PLACES if option == "--start" else ()
