"""Kill nodes and front ends under Kafka clients, and check that each message is there exactly once.

Three nodes serve Kafka clients, and so does a front end in a process of its own. Two idempotent
producers, a transactional producer and a copier use them, while nodes and the front end are killed
with SIGKILL and restarted. Then all topics are read and compared with what the clients put.

    topic     written by                                          read by
    direct    an idempotent producer, at the nodes                the copier
    front     an idempotent producer, at the front end
    tx        a transactional producer, which aborts some transactions
    copy      the copier, which consumes, transforms and produces
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka.processes import Cluster, Killable
from bench.kafka.workers import (
    ABORTED,
    Copier,
    Idempotent,
    Transactional,
    Worker,
    contents,
)

PARTITIONS = 3
STALLED = 300.0  # seconds without progress that end the run
PAUSE = 1.0  # seconds that a killed process stays down


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=100_000, help="messages of all producers")
    parser.add_argument("--kills", type=int, default=20, help="processes to kill")
    parser.add_argument("--seconds", type=float, default=120.0, help="time over which to put")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the report to this file")


def run(options: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="oncecast-kafka-") as directory,
        Cluster(Path(directory), 3) as cluster,
    ):
        report = tortured(cluster, options)
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 0 if report["ok"] else 1


def tortured(cluster: Cluster, options: argparse.Namespace) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": cluster.kafka, "log_level": 0})
    topics = {"direct": PARTITIONS, "copy": PARTITIONS, "front": 1, "tx": 1}
    for made in admin.create_topics(
        [NewTopic(name, num_partitions=count) for name, count in topics.items()]
    ).values():
        made.result(60)
    share = options.messages // 5
    rate = 2 * share / options.seconds
    workers: dict[str, Any] = {
        "direct": Idempotent(cluster.kafka, "direct", PARTITIONS, 2 * share, rate),
        "front": Idempotent(cluster.fronts[0].kafka, "front", 1, 2 * share, rate),
        "tx": Transactional(cluster.kafka, "tx", share),
        "copy": Copier(cluster.kafka, "direct", "copy", 2 * share),
    }
    began = time.monotonic()
    for each in workers.values():
        each.start()
    strike(cluster, list(workers.values()), options)
    for each in workers.values():
        each.join(STALLED)
    return reported(cluster, workers, time.monotonic() - began)


def strike(cluster: Cluster, workers: list[Worker], options: argparse.Namespace) -> None:
    """Kill a process each time that the producers have made the next part of their progress."""
    rng = random.Random(options.seed)
    wanted = sum(each.count for each in workers[:3])  # type: ignore[attr-defined]
    for number in range(options.kills):
        victim = rng.choice(cluster.nodes) if number % 3 else rng.choice(cluster.fronts)
        begin = time.monotonic()
        while sum(each.done for each in workers[:3]) < wanted * (number + 1) / (options.kills + 2):
            if all(not each.is_alive() for each in workers[:3]):
                break
            if time.monotonic() - begin > STALLED:
                raise RuntimeError("the producers make no progress")
            time.sleep(0.02)
        kill(victim, number + 1)


def kill(victim: Killable, number: int) -> None:
    print(f"kill {number}: {victim.kafka}", file=sys.stderr, flush=True)
    victim.kill()
    time.sleep(PAUSE)
    victim.start()


def reported(cluster: Cluster, workers: dict[str, Any], seconds: float) -> dict[str, Any]:
    topics = {}
    for name, worker in workers.items():
        partitions = PARTITIONS if name in ("direct", "copy") else 1
        found = contents(cluster.kafka, name, "read_committed")
        uncommitted = contents(cluster.kafka, name, "read_uncommitted")
        topics[name] = {
            **compared(found, worker.count, partitions),
            "aborted_seen": sum(values.count(ABORTED) for values in uncommitted.values()),
            "client_errors": worker.errors,
            "client_restarts": worker.restarts,
            "aborts": worker.aborts,
            "failure": worker.failure or ("still running" if worker.is_alive() else ""),
        }
    bad = ("lost", "doubled", "out_of_order", "unknown", "aborted_seen")
    kills = {each.kafka: each.deaths for each in (*cluster.nodes, *cluster.fronts)}
    return {
        "ok": not any(each[what] for each in topics.values() for what in bad)
        and not any(each["failure"] for each in topics.values()),
        "seconds": round(seconds, 1),
        "messages": sum(each["messages"] for each in topics.values()),
        "kills": kills,
        "topics": topics,
    }


def compared(found: dict[int, list[bytes]], count: int, partitions: int) -> dict[str, int]:
    """Compare the messages with the numbers that were put: number n in partition n % partitions."""
    lost = doubled = out_of_order = unknown = 0
    for index in range(partitions):
        wanted = range(index, count, partitions)
        values = [int(each) if each.isdigit() else -1 for each in found.get(index, [])]
        unknown += sum(each not in wanted for each in values)
        known = [each for each in values if each in wanted]
        doubled += len(known) - len(set(known))
        lost += len(wanted) - len(set(known))
        out_of_order += sum(later < earlier for earlier, later in pairwise(known))
    return {
        "messages": sum(map(len, found.values())),
        "lost": lost,
        "doubled": doubled,
        "out_of_order": out_of_order,
        "unknown": unknown,
    }
