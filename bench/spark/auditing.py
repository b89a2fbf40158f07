"""Measure the time and memory of an audit by one executor with 2 GB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from bench.cost.node import Figure, most
from bench.peers.peer import Failed, say
from bench.spark.measures import QUIET
from bench.spark.planted import FAULTS, LINES, TOPICS, write_planted
from oncecast.spark.audit.job import audit_traces
from oncecast.spark.session import spark

SECONDS, MEMORY_MB = 120, 2048
HEAP_MB = 1200  # executor heap; the rest is for the JVM itself and two Python processes


def audit(lines: int, root: Path) -> Iterator[Figure]:
    trace = root / "trace.jsonl"
    with trace.open("w") as file:
        write_planted(file, int(lines / LINES / TOPICS))
    say(f"a trace of {lines:,} lines is written")
    settings = {**QUIET, "spark.sql.warehouse.dir": str(root / "spark")}
    settings |= {"spark.executor.memory": f"{HEAP_MB}m"}
    session = spark(f"local-cluster[1,2,{MEMORY_MB}]", app="audit", light=False, **settings)
    try:
        began = perf_counter()
        report = audit_traces(session, [str(trace)])
        took = perf_counter() - began
        busy = cpu_seconds(os.getpid())
        memory = executor_mb(session.sparkContext.applicationId)
    finally:
        session.stop()
    names = ("topic", "subscription", "offset")
    named = {(each.fault, *(each.about[name] for name in names)) for each in report.faults}
    if named != FAULTS or sum(report.counts.values()) != len(FAULTS):
        raise Failed(f"the audit found {report.counts}: {named}")
    yield most(f"audit of {report.lines:,} lines", took, "s", SECONDS)
    yield Figure("audit: CPU time of all processes, with their start", busy, "s")
    yield Figure("audit, lines per second", report.lines / took, "lines/s")
    yield most("audit: most memory of the executor's processes", memory, "MB", MEMORY_MB)


def executor_mb(application: str) -> float:
    """Return the sum of the peak memory of the executor and its Python processes."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    executor = None
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
            status = dict(
                line.split(":\t", 1) for line in (each / "status").read_text().splitlines()
            )
        except OSError:
            continue  # the process has just exited
        number = int(each.name)
        parents[number] = int(status["PPid"])
        peaks[number] = int(status.get("VmHWM", "0 kB").split()[0])
        if application.encode() in words and b"--executor-id" in words:
            executor = number
    if executor is None:
        raise Failed(f"no process is an executor of {application}")
    return sum(peaks[each] for each in peaks if descends(each, executor, parents)) / 1024


def cpu_seconds(ancestor: int) -> float:
    """Return the CPU time of a process and its descendants, including those that have ended."""
    ticks, parents = {}, {}
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has just exited
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            parents[int(each.name)] = int(fields[1])
            ticks[int(each.name)] = sum(map(int, fields[11:15]))
    every = sum(ticks[each] for each in ticks if descends(each, ancestor, parents))
    return every / os.sysconf("SC_CLK_TCK")


def descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents and process != ancestor:
        process = parents[process]
    return process == ancestor
