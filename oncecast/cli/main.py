"""The `oncecast` command: reads the arguments, runs one command, returns its exit status.

A command is a module with `configure(commands)`: it adds its parser and sets `run`, a function from
the parsed arguments to an exit status. It imports what is heavy inside `run`, so that
`oncecast --help` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

import oncecast
from oncecast.cli import exits

COMMANDS = (
    "serve",
    "cluster",
    "messages",
    "topics",
    "subs",
    "shell",
    "load",
    "keep",
    "lock",
    "elect",
    "queue",
    "stream",
    "pipeline",
    "experiment",
    "demo",
    "log",
    "sim",
)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="oncecast", description=oncecast.__doc__)
    parser.add_argument("--version", action="version", version=f"oncecast {oncecast.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        if importlib.util.find_spec(f"oncecast.cli.{name}"):
            importlib.import_module(f"oncecast.cli.{name}").configure(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return exits.BROKEN_PIPE
    return status


def _discard_output() -> None:
    # The interpreter flushes stdout once more at its end and would complain about the pipe then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
