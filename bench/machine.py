"""Measure the state machine: microseconds per command, bytes per entry, and time per snapshot.

python bench/machine.py [--json] [--batches N]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

from oncecast.broker.machine import Machine
from oncecast.wire.commands import Ack, Attach, FromNew, OpenProducer, Put, Subscribe
from oncecast.wire.results import Attached, Opened

ROUNDS = 5


def ready(*, subscriptions: int = 1) -> tuple[Machine, int, int]:
    """Return a machine with a topic, and the epochs of its producer and its last reader."""
    machine = Machine()
    opened = machine.apply(0, OpenProducer("t", "p", "inc-1", 0))
    assert isinstance(opened, Opened)
    attached = None
    for number in range(subscriptions):
        machine.apply(2 * number + 1, Subscribe("t", f"s{number}", FromNew(), 0))
        attached = machine.apply(2 * number + 2, Attach("t", f"s{number}", "inc-1"))
    assert isinstance(attached, Attached)
    return machine, opened.epoch, attached.epoch


def puts(epoch: int, count: int) -> list[Put]:
    return [Put("t", "p", epoch, number, 1, 100, number, b"") for number in range(count)]


def per_command(run: Callable[[], None], count: int) -> float:
    gc.collect()
    start = perf_counter()
    run()
    return (perf_counter() - start) / count * 1e6


def put_and_ack(count: int, subscriptions: int) -> tuple[float, float, float, float]:
    machine, producer, _ = ready(subscriptions=subscriptions)
    commands, base = puts(producer, count), machine.registry.last_slot + 1
    epochs = [each.epoch for each in machine.registry.topics["t"].subscriptions.values()]

    def put() -> None:
        for slot, command in enumerate(commands, base):
            machine.apply(slot, command)

    def again() -> None:
        for slot, command in enumerate(commands, base + count):
            machine.apply(slot, command)

    def fetch() -> None:
        for offset in range(count):
            machine.fetch("t", offset, 1, 1 << 20)

    acks = [
        Ack("t", f"s{number}", epochs[number], offset)
        for offset in range(subscriptions, count + 1, subscriptions)
        for number in range(subscriptions)
    ]

    def ack() -> None:
        for slot, command in enumerate(acks, base + 2 * count):
            machine.apply(slot, command)

    return (
        per_command(put, count),
        per_command(again, count),
        per_command(fetch, count),
        per_command(ack, len(acks)),
    )


def index_bytes(count: int) -> float:
    machine, epoch, _ = ready()
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        machine.apply(number + 10, Put("t", "p", epoch, number, 1, 100, number, b""))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / count


def snapshot(topics: int, entries: int) -> tuple[float, float, float, int]:
    """Return the milliseconds to write, restore and checksum a snapshot, and its size in bytes."""
    machine, epoch, _ = ready()
    for number in range(entries):
        machine.apply(number + 10, Put("t", "p", epoch, number, 1, 100, number, b""))
    for number in range(topics):
        name = f"topic-{number}"
        machine.apply(entries + 10 + 2 * number, Subscribe(name, "s", FromNew(), 0))
        machine.apply(entries + 11 + 2 * number, OpenProducer(name, "p", "inc-1", 0))
    marks = [perf_counter()]
    chunks = list(machine.state())
    marks.append(perf_counter())
    restored = Machine.restore(chunks)
    marks.append(perf_counter())
    checksum = machine.checksum()
    marks.append(perf_counter())
    assert restored.checksum() == checksum
    write, read, check = ((b - a) * 1e3 for a, b in pairwise(marks))
    return write, read, check, sum(map(len, chunks))


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure(batches: int) -> dict[str, float]:
    one = [put_and_ack(batches // 10, 1) for _ in range(ROUNDS)]
    hundred = [put_and_ack(batches // 10, 100) for _ in range(ROUNDS)]
    write, read, check, size = snapshot(10_000, 0)
    big_write, big_read, big_check, big_size = snapshot(0, batches)
    return {
        "put_us": median([each[0] for each in one]),
        "repeated_put_us": median([each[1] for each in one]),
        "fetch_us": median([each[2] for each in one]),
        "ack_us": median([each[3] for each in one]),
        "ack_among_100_us": median([each[3] for each in hundred]),
        "index_bytes_a_batch": index_bytes(batches),
        "snapshot_10000_topics_ms": write,
        "restore_10000_topics_ms": read,
        "checksum_10000_topics_ms": check,
        "snapshot_10000_topics_bytes": size,
        f"snapshot_{batches}_batches_ms": big_write,
        f"restore_{batches}_batches_ms": big_read,
        f"checksum_{batches}_batches_ms": big_check,
        f"snapshot_{batches}_batches_bytes": big_size,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--batches", type=int, default=2_000_000, help="number of batches in the index"
    )
    options = parser.parse_args()
    print("measuring the state machine ...", file=sys.stderr)
    figures = measure(options.batches)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:34} {value:14,.2f}")


if __name__ == "__main__":
    main()
