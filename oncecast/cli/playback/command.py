"""`oncecast playback FILE...`: show what clients did, from histories or load traces."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from oncecast.cli.connecting import complain
from oncecast.cli.history import read_file
from oncecast.cli.playback import showing
from oncecast.errors import BadHistory, ExitStatus

if TYPE_CHECKING:
    from oncecast.playback.recording import Recording


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    playback = commands.add_parser(
        "playback", help="show a recorded run of clients in a browser", description=__doc__
    )
    playback.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="history files, or traces of oncecast load, of one run",
    )
    showing.add_options(playback, "serve the page, which is the default without --html")
    playback.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        recording = read(arguments.files)
    except BadHistory as error:
        return complain(error)
    except FileNotFoundError as error:
        return complain(f"{error.filename}: {error.strerror}", ExitStatus.NOT_FOUND)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}; use a readable file")
    if not recording.steps:
        return complain("the files contain no operations", ExitStatus.EMPTY)
    web = arguments.web or arguments.html is None
    status = showing.show(recording, html=arguments.html, web=web, port=arguments.port)
    return status or (ExitStatus.FAILURE if recording.violation else ExitStatus.OK)


def read(files: list[Path]) -> Recording:
    """Read files of one format: histories, which are also checked, or traces."""
    from oncecast.history.check import check
    from oncecast.history.file import merged
    from oncecast.playback import histories, traces

    title = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    kinds = [traces.is_trace(first_line(path)) for path in files]
    if all(kinds):
        lines = (line for path in files for line in traces.lines(path.read_bytes(), str(path)))
        return traces.record(title, lines)
    if any(kinds):
        raise BadHistory("the files have different formats", "play histories and traces separately")
    history = merged([read_file(path) for path in files])
    verdict = check(history)
    recording = histories.record(title, history, verdict.broken)
    recording.facts = {"operations": f"{verdict.operations:,}"}
    if verdict.undecided:
        recording.notes.append("The check could not decide whether this history is linearizable.")
    return recording


def first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()
