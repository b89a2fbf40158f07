"""`oncecast sim replay --web` and `--html`: record a run, and play it in a browser."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from oncecast.cli.connecting import complain
from oncecast.cli.playback import showing
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.lab.scenarios.scenario import Scenario


def play(args: argparse.Namespace, scenario: Scenario) -> int:
    from oncecast.lab.scenarios.scenario import run
    from oncecast.playback.recorder import Recorder

    if args.node is not None or args.since or args.last is not None or args.json:
        about = "--node, --since, --last and --json select lines to print"
        return complain(f"{about}; do not combine them with --web or --html", ExitStatus.USAGE)
    if sys.stderr.isatty():
        print("recording the run ...", file=sys.stderr)
    recorder = Recorder()
    outcome = run(scenario, args.seed, args.nodes, make=recorder.simulation, caught=recorder.caught)
    recording = recorder.finished()
    recording.title = f"{scenario.name}, seed {args.seed}"
    recording.facts = {
        "nodes": str(outcome.nodes),
        "steps": f"{recording.next:,}",
        "trace": outcome.trace[:12],
    }
    if not outcome.ok:
        print(f"at {outcome.virtual_seconds:.6f} s: {outcome.violation.splitlines()[0]}")
    status = showing.show(recording, html=args.html, web=args.web, port=args.port)
    return status or (ExitStatus.OK if outcome.ok else ExitStatus.FAILURE)
