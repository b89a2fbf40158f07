"""Measure how long each hop of a message takes from `put` to `get`. Write JSON and a chart.

The publisher, the node and the subscriber are separate processes. Each records the time when a
message reaches certain functions. One message is in flight at a time, with a pause after each. All
processes on a machine share one clock.

    python -m bench.path [--messages 1000] [--directory DIR] [--json FILE] [--picture FILE.png]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bench.peers import apart
from bench.peers.comparing import conditions
from bench.peers.ours import Oncecast
from bench.peers.peer import PAUSE, answers, free_port, mind_signals
from bench.peers.results import percentiles
from oncecast.cli.main import main as run_command
from oncecast.network.network import run

HERE = Path(__file__).resolve().parent.parent
PUBLISHER, NODE, SUBSCRIBER = "publisher", "node", "subscriber"
TOPIC, SIZE = "path", 100


class Mark(NamedTuple):
    """A point on the path: the start of a function, or its end."""

    process: str
    label: str
    function: str = ""  # "module:Class.method"; empty for the first and last mark
    end: bool = False


MARKS = (
    Mark(PUBLISHER, "put is called"),
    Mark(PUBLISHER, "the batch is cut", "oncecast.client.putting:Putting._cut"),
    Mark(PUBLISHER, "the call is encoded", "oncecast.network.transport:Transport.send"),
    Mark(PUBLISHER, "the write begins", "oncecast.network.connection:Connection.flush"),
    Mark(NODE, "the call is read", "oncecast.network.connection:Connection.buffer_updated"),
    Mark(NODE, "the call is decoded", "oncecast.broker.gateway:Gateway.receive"),
    Mark(NODE, "the command is proposed", "oncecast.replication.leader:Leader.on_propose"),
    Mark(NODE, "the record is taken", "oncecast.storage.journal:Journal.take"),
    Mark(NODE, "the flush begins", "oncecast.storage.journal:Journal.begin"),
    Mark(NODE, "the sync begins", "oncecast.storage.dirty:Unsynced.sync"),
    Mark(NODE, "the sync ends", "oncecast.storage.dirty:Unsynced.sync", True),
    Mark(NODE, "the command is decided", "oncecast.broker.service:Service._decided"),
    Mark(NODE, "the delivery is built", "oncecast.broker.gateway:Gateway._deliver"),
    Mark(NODE, "the write begins", "oncecast.network.connection:Connection.flush"),
    Mark(
        SUBSCRIBER, "the delivery is read", "oncecast.network.connection:Connection.buffer_updated"
    ),
    Mark(
        SUBSCRIBER,
        "the delivery is decoded",
        "oncecast.client.session.client:ClientSession.receive",
    ),
    Mark(
        SUBSCRIBER, "the message is unpacked", "oncecast.client.subscription:Subscription.arrived"
    ),
    Mark(SUBSCRIBER, "get returns"),
)

Times = dict[str, list[float]]  # mark label -> times


def install(process: str) -> Times:
    """Wrap the functions of this process so that they record their times."""
    times: Times = {}
    for mark in MARKS:
        if mark.process != process or not mark.function:
            continue
        module, _, path = mark.function.partition(":")
        owner, _, name = path.partition(".")
        kind = getattr(importlib.import_module(module), owner)
        noted = times.setdefault(mark.label, [])
        setattr(kind, name, noting(getattr(kind, name), noted.append, end=mark.end))
    return times


def noting(
    function: Callable[..., Any], note: Callable[[float], None], *, end: bool
) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        if not end:
            note(perf_counter())
        result = function(*arguments)
        if end:
            note(perf_counter())
        return result

    return noted


# -- the processes --


def act(process: str, address: str, *words: str) -> None:
    times = install(process)
    if process == NODE:
        status = run_command(["serve", "--listen", address, "--data", words[0]])
        print(json.dumps(times), flush=True)
        sys.exit(status)
    peer, side = Oncecast(), apart.publish if process == PUBLISHER else apart.subscribe
    peer.address = address
    run(side(peer, TOPIC, *map(int, words)))
    print(json.dumps(times), flush=True)


@contextmanager
def process(name: str, *words: str, pipe: int = -1) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.path", "--process", name, *words]
    started = subprocess.Popen(
        command,
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if name == NODE else None,
        text=True,
        pass_fds=() if pipe < 0 else (pipe,),
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def measured(count: int, directory: Path) -> dict[str, Times]:
    """Return the times of all marks, by process."""
    port = free_port()
    address, words = f"127.0.0.1:{port}", (str(count + apart.WARM_UP), str(SIZE))
    reading, writing = os.pipe()
    with process(NODE, address, str(directory)) as node:
        while not answers(port):
            if node.poll() is not None:
                sys.exit(f"bench.path: the node ended with status {node.returncode}")
        with (
            process(SUBSCRIBER, address, *words, str(writing), pipe=writing) as subscriber,
            process(PUBLISHER, address, *words, str(reading), pipe=reading) as publisher,
        ):
            puts, published = publisher.communicate()[0].splitlines()
            arrivals, subscribed = subscriber.communicate()[0].splitlines()
        node.terminate()
        served = node.communicate()[0]
    os.close(reading)
    os.close(writing)
    found = {NODE: served, PUBLISHER: published, SUBSCRIBER: subscribed}
    times: dict[str, Times] = {name: json.loads(each) for name, each in found.items()}
    times[PUBLISHER][MARKS[0].label] = json.loads(puts)
    times[SUBSCRIBER][MARKS[-1].label] = json.loads(arrivals)
    return times


# -- the results --


def paths(times: dict[str, Times]) -> list[list[float]]:
    """Return the seconds of each hop for each message. Skip messages that lack a mark."""
    starts, ends = times[PUBLISHER][MARKS[0].label], times[SUBSCRIBER][MARKS[-1].label]
    found = []
    for start, end in list(zip(starts, ends, strict=True))[apart.WARM_UP :]:
        reached = [start]
        for mark in MARKS[1:-1]:
            noted = times[mark.process][mark.label]
            at = bisect_left(noted, reached[-1])
            reached.append(noted[at] if at < len(noted) else end + 1.0)
        if reached[-1] <= end:
            found.append([later - earlier for earlier, later in pairwise([*reached, end])])
    return found


def summary(found: Sequence[Sequence[float]], about: dict[str, Any]) -> dict[str, Any]:
    hops = [
        {
            "process": mark.process if mark.process == before.process else "system",
            "from": before.label,
            "to": mark.label,
            **percentiles([path[at] * 1e6 for path in found]),
        }
        for at, (before, mark) in enumerate(pairwise(MARKS))
    ]
    total = percentiles([sum(path) * 1e6 for path in found])
    return {"conditions": about, "unit": "us", "messages": len(found), "total": total, "hops": hops}


def show(results: dict[str, Any]) -> None:
    print(", ".join(f"{key} {value}" for key, value in results["conditions"].items()))
    rows = [(f"{hop['process']}: until {hop['to']}", hop) for hop in results["hops"]]
    for name, figures in (*rows, (f"total, {results['messages']:,} messages", results["total"])):
        columns = [f"{key} {figures[key]:>8,.0f}" for key in results["total"]]
        print(f"{name:<42} us  {'  '.join(columns)}")


def draw(results: dict[str, Any]) -> bytes:
    """Draw the medians of the hops as bars, each starting where the last one ends."""
    from oncecast.spark.experiments import drawing

    colors = {
        PUBLISHER: drawing.BLUE,
        NODE: drawing.ORANGE,
        SUBSCRIBER: drawing.GREEN,
        "system": drawing.GREY,
    }
    with drawing.sheet(1) as made:
        made.figure.set_size_inches(9, 5.5)
        (panel,) = made.panels
        hops, at = results["hops"], 0.0
        for row, hop in enumerate(hops):
            panel.barh(row, hop["p50"], left=at, color=colors[hop["process"]])
            at += hop["p50"]
            panel.annotate(f" {hop['p50']:,.0f}", (at, row), va="center", fontsize=8)
        panel.set_yticks(range(len(hops)), [f"until {hop['to']}" for hop in hops])
        panel.invert_yaxis()
        panel.set_xlim(0, 1.1 * at)
        for name, color in colors.items():
            panel.barh(0, 0, color=color, label=name)
        panel.legend(loc="lower left")
        panel.set(title="From put to get, one message at a time", xlabel="us (median of each hop)")
        drawing.whole(panel, "x")
    return made.png


def main() -> None:
    if sys.argv[1:2] == ["--process"]:
        act(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="bench.path", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--messages", type=int, default=1000, help="number of messages (default: 1000)"
    )
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results to this file as JSON"
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw a chart in this PNG file"
    )
    arguments = parser.parse_args()
    mind_signals()
    with tempfile.TemporaryDirectory(prefix="oncecast-bench-", dir=arguments.directory) as root:
        about = conditions(PAUSE)
        results = summary(paths(measured(arguments.messages, Path(root) / "data")), about)
    show(results)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    if arguments.picture:
        arguments.picture.write_bytes(draw(results))


if __name__ == "__main__":
    main()
