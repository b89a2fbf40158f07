"""Kill nodes and workers every two seconds while jobs are done, and audit the result with Spark.

python -m bench.jobs [--jobs N] [--workers N] [--every SECONDS] [--seconds SECONDS] [--json]

Three nodes form a group. Twenty workers, each in a process of its own, share a subscription. Each
job stores its effect in a database, in a row that is guarded by the job's offset and token. Some
jobs fail at first, and some become dead letters. At the end, the program audits the traces of all
processes: each job has its effect exactly once, or is a dead letter exactly once (WRK-1 to WRK-3).
Then it plants a fault of each kind into a copy of the traces, and checks that the audit names it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.jobs.clients import (
    DATABASE,
    PRODUCER,
    RUN,
    SUBSCRIPTION,
    TOPIC,
    WHERE,
    sequence_of_value,
)
from bench.jobs.cluster import PATIENCE, Cluster, Strikes, until
from bench.jobs.effects import Effects
from bench.jobs.planted import Found, lines_of, plant_faults
from bench.peers.peer import Failed, mind_signals, say
from oncecast import Shared, blocking
from oncecast.spark.audit.trace import Trace

SHARED = Shared(lease=10, deliveries_max=20, backoff_min=0.1, backoff_max=1, in_flight_max=100_000)
LETTERS_MAX = 10_000
LOOK_EVERY = 0.1
SAY_EVERY = 5.0
WITHOUT_PROGRESS = 120.0  # maximum seconds without a new effect
AUDIT_SECONDS = 1800.0

Audit = Callable[[list[Path]], dict[str, Any]]


def audited(traces: list[Path]) -> dict[str, Any]:
    """Audit traces with Spark, and return the report."""
    words = [sys.executable, "-m", "oncecast", "pipeline", "run", "audit", "--json"]
    done = subprocess.run(
        [*words, *map(str, traces)],
        capture_output=True,
        check=False,
        timeout=AUDIT_SECONDS,
    )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Failed(f"the audit failed: {done.stderr.decode(errors='replace')[-2000:]}") from None
    return report


class Jobs:
    """One run: `do` starts the processes and kills them, and `report` audits the traces."""

    def __init__(self, options: argparse.Namespace, audit: Audit) -> None:
        self._options, self._audit = options, audit
        self.cluster = Cluster(options)
        self._effects = Effects.create(options.directory / DATABASE)
        self._path = options.directory / "coordinator.jsonl"
        self._file = self._path.open("w", buffering=1)
        self._trace = Trace(self._file, RUN, "coordinator")
        self.letters = self.effects = 0

    # -- the run --

    def do(self) -> dict[str, Any]:
        options, cluster = self._options, self.cluster
        say(f"starting {len(cluster.nodes)} nodes and {options.workers} workers")
        cluster.start()
        with blocking.connect(cluster.server, timeout=PATIENCE) as client:
            made = client.create_subscription(TOPIC, SUBSCRIPTION, shared=SHARED)
            most = SHARED.deliveries_max
            self._write("share", offset=made.offset, deliveries_max=most, effects=True)
            for worker in cluster.workers:
                worker.start("worker")
            cluster.producer.start("producer")
            began = time.monotonic()
            strikes = Strikes(cluster, self._note_kill)
            self._strike(client, strikes)
            took = time.monotonic() - began
            self._finish(client, strikes)
        return {"seconds": round(took, 1), "node_kills": strikes.nodes, "kills": strikes.workers}

    def _strike(self, client: blocking.Client, strikes: Strikes) -> None:
        """Kill processes until all jobs are done or dead, and at least a node and a worker."""
        done, look, spoken = -1, time.monotonic(), time.monotonic()
        while done < self._options.jobs or not (strikes.nodes and strikes.workers):
            strikes.turn()
            self._check_clients()
            now = time.monotonic()
            if now > spoken + SAY_EVERY:
                spoken = now
                kills = f"{strikes.nodes} nodes and {strikes.workers} workers killed"
                say(f"{done:,} of {self._options.jobs:,} jobs are settled; {kills}")
            settled = self._effects.count + self._dead_letters(client)
            if settled > done:
                done, look = settled, now
            if now > look + WITHOUT_PROGRESS:
                raise Failed(f"no job was done for {WITHOUT_PROGRESS:g} s, after {done:,} jobs")
            time.sleep(LOOK_EVERY)

    def _check_clients(self) -> None:
        for worker in self.cluster.workers:
            if not worker.running:
                raise Failed(f"{worker.name} ended unexpectedly; see its log")

    def _dead_letters(self, client: blocking.Client) -> int:
        # Asked rarely, because this call waits while the group has no leader.
        if self._effects.count + self.letters < self._options.jobs - self._bad:
            return self.letters
        self.letters = int(client.dead_letters(TOPIC, SUBSCRIPTION).count())
        return self.letters

    @property
    def _bad(self) -> int:
        """Return how many jobs may become dead letters."""
        return int(self._options.jobs) // 100 + 100

    def _note_kill(self, trace: Path) -> None:
        lines = lines_of(trace) if trace.exists() else []
        if lines:
            header = lines[0]
            facts = {name: header[name] for name in ("writer", "incarnation")}
            self._trace.write("killed", **facts)
        else:
            trace.unlink(missing_ok=True)  # the process was killed before it wrote anything

    def _finish(self, client: blocking.Client, strikes: Strikes) -> None:
        """Drain all workers, and write what the database and the node say."""
        say("all jobs have their effect; waiting until all are settled")
        strikes.mend()
        until("all nodes", self.cluster.whole)
        until("the last acknowledgements", lambda: self._is_settled(client))
        until("all workers", lambda: all(each.ready for each in self.cluster.workers))
        say("draining the workers")
        statuses = {each.name: each.end() for each in self.cluster.workers}
        statuses[PRODUCER] = self.cluster.producer.end()
        bad = {name: status for name, status in statuses.items() if status}
        if bad:
            raise Failed(f"clients ended with these statuses: {bad}; see their logs")
        for offset, token in self._effects.ledger():
            self.effects += 1
            self._write("effect", offset=offset, token=token)
        for letter in client.dead_letters(TOPIC, SUBSCRIPTION).first(LETTERS_MAX):
            sequence = sequence_of_value(letter.value)
            self._write("letter", offset=letter.origin, producer=PRODUCER, sequence=sequence)
        self._write("settled", offset=client.describe(TOPIC).subscriptions[0].cursor)
        self._trace.end(complete=True)

    def _is_settled(self, client: blocking.Client) -> bool:
        (view,) = client.describe(TOPIC).subscriptions
        shared = view.shared
        return shared is not None and not (view.lag or shared.leased or shared.dead)

    def _write(self, kind: str, **fields: Any) -> None:
        self._trace.write(kind, **WHERE, **fields)

    # -- the audit --

    @property
    def traces(self) -> list[Path]:
        return sorted(self._options.directory.glob("*.jsonl"))

    def report(self) -> dict[str, Any]:
        say(f"auditing {len(self.traces)} traces")
        counts = self._count()
        found = self._audit(self.traces)
        say("planting a fault of each kind, and auditing again")
        planted, expected = plant_faults(self.traces, self._options.directory / "planted")
        named = faults_of(self._audit(planted))
        return {
            **counts,
            "lines": found["lines"],
            "faults": found["faults"],
            "planted": sorted(expected),
            "not_named": sorted(expected - named),
            "named_wrongly": sorted(named - expected),
        }

    def _count(self) -> dict[str, int]:
        """Return the number of deliveries, redeliveries and refused acknowledgements."""
        leases = again = sent = stored = 0
        for trace in self.traces:
            for line in lines_of(trace):
                leases += line["kind"] == "lease"
                again += line["kind"] == "lease" and line["deliveries"] > 1
                sent += line["kind"] == "accept"
                stored += line["kind"] == "accepted"
        return {
            "effects": self.effects,
            "dead_letters": self.letters,
            "deliveries": leases,
            "redeliveries": again,
            "unconfirmed_acks": sent - stored,
        }

    def close(self) -> None:
        self.cluster.kill()
        self._effects.close()
        self._file.close()


def faults_of(report: dict[str, Any]) -> set[Found]:
    return {(each["fault"], each.get("offset", -1)) for each in report["faults"]}


def run(options: argparse.Namespace, audit: Audit = audited) -> dict[str, Any]:
    jobs = Jobs(options, audit)
    try:
        facts = jobs.do()
    finally:
        jobs.close()
    return {"jobs": options.jobs, "workers": options.workers, **facts, **jobs.report()}


def show(report: dict[str, Any]) -> None:
    print(f"{report['jobs']:,} jobs, {report['workers']} workers, {report['seconds']:.0f} s")
    print(f"  kill -9            {report['node_kills']} nodes, {report['kills']} workers")
    for name in ("effects", "dead_letters", "deliveries", "redeliveries", "unconfirmed_acks"):
        print(f"  {name.replace('_', ' '):<18} {report[name]:,}")
    print(f"  trace lines        {report['lines']:,}")
    print(f"  faults             {len(report['faults'])}")
    for fault in report["faults"]:
        print(f"    {fault}")
    planted = len(report["planted"])
    print(f"  planted faults     {planted - len(report['not_named'])} of {planted} named")
    for name in ("not_named", "named_wrongly"):
        for fault, offset in report[name]:
            print(f"    {name.replace('_', ' ')}: {fault}, offset {offset}")


def is_good(report: dict[str, Any]) -> bool:
    whole = report["effects"] + report["dead_letters"] == report["jobs"]
    return whole and not any(report[name] for name in ("faults", "not_named", "named_wrongly"))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.jobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--jobs", type=int, default=200_000, help="number of jobs (default: 200,000)")
    add("--workers", type=int, default=20, help="number of worker processes (default: 20)")
    add("--every", type=float, default=2.0, help="seconds between two kills (default: 2)")
    about = "minimum seconds over which the jobs are put (default: 120)"
    add("--seconds", type=float, default=120.0, help=about)
    for kind in ("node", "worker"):
        about = f"maximum number of {kind}s to kill (default: no maximum)"
        add(f"--{kind}-kills", type=int, default=1_000_000, help=about)
    add("--seed", type=int, default=1, help="seed for choosing victims (default: 1)")
    add("--directory", type=Path, help="keep all files here (default: a temporary directory)")
    add("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    if options.jobs < 1 or options.workers < 2:
        parser.error("use at least 1 job and 2 workers")
    if options.node_kills < 1 or options.worker_kills < 1:
        parser.error("kill at least one node and one worker")
    mind_signals()
    with ExitStack() as stack:
        if options.directory is None:
            options.directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options.directory.mkdir(parents=True, exist_ok=True)
        if any(options.directory.iterdir()):
            parser.error(f"{options.directory} is not empty; use a new directory")
        try:
            report = run(options)
        except Failed as error:
            say(f"jobs: {error}")
            return 2
        (options.directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.json:
        print(json.dumps(report))
    else:
        show(report)
    return 0 if is_good(report) else 1


if __name__ == "__main__":
    sys.exit(main())
