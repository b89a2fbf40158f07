"""The `oncecast` command: parse the arguments, run one command, return its exit status.

A command is a module with `configure(commands)`, which adds its parser and sets `run`: a function
that takes the parsed arguments and returns an exit status. Heavy imports are inside `run`, so
that `oncecast --help` stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import oncecast
from oncecast.cli.connecting import complain, is_of_output
from oncecast.errors import ExitStatus

STDIN, STDOUT, STDERR = range(3)

COMMANDS = (
    "serve.command",
    "cluster.command",
    "messages.command",
    "messages.topics",
    "messages.subs",
    "cert.command",
    "access.users",
    "access.tokens",
    "access.rules",
    "shell.command",
    "load.command",
    "coordination.keep",
    "coordination.lock",
    "coordination.elect",
    "coordination.queue",
    "coordination.stream",
    "spark.pipeline",
    "spark.experiment",
    "demo",
    "log",
    "history",
    "sim.command",
)


class Parser(argparse.ArgumentParser):
    """A parser whose description is a sentence without the name of the command."""

    def __init__(self, *, description: str | None = None, **options: Any) -> None:
        if description:
            text = description.strip().rpartition("`: ")[2].removesuffix(".")
            description = f"{text[0].upper()}{text[1:]}."
        super().__init__(description=description, **options)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="oncecast", description=oncecast.__doc__)
    parser.add_argument("--version", action="version", version=f"oncecast {oncecast.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"oncecast.cli.{name}").configure(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    _fill_streams()
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return ExitStatus.BROKEN_PIPE
    except OSError as error:
        if not is_of_output(error):
            raise
        _discard_output()
        return complain(f"cannot write the output: {error.strerror}; free disk space")
    return status


def _fill_streams() -> None:
    """Open the standard streams that the parent process has closed.

    Otherwise a socket or a log file gets the descriptor of a stream. Error messages would go
    there, and uvloop does not close it.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(opened)
    sys.stdin = sys.stdin or os.fdopen(STDIN)
    sys.stdout = sys.stdout or os.fdopen(STDOUT, "w")
    sys.stderr = sys.stderr or os.fdopen(STDERR, "w")


def _discard_output() -> None:
    # The interpreter flushes stdout when it exits, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
