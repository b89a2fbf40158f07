"""`oncecast demo`: watch for about a minute how a cluster survives the loss of its leader.

Three processes replicate each other while automated clients put and get messages. The leader is
killed and restarted. Then Spark checks the trace: each message must arrive once and in order.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import add_option, complain, positive
from oncecast.cli.spark.pipeline import needs_spark
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.cli.cluster.local import Node
    from oncecast.cli.commands import Command
    from oncecast.spark.audit.trace import Trace

PUBLISHES, RATE = 20_000, 2_000
KILL, START = 1 / 3, 2 / 3  # fraction of the messages that must be stored before each step
LOOK_EVERY = 0.1  # seconds
PATIENCE = 180.0  # maximum seconds to wait for a step; the load has its own timeout
FAULTS = ("lost", "duplicated", "out of order")
SIGNS = {"killed": "✗", "started": "✓"}
TRACE = "trace.jsonl"
NODES_TRACE = "nodes.jsonl"  # records when nodes were killed and started
RED, GREEN = "31", "32"
TRY = """
Try next:
  oncecast cluster up                        start a local cluster of your own
  oncecast experiment run all                simulate 20 to 10,000 nodes and write a report
  oncecast sim run broadcast --seeds 0..99   run 100 replayable simulations with faults"""


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "watch three nodes survive the loss of their leader"
    demo = commands.add_parser("demo", help=about, description=__doc__)
    add_option(demo, "--publishes", "N", "number of messages to put", PUBLISHES, positive)
    add_option(demo, "--out", "DIR", "directory for the trace and the report", "demo")
    demo.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from oncecast.cli.cluster.local import Ended, signals

    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(signals())
        scratch = stack.enter_context(tempfile.TemporaryDirectory("-oncecast-demo"))
        story = Story(Path(scratch), Path(arguments.out), arguments.publishes, stop)
        stack.callback(story.end)
        try:
            return story.tell()
        except Interrupted:
            return complain("interrupted; all processes have been stopped", ExitStatus.INTERRUPTED)
        except (Ended, OSError) as error:
            return complain(error)


class Interrupted(Exception):
    """The user interrupted the demo."""


class Story:
    def __init__(self, scratch: Path, out: Path, publishes: int, stop: threading.Event) -> None:
        from oncecast.cli.commands import Commands
        from oncecast.cli.sim.trace_view import Growing

        self._scratch, self._out, self._publishes, self._stop = scratch, out, publishes, stop
        self._nodes: list[Node] = []
        self._commands = Commands(scratch)
        self._trace = Growing(out / TRACE)
        self._marks: list[tuple[float, str, str]] = []  # time, kind and node
        self._began = monotonic()
        self._node_log: Trace | None = None

    def end(self) -> None:
        """Stop all processes that the demo has started."""
        from oncecast.cli.cluster.local import end

        self._commands.end()
        end(self._nodes)

    def tell(self) -> int:
        self._out.mkdir(parents=True, exist_ok=True)
        self._start_nodes()
        report = self._load()
        self._chart()
        counts = self._audit() or self._books(report)
        clean = not any(counts.values())
        summary = ", ".join(f"{count} {name}" for name, count in counts.items())
        self._say(paint(summary, GREEN if clean else RED), "✓" if clean else "✗")
        print(TRY if clean else f"\nThe trace is {self._trace.path}", flush=True)
        return ExitStatus.OK if clean else ExitStatus.FAILURE

    # -- the cluster --

    def _start_nodes(self) -> None:
        from oncecast.cli.cluster.local import NODES, come_together, free_ports, start

        ports = free_ports(NODES, 0)
        for number, port in enumerate(ports):
            self._nodes.append(start(self._scratch, port, ports[:number], NODES))
        names = ", ".join(node.address for node in self._nodes)
        self._say(f"Starting three nodes, each a process with its own data directory: {names}.")
        if not come_together(self._nodes, self._stop, ring=False):
            raise Interrupted
        self._say(f"The nodes replicate each other. The leader is {self._leader()}.", "✓")

    def _leader(self) -> str:
        """Return the leader, as reported by the running nodes, or "" if there is none."""
        from oncecast import blocking
        from oncecast.errors import OncecastError

        there = [node.address for node in self._nodes if node.process.poll() is None]
        try:
            with blocking.connect(",".join(there), connect_timeout=1.0, timeout=5.0) as client:
                view = client.group()
        except OncecastError:
            return ""
        return view.leader if view.quorum else ""

    def _kill(self) -> None:
        leader = self._leader()
        victim = next(node for node in self._nodes if node.address == leader)
        victim.process.kill()
        victim.process.wait()
        self._mark("killed", leader)
        self._say(f"Killed the leader {leader} with kill -9.", paint("✗", RED))
        began = monotonic()
        self._wait(lambda: self._leader() not in ("", leader), "no new leader")
        took = monotonic() - began
        self._say(
            f"{self._leader()} is the new leader after {took:.1f} s. The clients have reconnected.",
            "✓",
        )

    def _restart(self) -> None:
        from oncecast.cli.cluster.local import NODES, start

        at = next(at for at, node in enumerate(self._nodes) if node.process.poll() is not None)
        ports = [int(node.address.rpartition(":")[2]) for node in self._nodes]
        self._nodes[at] = start(self._scratch, ports[at], ports, NODES)
        self._mark("started", self._nodes[at].address)
        self._say(f"Restarted {self._nodes[at].address}. It reads its log and catches up.")

    def _mark(self, kind: str, node: str) -> None:
        self._marks.append((time(), kind, node))
        if self._node_log is not None:
            self._node_log.write(kind, node=node)

    # -- the clients --

    def _load(self) -> dict[str, Any]:
        """Run the clients and return their report."""
        from oncecast.cli.cluster.local import Ended
        from oncecast.spark.audit.trace import Trace

        self._trace.path.write_text("")
        server = ",".join(node.address for node in self._nodes)
        words = ["--publishes", str(self._publishes), "--rate", str(RATE), "--topics", "3"]
        words += ["--server", server, "--trace", str(self._trace.path), "--json"]
        load = self._commands.start("load", *words)
        self._say(f"Clients put {self._publishes:,} messages in 3 topics, {RATE:,} per second.")
        self._say("Six subscribers read them, request some again, disconnect and reconnect.")
        with (self._out / NODES_TRACE).open("w") as file:
            self._node_log = Trace(file, "demo", "demo")
            self._watch(load)
            self._node_log.end(complete=True)
        if load.status:
            raise Ended(f"`oncecast load` failed with status {load.status}: {load.complaint}")
        report: dict[str, Any] = json.loads(load.output)
        total = f"{report['puts']:,} stored, {report['deliveries']:,} delivered"
        self._say(
            f"The clients are done: {total}, {report['asked_again']:,} redelivered on request.", "✓"
        )
        return report

    def _watch(self, load: Command) -> None:
        """Watch the clients. Kill and restart a node once enough messages are stored."""
        from oncecast.cli.progress import Progress

        acts = [(KILL, self._kill), (START, self._restart)]
        with Progress("load", self._publishes) as progress:
            while load.status is None:
                self._pause()
                progress.step(by=self._trace.read())
                while acts and self._trace.counts["stored"] >= acts[0][0] * self._publishes:
                    acts.pop(0)[1]()
        self._trace.read()
        if not load.status:
            for _, act in acts:  # the clients finished first
                act()

    def _chart(self) -> None:
        from oncecast.cli.sim.trace_view import chart

        marks = [(when, SIGNS[kind]) for when, kind, _ in self._marks]
        print("", *(f"          {line}" for line in chart(self._trace.times, marks)), "", sep="\n")

    # -- the verdict --

    def _audit(self) -> dict[str, int]:
        """Audit and plot the trace with Spark. Return the number of faults by kind.

        Return {} if Spark is not installed or the audit failed.
        """
        if missing := needs_spark():
            self._say(f"Skipping the audit and the figure: {missing}")
            return {}
        lines = sum(self._trace.counts.values())
        paths = (str(self._trace.path), str(self._out / NODES_TRACE))
        self._say(f"Spark is auditing {lines:,} trace lines.")
        audit = self._commands.start("pipeline", "run", "audit", "--json", *paths)
        draw = self._commands.start("pipeline", "run", "metrics", *paths, "--out", str(self._out))
        self._wait(lambda: audit.status is not None, "the audit did not finish")
        if not audit.output:
            self._say(f"The audit failed: {audit.complaint}")
            return {}
        self._wait(lambda: draw.status is not None, "the figure was not finished")
        figure = str(self._out / "figures" / "metrics.png")
        self._say(
            f"Figure: {figure}" if not draw.status else f"No figure was drawn: {draw.complaint}"
        )
        found: dict[str, Any] = json.loads(audit.output)
        for fault in found["faults"]:
            self._say(json.dumps(fault), "✗")
        return {**dict.fromkeys(FAULTS, 0), **found["counts"]}

    def _books(self, report: dict[str, Any]) -> dict[str, int]:
        self._say("The clients' own audit found:")
        return {name: int(report[name.replace(" ", "_")]) for name in FAULTS}

    # -- waiting and output --

    def _wait(self, until: Callable[[], bool], otherwise: str) -> None:
        from oncecast.cli.cluster.local import Ended

        give_up = monotonic() + PATIENCE
        while not until():
            if monotonic() > give_up:
                raise Ended(f"{otherwise} within {PATIENCE:g} s")
            self._pause()
            if sys.stderr.isatty():
                print(f"\r{self._now}", end="", file=sys.stderr, flush=True)

    def _pause(self) -> None:
        if self._stop.wait(LOOK_EVERY):
            raise Interrupted

    def _say(self, text: str, sign: str = " ") -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # erase a progress bar
        print(f"{self._now} {sign} {text}", flush=True)

    @property
    def _now(self) -> str:
        return f"{monotonic() - self._began:5.1f} s"


def paint(text: str, color: str) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if sys.stdout.isatty() else text
