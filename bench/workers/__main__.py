"""Compare workers that share a queue with Redis, NATS and RabbitMQ; see docs/benchmarks.md.

python -m bench.workers [--only jobs] [--peers Redis] [--rounds 5] [--share 0.02]
"""

from __future__ import annotations

import sys

from bench.peers.comparing import compare
from bench.peers.measures import Measure
from bench.workers.crew import WORKERS, Workshop
from bench.workers.systems import Nats, Oncecast, RabbitMQ, Redis

BATCH = 100
SYSTEMS = (Oncecast, Redis, Nats, RabbitMQ)


async def jobs(system: Workshop, values: list[bytes]) -> float:
    return len(values) / await system.jobs(values, 1)


async def batches(system: Workshop, values: list[bytes]) -> float:
    return len(values) / await system.jobs(values, BATCH)


MEASURES = (
    Measure(
        "jobs",
        f"{WORKERS} workers, one job at a time, 100 B",
        "jobs/s",
        jobs,
        0.4,
        targets={"Redis": 5, "RabbitMQ": 10, "NATS": 10},
    ),
    Measure(
        "batches",
        f"{WORKERS} workers, batches of {BATCH}, 100 B",
        "jobs/s",
        batches,
        1.0,
        targets={"Redis": 10},
    ),
)

if __name__ == "__main__":
    sys.exit(compare("bench.workers", __doc__ or "", SYSTEMS, MEASURES))
