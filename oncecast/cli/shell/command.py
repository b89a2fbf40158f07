"""`oncecast shell`: the commands, one after the other, over one connection.

On a terminal it has a prompt, history, completion and help, and shows what arrives while you type.
From a pipe or a file it does the lines one by one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from oncecast.cli import exits
from oncecast.cli.connecting import (
    add_connection,
    add_identity,
    add_json,
    add_timeout,
    complain,
)

if TYPE_CHECKING:
    from io import TextIOWrapper

    from oncecast.cli.shell.conversation import Conversation

PROMPT = "oncecast> "


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shell = commands.add_parser("shell", help="the interactive client", description=__doc__)
    add_connection(shell)
    add_timeout(shell)
    add_identity(shell)
    shell.add_argument("--stop-on-error", action="store_true", help="leave when a command fails")
    add_json(shell)
    shell.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.cli.shell.conversation import Conversation

    stop = arguments.stop_on_error
    with Conversation(arguments) as conversation:
        if sys.stdin.isatty():
            return by_hand(conversation, history_of(arguments), stop=stop)
        # Values may be any bytes, as on the command line.
        cast("TextIOWrapper", sys.stdin).reconfigure(errors="surrogateescape")
        return piped(conversation, sys.stdin, stop=stop)


def by_hand(conversation: Conversation, history: Path, *, stop: bool) -> int:
    """At a terminal. Ctrl-C drops the line, or ends the command, and never the shell."""
    from oncecast.cli.shell.terminal import Terminal

    terminal = Terminal(PROMPT, history, conversation.completion)
    with terminal.open(), conversation.closed_by_signals():
        if status := conversation.greet(terminal.say):
            return status
        while not (conversation.over or (status and stop)):
            line = None
            try:
                if (line := terminal.line()) is None:
                    break
                status = conversation.do(line)
            except KeyboardInterrupt:
                print(file=sys.stderr)  # behind the ^C
                if line is not None:
                    complain("interrupted; what was asked for may be done yet")
        left = conversation.close()
        return (status if stop else exits.OK) or left


def piped(conversation: Conversation, lines: Iterable[str], *, stop: bool) -> int:
    """The status of the first command that failed."""
    first = exits.OK
    with conversation.closed_by_signals():
        for line in lines:
            status = conversation.do(line)
            first = first or status
            if conversation.over or (first and stop):
                break
        left = conversation.close()
    return first or left


def history_of(arguments: argparse.Namespace) -> Path:
    """In the state directory, or else where this user's programs keep such things."""
    if arguments.state is not None:
        return Path(arguments.state) / "history"
    states = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(states) / "oncecast" / "history"
