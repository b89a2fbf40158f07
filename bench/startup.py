"""Compare the CPU time of short commands with an empty uvloop program.

Each command runs in its own process, with a node in another process. The figure is the user and
system CPU time of the process, from its start to its end. Each line has the median, its ratio to
uvloop and, in parentheses, the ratio of the two shortest times.

    python bench/startup.py [--rounds 21]
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import oncecast
from oncecast.cli.cluster.local import free_ports
from oncecast.client import blocking

BARE = """
import asyncio, uvloop
async def nothing(): pass
uvloop.run(nothing())
"""
COMMANDS = {
    "uvloop": ("-c", BARE),
    "--version": ("-m", "oncecast", "--version"),
    "put": ("-m", "oncecast", "put", "startup", "x"),
    "get": ("-m", "oncecast", "get", "startup"),
}


def cpu_seconds(words: tuple[str, ...]) -> float:
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return used.ru_utime + used.ru_stime


def measure(rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, words in COMMANDS.items():
            times[name].append(cpu_seconds(words))
    base = times["uvloop"]
    for name, found in times.items():
        middle, least = statistics.median(found), min(found)
        ratio = middle / statistics.median(base)
        print(f"{name:10} {middle * 1000:6.1f} ms, {ratio:.2f} ({least / min(base):.2f}) of uvloop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds: int = parser.parse_args().rounds
    compileall.compile_dir(Path(oncecast.__file__).parent, quiet=1)
    (port,) = free_ports(1, 0)
    os.environ["ONCECAST_SERVER"] = address = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as directory:
        words = ("-m", "oncecast", "serve", "--data", directory, "--listen", address)
        node = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
        try:
            with blocking.connect(address, connect_timeout=30.0) as client:
                client.subscribe("startup", "default").close()
            measure(rounds)
        finally:
            node.terminate()
            node.wait()


if __name__ == "__main__":
    main()
