"""Split shell lines into words, and complete the last word.

Words are split as in a Unix shell: at spaces, with quotes and backslashes. The functions need
neither a terminal nor a node.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

# Alternative names of commands in the shell.
SHORT: dict[str, tuple[str, ...]] = {
    "publish": ("put",),
    "subscribe": ("sub",),
    "unsubscribe": ("unsub",),
    "topics": ("topic", "list"),
    "lag": ("subs", "lag"),
    "seek": ("subs", "seek"),
    "quit": ("exit",),
    "?": ("help",),
}
PLACES = ("earliest", "new")
POSITION_OPTIONS = ("--start", "--from")

Parser = argparse.ArgumentParser


def divide(line: str) -> list[str]:
    """Return the words of a command, or [] for a comment.

    Raise ValueError if a closing quote is missing.
    """
    if line.lstrip().startswith("#"):
        return []
    words = shlex.split(line)
    if words and words[0] == "oncecast":  # copied from the docs or an error message
        del words[0]
    return in_full(words)


def in_full(words: list[str]) -> list[str]:
    if not words:
        return []
    if words[0] == "subs" and (len(words) == 1 or words[1] not in ("list", "lag", "seek", "-h")):
        return ["subs", "list", *words[1:]]
    return [*SHORT.get(words[0], words[:1]), *words[1:]]


def verbs(parser: Parser) -> dict[str, Parser]:
    """Return the subcommands of a parser by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def command(parser: Parser, words: Sequence[str]) -> tuple[Parser, Sequence[str]]:
    """Return the parser of the command that `words` starts with, and the remaining words."""
    while words and words[0] in (known := verbs(parser)):
        parser, words = known[words[0]], words[1:]
    return parser, words


# Completion.


class Unfinished(NamedTuple):
    """The word before the cursor, as typed and with quotes and backslashes removed."""

    typed: str
    text: str


def unfinished(line: str) -> tuple[list[str], Unfinished]:
    """Return the complete words of a line and the word before the cursor."""
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
    """Return the names quoted or escaped in the style of `typed`."""
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
    """Completes words. `topics(prefix)` and `subscriptions(topic)` return names from the node.

    Outside the shell of oncecast, `in_shell` is false: its alternative names do not exist there.
    """

    def __init__(
        self,
        parser: Parser,
        topics: Callable[[str], Iterable[str]],
        subscriptions: Callable[[str], Iterable[str]],
        *,
        in_shell: bool = True,
    ) -> None:
        self._parser, self._topics, self._subscriptions = parser, topics, subscriptions
        self._in_shell = in_shell

    def __call__(self, line: str) -> tuple[str, list[str]]:
        """Return the word at the cursor and its completions. A sole completion ends in a space."""
        try:
            words, word = unfinished(line)
        except ValueError:
            return "", []
        found = spelled(self.names(words, word.text), word.typed)
        return word.typed, [f"{found[0]} "] if len(found) == 1 else found

    def names(self, words: list[str], text: str) -> list[str]:
        """Return the possible words that start with `text`, after the complete `words`."""
        return sorted({each for each in self._names(words, text) if each.startswith(text)})

    def _names(self, words: list[str], text: str) -> Iterator[str]:
        if not words:
            yield from self._commands()
            return
        if len(words) == 1:
            yield from verbs(command(self._parser, words)[0])
        leaf, rest = command(self._parser, in_full(words) if self._in_shell else words)
        if text.startswith("-"):
            yield from (name for action in leaf._actions for name in action.option_strings)
        else:
            yield from self._values(leaf, rest, text)

    def _commands(self) -> list[str]:
        return [*verbs(self._parser), *(SHORT if self._in_shell else ())]

    def _values(self, leaf: Parser, rest: Sequence[str], text: str) -> Iterable[str]:
        options = {name: action for action in leaf._actions for name in action.option_strings}
        positionals = [action for action in leaf._actions if not action.option_strings]
        given: list[str] = []  # positional arguments so far
        option_value = False  # whether the next word is the value of an option
        for word in rest:
            if option_value:
                option_value = False
            elif word in options:
                option_value = options[word].nargs != 0
            else:
                given.append(word)
        if option_value:
            return self._of_option(rest[-1], given)
        match positionals[len(given)].metavar if len(given) < len(positionals) else None:
            case "TOPIC":
                return self._topics(text)
            case "POSITION":
                return PLACES
            case "COMMAND":
                return self._commands() if self._in_shell else ()
            case _:
                return ()

    def _of_option(self, option: str, given: list[str]) -> Iterable[str]:
        if option == "--subscription":
            return self._subscriptions(given[0]) if given else ()
        return PLACES if option in POSITION_OPTIONS else ()
