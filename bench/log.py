"""Compare the log with plain file operations, taking turns in one run.

Appending writes and syncs groups of records. It is compared with writev and fdatasync of the same
bytes to a preallocated file. Opening reads a log with and without a snapshot in its middle. It is
compared with reading and checksumming the bytes after that snapshot. Numbers are medians, with
min and max.

    python bench/log.py [--json] [--directory DIR] [--mebibytes 1024] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from google_crc32c import extend

from oncecast.storage.disk import OsDisk
from oncecast.storage.log import Log
from oncecast.storage.segment import Segment

MIB = 1024 * 1024
RECORD = 100  # size of a small record in bytes

# (name, records per group, bytes per record, groups per round)
GROUPS = [
    ("a batch of 1,000 x 100 B", 1, 1000 * RECORD, 150),
    ("10 batches of 1,000 x 100 B", 10, 1000 * RECORD, 20),
    ("one record of 100 B", 1, RECORD, 150),
    ("100 records of 100 B", 100, RECORD, 150),
]
# (name, bytes per record, records per write, fraction of the log's size)
LOGS = [
    ("100 kB records", 1000 * RECORD, 1, 1.0),
    ("100 B records, 1,000 per group", RECORD, 1000, 0.25),
    ("100 B records, one by one", RECORD, 1, 0.0625),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--directory", type=Path, help="directory for temporary files, on the disk to measure"
    )
    parser.add_argument(
        "--mebibytes", type=int, default=1024, help="size of the log in MiB (default: 1024)"
    )
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="oncecast-bench-", dir=arguments.directory))
    try:
        results = {
            "append": [bench_append(root, *each, arguments.rounds) for each in GROUPS],
            "open": [
                result
                for what, size, group, share in LOGS
                for result in bench_open(
                    root,
                    what,
                    size,
                    group,
                    int(arguments.mebibytes * MIB * share),
                    arguments.rounds,
                )
            ],
        }
    finally:
        shutil.rmtree(root)
    if arguments.json:
        print(json.dumps(results))
    else:
        show(results)


def take_turns(rounds: int, ours: Callable[[], float], bare: Callable[[], float]) -> dict[str, Any]:
    """Return the median seconds of both, and the ratio of each pair but the first (a warm-up)."""
    times = [(ours(), bare()) for _ in range(rounds + 1)][1:]
    return {
        "ours": median(each for each, _ in times),
        "bare": median(each for _, each in times),
        "ratios": sorted(mine / theirs for mine, theirs in times),
    }


def seconds(action: Callable[[], object]) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


# Appending


def bench_append(
    root: Path, what: str, count: int, size: int, groups: int, rounds: int
) -> dict[str, Any]:
    progress(f"append, {what}")
    records = [os.urandom(size) for _ in range(count)]
    path = root / "log"
    disk = OsDisk(path)
    log = Log.open(disk)
    fd = os.open(root / "bare", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, (rounds + 1) * groups * count * size)
    os.fsync(fd)
    written = 0

    def ours() -> None:
        for _ in range(groups):
            for record in records:
                log.append(record)
            log.sync()

    def bare() -> None:
        nonlocal written
        for _ in range(groups):
            written += os.pwritev(fd, records, written)
            os.fdatasync(fd)

    times = take_turns(rounds, lambda: seconds(ours), lambda: seconds(bare))
    log.close()
    disk.close()
    os.close(fd)
    (root / "bare").unlink()
    shutil.rmtree(path)
    return {
        "what": what,
        "log_us_a_group": times["ours"] / groups * 1e6,
        "bare_us_a_group": times["bare"] / groups * 1e6,
        "throughput_ratio": 1 / median(times["ratios"]),
        "spread": [1 / times["ratios"][-1], 1 / times["ratios"][0]],
    }


# Opening


def bench_open(
    root: Path, what: str, size: int, group: int, total: int, rounds: int
) -> list[dict[str, Any]]:
    progress(f"open, {what}: writing {total // MIB} MiB")
    path = root / "log"
    disk = OsDisk(path)
    last = fill(disk, os.urandom(size), group, total // size)
    results = []
    for snapshot, scan_from in (("none", 0), ("in the middle", last // 2)):
        progress(f"open, {what}, snapshot {snapshot}")
        parts = behind(disk, scan_from)
        times = take_turns(
            rounds,
            lambda start=scan_from: open_log(disk, start),  # type: ignore[misc]
            lambda parts=parts: seconds(lambda: read_and_check(disk, parts)),  # type: ignore[misc]
        )
        results.append(
            {
                "what": what,
                "snapshot": snapshot,
                "mebibytes": sum(stop - start for _, start, stop in parts) / MIB,
                "open_s": times["ours"],
                "bare_s": times["bare"],
                "ratio": median(times["ratios"]),
                "spread": [times["ratios"][0], times["ratios"][-1]],
            }
        )
    disk.close()
    shutil.rmtree(path)
    return results


def fill(disk: OsDisk, record: bytes, group: int, count: int) -> int:
    log = Log.open(disk)
    for number in range(1, count + 1):
        log.append(record)
        if number % group == 0:
            log.write()
    log.close()
    return log.last


def open_log(disk: OsDisk, scan_from: int) -> float:
    start = perf_counter()
    log = Log.open(disk, scan_from=scan_from)
    taken = perf_counter() - start
    assert not log.recovery.damage
    log.close()
    return taken


def behind(disk: OsDisk, scan_from: int) -> list[tuple[str, int, int]]:
    """Return the files and byte ranges of the log, starting at record `scan_from`."""
    parts = []
    names = [name for name in disk.names() if name.endswith(".log")]
    for name in reversed(names):
        segment = Segment(disk, int(name[:-4]))
        segment.look()
        if segment.blank:
            continue
        start = segment.load_index().find(scan_from)[1] if segment.first < scan_from else 0
        end = max(found.end for found in segment.walk(start) if hasattr(found, "body"))
        segment.close()
        parts.append((name, start, end))
        if segment.first <= scan_from:
            break
    return parts


def read_and_check(disk: OsDisk, parts: list[tuple[str, int, int]]) -> int:
    crc = 0
    for name, at, end in parts:
        file = disk.open(name)
        while at < end:
            chunk = file.read(at, min(MIB, end - at))
            crc = extend(crc, chunk)
            at += len(chunk)
        file.close()
    return crc


# Reporting


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(results: dict[str, Any]) -> None:
    print(f"{'append and sync':<34}{'log us':>10}{'bare us':>10}{'throughput':>12}  spread")
    for each in results["append"]:
        low, high = each["spread"]
        print(
            f"{each['what']:<34}{each['log_us_a_group']:>10.0f}{each['bare_us_a_group']:>10.0f}"
            f"{each['throughput_ratio']:>12.2f}  {low:.2f} to {high:.2f}"
        )
    print(
        f"\n{'open':<31}{'snapshot':<15}{'MiB':>7}{'log ms':>9}{'bare ms':>9}{'ratio':>7}  spread"
    )
    for each in results["open"]:
        low, high = each["spread"]
        print(
            f"{each['what']:<31}{each['snapshot']:<15}{each['mebibytes']:>7.0f}"
            f"{each['open_s'] * 1e3:>9.0f}{each['bare_s'] * 1e3:>9.0f}{each['ratio']:>7.2f}"
            f"  {low:.2f} to {high:.2f}"
        )


if __name__ == "__main__":
    main()
