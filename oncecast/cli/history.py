"""`oncecast history check FILE...`: check that recorded histories are linearizable."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import add_flag, add_option, complain, counted
from oncecast.cli.output import as_json, on_terminal
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.history.check import Verdict
    from oncecast.history.finding import Finding
    from oncecast.history.operation import History

STEPS_MAX = 5_000_000


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    history = commands.add_parser("history", help="check histories recorded by clients")
    verbs = history.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verb = verbs.add_parser(
        "check", help="check that histories are linearizable; exit with status 1 if they are not"
    )
    verb.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="history files from all clients of one run",
    )
    about = "maximum search steps for each topic and subscription"
    add_option(verb, "--steps", "N", about, STEPS_MAX, steps)
    add_flag(verb, "--json", "print the result as one JSON object")
    verb.set_defaults(run=run_check)


def steps(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def run_check(arguments: argparse.Namespace) -> int:
    from oncecast.errors import BadHistory
    from oncecast.history.check import check
    from oncecast.history.file import merged

    files = [path.resolve() for path in arguments.files]
    for path, file in zip(arguments.files, files, strict=True):
        if files.count(file) > 1:
            return complain(f"{path}: listed twice; list each file once", ExitStatus.USAGE)
    try:
        history = merged([read_file(path) for path in arguments.files])
    except BadHistory as error:
        return complain(error)
    except FileNotFoundError as error:
        return complain(f"{error.filename}: {error.strerror}", ExitStatus.NOT_FOUND)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}; use a readable file")
    verdict = check(history, steps_max=arguments.steps)
    if arguments.json:
        print(as_json(as_dict(verdict)))
    elif history:
        print(on_terminal(str(verdict)))
    if not history:
        return complain("the files contain no operations, so nothing was checked", ExitStatus.EMPTY)
    if verdict.undecided and not arguments.json:
        left = counted(len(verdict.undecided), "topic or subscription", "topics or subscriptions")
        complain(f"{left} undecided; raise --steps (now {arguments.steps})")
    return ExitStatus.OK if verdict.ok else ExitStatus.FAILURE


def read_file(path: Path) -> History:
    from oncecast.history.file import read

    with path.open("rb") as file:
        return read(file, str(path))


def as_dict(verdict: Verdict) -> dict[str, Any]:
    def listed(findings: list[Finding]) -> list[dict[str, Any]]:
        return [each._asdict() for each in findings]

    return {
        **verdict._asdict(),
        "ok": verdict.ok and verdict.operations > 0,
        "broken": listed(verdict.broken),
        "undecided": listed(verdict.undecided),
    }
