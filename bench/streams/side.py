"""Run one process of a measurement: the reader or the writer of a stream.

python -m bench.streams.side SYSTEM read|write PLACE COUNT SIZE PAUSE

A reader prints `ready` and then the latency of each sample. Without a pause between samples, it
prints the time of the last one. A writer prints its start time. All processes share one clock.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
from time import perf_counter

STAMP = struct.Struct("<d")  # each sample starts with the time when it was written
WARM_UP = 20  # number of warm-up samples if there is a pause


class Counter:
    """The reader's record of all samples."""

    def __init__(self, count: int, size: int, paced: bool) -> None:
        self.left, self.size, self.paced = count, size, paced
        self.times: list[float] = []

    def came(self, value: bytes) -> bool:
        """Record a sample. After the last one, print the results and return True."""
        self.left -= 1
        if self.paced:
            self.times.append(perf_counter() - STAMP.unpack_from(value)[0])
        if not self.left:
            say(json.dumps(self.times[WARM_UP:] if self.paced else perf_counter()))
        return not self.left


def stamped(size: int) -> bytes:
    return STAMP.pack(perf_counter()).ljust(size, b"\0")


def say(text: str) -> None:
    print(text, flush=True)


def main(system: str, role: str, address: str, *numbers: str) -> None:
    count, size, pause = int(numbers[0]), int(numbers[1]), float(numbers[2])
    module = importlib.import_module(f"bench.streams.{system}")
    if role == "read":
        module.read(address, Counter(count, size, paced=pause > 0))
    else:
        module.write(address, count, size, pause)


if __name__ == "__main__":
    main(*sys.argv[1:])
