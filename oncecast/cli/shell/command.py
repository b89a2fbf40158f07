"""`oncecast shell`: run several commands over one connection.

At a terminal, the shell has a prompt with history and completion, and shows messages that arrive
while you type. From a pipe or a file, it runs one command per line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from oncecast.cli.connecting import (
    add_connection,
    add_identity,
    add_json,
    add_timeout,
    complain,
)
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from io import TextIOWrapper

    from oncecast.cli.shell.conversation import Conversation

PROMPT = "oncecast> "


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    shell = commands.add_parser("shell", help="run commands interactively", description=__doc__)
    add_connection(shell)
    add_timeout(shell)
    add_identity(shell)
    shell.add_argument("--stop-on-error", action="store_true", help="exit when a command fails")
    add_json(shell)
    shell.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.cli.shell.conversation import Conversation

    stop = arguments.stop_on_error
    with Conversation(arguments) as conversation:
        if sys.stdin.isatty():
            return by_hand(conversation, history_of(arguments), stop=stop)
        # Values may contain any bytes, as on the command line.
        cast("TextIOWrapper", sys.stdin).reconfigure(errors="surrogateescape")
        return piped(conversation, sys.stdin, stop=stop)


def by_hand(conversation: Conversation, history: Path, *, stop: bool) -> int:
    """Run commands from a terminal. Ctrl-C discards the line or cancels the running command."""
    from oncecast.cli.shell.terminal import make_terminal

    terminal = make_terminal(PROMPT, history, conversation.completion)
    with conversation.closed_by_signals():
        if status := conversation.greet(terminal.say):
            return status
        while not (conversation.over or (status and stop)):
            try:
                if (line := terminal.line()) is None:
                    break
                status = conversation.do(line)
            except KeyboardInterrupt:
                print(file=sys.stderr)  # end the line with the ^C
                complain("interrupted; the command may still take effect")
        left = conversation.close()
        return (status if stop else ExitStatus.OK) or left


def piped(conversation: Conversation, lines: Iterable[str], *, stop: bool) -> int:
    """Run commands from a pipe. Return the status of the first command that failed, or 0."""
    first: int = ExitStatus.OK
    with conversation.closed_by_signals():
        for line in lines:
            status = conversation.do(line)
            first = first or status
            if conversation.over or (first and stop):
                break
        left = conversation.close()
    return first or left


def history_of(arguments: argparse.Namespace) -> Path:
    """Return the history file: in `--state` if given, otherwise in the XDG state directory."""
    if arguments.state is not None:
        return Path(arguments.state) / "history"
    states = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(states) / "oncecast" / "history"
