"""The `oncecast` command: parse the arguments, run one command, return its exit status.

Each command is a module with `configure(commands)`, which adds its parser and sets `run`: a
function that takes the parsed arguments and returns an exit status. Heavy imports belong inside
`run`, so that `oncecast --help` is fast. Each call loads only the module of its command.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import oncecast
from oncecast.cli.connecting import complain, is_of_output
from oncecast.cli.parser import Parser
from oncecast.errors import ExitStatus
from oncecast.kernel.compiling import build

STDIN, STDOUT, STDERR = range(3)

# Each module and the commands that it adds.
COMMANDS = {
    "serve.command": ("serve",),
    "cluster.command": ("cluster",),
    "kafka": ("kafka",),
    "web": ("web",),
    "messages.put": ("put",),
    "messages.get": ("get",),
    "messages.peek": ("peek",),
    "messages.subscribe": ("sub", "unsub"),
    "messages.topics": ("topic",),
    "messages.subs": ("subs", "status"),
    "workers.work": ("work",),
    "workers.dead": ("dead",),
    "context": ("context",),
    "completion": ("completion",),
    "bench": ("bench",),
    "cert.command": ("cert",),
    "access.users": ("user",),
    "access.tokens": ("token",),
    "access.rules": ("rule",),
    "shell.command": ("shell",),
    "load.command": ("load",),
    "coordination.keep": ("keep",),
    "coordination.lock": ("lock",),
    "coordination.elect": ("elect",),
    "coordination.queue": ("queue",),
    "coordination.stream": ("stream",),
    "spark.pipeline": ("pipeline",),
    "spark.experiment": ("experiment",),
    "demo": ("demo",),
    "log": ("log",),
    "history": ("history",),
    "playback.command": ("playback",),
    "sim.command": ("sim",),
}


def modules_for(words: Sequence[str]) -> list[str]:
    """Return the modules to load: the one with the given command, or all if it is unknown."""
    first = words[0] if words else ""
    if first == "--version":
        return []
    return [name for name, commands in COMMANDS.items() if first in commands] or list(COMMANDS)


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser for all commands, or only for the command at the start of `words`."""
    parser = Parser(prog="oncecast", description=oncecast.__doc__)
    version = f"oncecast {oncecast.__version__} ({build()})"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in modules_for(words):
        importlib.import_module(f"oncecast.cli.{name}").configure(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    _fill_streams()
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = build_parser(words).parse_args(words)
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
        return complain(f"cannot write the output: {error.strerror}; free up disk space")
    return status


def _fill_streams() -> None:
    """Open the standard streams that the parent process has closed.

    Otherwise a socket or log file would get a stream's descriptor. Error messages would go there,
    and uvloop would not close it.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(opened)
    sys.stdin = sys.stdin or os.fdopen(STDIN)
    sys.stdout = sys.stdout or os.fdopen(STDOUT, "w")
    sys.stderr = sys.stderr or os.fdopen(STDERR, "w")


def _discard_output() -> None:
    # The interpreter flushes stdout at exit, which would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
