"""Measure the cost per message of packing, checking and unpacking a record batch, and of Arrow.

Each round runs every operation in turn. Numbers are medians over the rounds, with min and max.
"By rows" is the cost without columns: a reader unpacks messages and builds an array of values.

    python bench/batch.py [--json] [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from oncecast.wire import batch
from oncecast.wire.batch_arrow import from_arrow, to_arrow

PLACE: dict[str, Any] = {"topic": "bench", "offset": 10**6, "producer": "p", "sequence": 10**6}
AT_LEAST = 0.002  # minimum seconds per sample, which make the cost of reading the clock negligible

Operation = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    shapes = {
        "1,000 x 100 B": operations(1_000, 100),
        "1,000 x 80 to 120 B": operations(1_000, 100, spread=20),
        "1,000 x 1 KiB": operations(1_000, 1024),
        "100,000 x 100 B": operations(100_000, 100),
        "1,000 x 100 B, key, header, time": operations(1_000, 100, full=True),
        "1 x 100 B": operations(1, 100),
    }
    results = []
    for shape, (count, todo) in shapes.items():
        progress(shape)
        results += measure(shape, count, todo, arguments.rounds)
    if arguments.json:
        print(json.dumps(results))
    else:
        show(results)


def operations(
    count: int, size: int, *, spread: int = 0, full: bool = False
) -> tuple[int, dict[str, Operation]]:
    dice = Random(1)
    values = [dice.randbytes(size + dice.randint(-spread, spread)) for _ in range(count)]
    keys = [b"key-%d" % (n % 100) for n in range(count)] if full else [None] * count
    headers = [{"trace": b"%d" % n} if full else None for n in range(count)]
    times = [n if full else 0 for n in range(count)]

    def encode() -> bytes:
        if full:
            return batch.encode(values, keys=keys, headers=headers, timestamps=times)
        return batch.encode(values, timestamps=0)

    def build() -> bytes:
        builder = batch.Builder()
        for row in zip(values, keys, headers, times, strict=True):
            builder.add(*row)
        return builder.build()

    data = encode()
    rows = to_arrow(data, **PLACE)
    return count, {
        "encode": encode,
        "add + build": build,
        "peek": lambda: batch.peek(data),
        "check": lambda: batch.check(data),
        "values": lambda: batch.values(data),
        "messages": lambda: batch.messages(data, **PLACE),
        "to_arrow": lambda: to_arrow(data, **PLACE),
        "by rows": lambda: pa.array([m.value for m in batch.messages(data, **PLACE)]),
        "from_arrow": lambda: from_arrow(rows, timestamp=0),
    }


def measure(
    shape: str, count: int, todo: dict[str, Operation], rounds: int
) -> list[dict[str, Any]]:
    repeats = {name: int(AT_LEAST / seconds(each, 1)) + 1 for name, each in todo.items()}
    samples: dict[str, list[float]] = {name: [] for name in todo}
    for _ in range(rounds):
        for name, each in todo.items():
            samples[name].append(seconds(each, repeats[name]))
    return [
        {
            "batch": shape,
            "operation": name,
            "us_a_batch": median(taken) * 1e6,
            "ns_a_message": median(taken) / count * 1e9,
            "spread_ns": [min(taken) / count * 1e9, max(taken) / count * 1e9],
        }
        for name, taken in samples.items()
    ]


def seconds(operation: Operation, repeat: int) -> float:
    began = perf_counter()
    for _ in range(repeat):
        operation()
    return (perf_counter() - began) / repeat


def show(results: list[dict[str, Any]]) -> None:
    print(f"{'batch':34} {'operation':18} {'us per batch':>12} {'ns per message':>13}   min to max")
    for row in results:
        low, high = row["spread_ns"]
        print(
            f"{row['batch']:34} {row['operation']:18} {row['us_a_batch']:12,.1f} "
            f"{row['ns_a_message']:13,.1f}   {low:,.1f} to {high:,.1f}"
        )


def progress(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
