"""Run a batch job over many ring topics, kill it while it publishes, and run it again.

python -m bench.spark.torture.job ADDRESS ROWS TOPICS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from bench.peers.peer import say
from bench.ring.ours import Ring
from bench.spark.torture.pipeline import Driver, Findings, compared
from bench.spark.torture.processes import PATIENCE, wait
from oncecast import blocking
from oncecast.errors import NoSuchTopic
from oncecast.spark.session import spark

ROWS = 200  # number of rows per topic
KILLS = 3
MODULE = "bench.spark.torture.job"


class Interrupted(NamedTuple):
    """The number of rows published at each kill, and the findings at the end."""

    published: list[int]
    found: Findings


def main(address: str, rows: str, topics: str) -> int:
    session = spark("local[2]", light=True)
    text = f"'job.' || lpad(id % {topics}, 5, '0')"
    frame = session.sql(f"select 'seen ' || id as value, {text} as topic from range({rows})")
    sink = frame.write.format("oncecast").options(address=address, txnAppId="job", txnVersion=0)
    sink.mode("append").save()
    session.stop()
    return 0


def interrupted(root: Path, topics: int) -> Interrupted:
    """Kill the job when a quarter, half and three quarters of the topics have their rows."""
    names = [f"job.{number:05}" for number in range(topics)]
    ring, rows, published = Ring(), ROWS * topics, list[int]()
    root.mkdir()
    try:
        ring.start(root)
        words = [ring.address, str(rows), str(topics)]
        with blocking.connect(ring.address, timeout=PATIENCE) as client:
            for kill in range(1, KILLS + 1):
                driver = Driver(MODULE, words, root / f"job{kill}.log", os.environ)
                at = names[topics * kill // (KILLS + 1)]
                wait(f"rows in {at} (see {root})", lambda at=at: has_rows(client, at), 0.002)  # type: ignore[misc]
                driver.end()
                published.append(len(values(client, names)))
                say(f"job: killed {kill} drivers; published {published[-1]} of {rows} rows")
            driver = Driver(MODULE, words, root / "job.log", os.environ)
            wait(f"the end of the job (see {root})", lambda: driver.ended is not None)
            return Interrupted(published, compared(rows, values(client, names)))
    finally:
        ring.stop()


def has_rows(client: blocking.Client, topic: str) -> bool:
    try:
        return client.describe(topic).next > 0
    except NoSuchTopic:
        return False


def values(client: blocking.Client, topics: list[str]) -> list[bytes]:
    return [
        message.value
        for topic in topics
        if has_rows(client, topic)
        for each in client.scan(topic)
        for message in each.messages()
    ]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
