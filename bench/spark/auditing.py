"""Measure the time and memory of an audit by one executor with 2 GB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from bench.cost.node import Figure, most
from bench.peers.peer import Failed, say
from bench.spark.measures import QUIET
from bench.spark.planted import FAULTS, planted
from oncecast.spark.jobs import audit_traces
from oncecast.spark.session import spark

MEMORY_MB = 2048


def audit(lines: int, root: Path) -> Iterator[Figure]:
    settings = {**QUIET, "spark.sql.warehouse.dir": str(root / "spark")}
    settings |= {"spark.executor.memory": f"{MEMORY_MB}m"}
    session = spark(f"local-cluster[1,2,{MEMORY_MB}]", app="audit", light=False, **settings)
    try:
        trace = str(root / "trace")
        planted(session, lines * 2 // 3).write.json(trace)  # one stored message for two deliveries
        say(f"a trace of {lines:,} lines is written")
        began = perf_counter()
        counts, faults = audit_traces(session, [trace])
        took = perf_counter() - began
        memory = executor_mb(session.sparkContext.applicationId)
    finally:
        session.stop()
    named = {(each.fault, each.topic, each.subscription, each.offset) for each in faults}
    if named != FAULTS or sum(counts.values()) != len(FAULTS):
        raise Failed(f"the audit found {counts}: {named}")
    yield Figure(f"audit of {lines:,} lines", took, "s")
    yield Figure("audit, lines per second", lines / took, "lines/s")
    yield most("audit: most memory of the executor's process", memory, "MB", MEMORY_MB)


def executor_mb(application: str) -> float:
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
            status = (each / "status").read_text()
        except OSError:
            continue  # the process has just ended
        if application.encode() in words and b"--executor-id" in words:
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
            return int(peak.split()[1]) / 1024
    raise Failed(f"no process is an executor of {application}")
