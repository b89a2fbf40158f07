"""The argument parser for `oncecast` and its shell. It prints errors on one line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from oncecast.errors import ExitStatus

# To check an option, argparse formats it. With a fixed width, it does not query the width of the
# terminal each time.
CHECKING = partial(argparse.HelpFormatter, width=80)

MISSING = "the following arguments are required: COMMAND"  # argparse's wording


class Parser(argparse.ArgumentParser):
    """A parser that removes the command name from its description."""

    def __init__(self, *, description: str | None = None, **options: Any) -> None:
        if description:
            text = description.strip().rpartition("`: ")[2].removesuffix(".")
            description = f"{text[0].upper()}{text[1:]}."
        super().__init__(description=description, formatter_class=CHECKING, **options)

    def format_help(self) -> str:
        self.formatter_class = argparse.HelpFormatter  # as wide as the terminal
        return super().format_help()

    def format_usage(self) -> str:
        self.formatter_class = argparse.HelpFormatter
        return super().format_usage()

    def error(self, message: str) -> NoReturn:
        """Print the error on one line and exit. Point to --help if the error has no remedy."""
        if message == MISSING and self._subparsers is not None:
            message = f"specify a command: {', '.join(self.commands)}"
        if "; " not in message:
            message += f"; see `{self.prog} --help`"
        self.exit(ExitStatus.USAGE, f"{self.prog}: {message}\n")

    @property
    def commands(self) -> list[str]:
        return [
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        ]

    # The inherited overloads add nothing here.
    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments. Reject unknown ones here, where similar options are known."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unknown argument {rest[0]!r}{near(rest[0], self._option_string_actions)}")
        return known, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"unknown command {value!r}{near(value, action.choices)}")
        super()._check_value(action, value)


def near(word: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" for the most similar known word, or "" if there is none."""
    import difflib  # imported here because only errors need it

    found = difflib.get_close_matches(word.partition("=")[0], known, 1)
    return f"; did you mean {found[0]}?" if found else ""
