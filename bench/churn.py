"""Run a ring under churn: processes join, leave and are killed while clients put and get.

Nine processes own thirty topics. Automated clients connect to different processes; they put, get
and subscribe, and write traces. Meanwhile, some processes are killed with kill -9 and restarted,
new ones join, and one leaves. At the end the program audits the traces (REP-4 to REP-6).

    python bench/churn.py [--processes N] [--messages N] [--kills N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from oncecast import blocking
from oncecast.errors import OncecastError
from oncecast.wire.frames import RingView

CLIENTS = 3
TOPICS = 10  # number of topics per client
PATIENCE = 240.0
SUSPICION = 2.0
FAULTS = ("lost", "duplicated", "out_of_order")


class Process:
    """A ring process, which can be killed and restarted."""

    def __init__(self, directory: Path, number: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as reserved:
            self.address = f"127.0.0.1:{reserved.getsockname()[1]}"
        self._data, self._log = directory / f"p{number}", directory / f"p{number}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, join: str) -> None:
        words = ["serve", "--own-group", "--listen", self.address, "--data", str(self._data)]
        words += ["--heartbeat", "0.5", "--suspicion", str(SUSPICION), "--replace-after", "10"]
        words += ["--join", join] if join else []
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "oncecast", *words], stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Ring:
    def __init__(self, directory: Path, count: int) -> None:
        self._directory, self._made = directory, 0
        self.processes: list[Process] = []
        self.add()
        until("the first process", lambda: self.view() is not None)
        for _ in range(count - 1):
            self.add()

    def add(self) -> Process:
        process = Process(self._directory, self._made)
        self._made += 1
        process.start(self.processes[0].address if self.processes else "")
        self.processes.append(process)
        return process

    def view(self, process: Process | None = None) -> RingView | None:
        address = (process or self.processes[0]).address
        with (
            suppress(OncecastError),
            blocking.connect(address, connect_timeout=2.0, timeout=2.0) as client,
        ):
            return client.ring()
        return None

    def settled(self) -> bool:
        """Return whether each process's group owns an arc and has three replicas and a leader."""
        view = self.view()
        if view is None or len(view.processes) < len(self.processes):
            return False
        own = {each.group for each in view.processes}
        whole = [each for each in view.groups if each.low and len(each.nodes) >= 3 and each.leader]
        return own <= {each.group for each in whole}

    def bounce(self, process: Process) -> None:
        process.kill()
        process.start(self.processes[0].address if process is not self.processes[0] else "")

    def leave(self, process: Process) -> None:
        with blocking.connect(process.address) as client:
            client.leave_ring()
        assert process.process is not None
        process.process.wait(PATIENCE)
        self.processes.remove(process)

    def end(self) -> None:
        for process in self.processes:
            process.kill()


def until(what: str, reached: Callable[[], bool]) -> float:
    """Wait until `reached` returns True, and return how many seconds it took."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE:
        if reached():
            return time.monotonic() - began
        time.sleep(0.2)
    raise SystemExit(f"churn: still waiting for {what} after {PATIENCE:g} s")


def load(ring: Ring, trace: Path, number: int, messages: int, rate: int) -> Any:
    """Start an automated client that is connected to three processes of the ring."""
    servers = [ring.processes[(number * 3 + each) % len(ring.processes)] for each in range(3)]
    words = ["--server", ",".join(each.address for each in servers), "--publishes", str(messages)]
    words += ["--topics", str(TOPICS), "--subscribers", "1", "--rate", str(rate), "--json"]
    words += ["--seed", str(number), "--timeout", str(PATIENCE), "--trace", str(trace)]
    command = [sys.executable, "-m", "oncecast", "load", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trouble(ring: Ring, kills: int, dice: random.Random) -> dict[str, int]:
    done = {"killed": 0, "joined": 0, "left": 0}
    for number in range(kills):
        victim = dice.choice(ring.processes)
        say(f"  killed {victim.address}")
        ring.bounce(victim)
        done["killed"] += 1
        time.sleep(dice.uniform(SUSPICION, 3 * SUSPICION))
        if number % 3 == 1:
            say(f"  joined {ring.add().address}")
            done["joined"] += 1
        until("the ring after a kill", ring.settled)
    victim = dice.choice(ring.processes[1:])
    say(f"  stopping {victim.address}")
    ring.leave(victim)
    done["left"] += 1
    until("the ring after a process has left", ring.settled)
    return done


def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    dice = random.Random(arguments.seed)
    ring = Ring(directory, arguments.processes)
    loads: list[Any] = []
    try:
        founded = until("the ring", ring.settled)
        say(f"{arguments.processes} processes form a ring after {founded:.1f} s")
        each = arguments.messages // CLIENTS
        rate = max(1, int(each / (arguments.kills * 12.0 + 20.0)))
        loads += (
            load(ring, directory / f"t{number}.jsonl", number, each, rate)
            for number in range(CLIENTS)
        )
        done = trouble(ring, arguments.kills, dice)
        under_load = sum(process.poll() is None for process in loads)
        reports = [finished(process) for process in loads]
    finally:
        for process in loads:
            process.kill()
        ring.end()
    total = {key: sum(report[key] for report in reports) for key in ("puts", "deliveries", *FAULTS)}
    slowest = max(report["put_ms"]["max"] for report in reports)
    return {
        "processes": arguments.processes,
        "topics": CLIENTS * TOPICS,
        "clients_at_work_in_the_end": under_load,
        **done,
        **total,
        "slowest_put_ms": slowest,
        "good": not any(total[fault] for fault in FAULTS),
    }


def finished(process: Any) -> dict[str, Any]:
    out, errors = process.communicate(timeout=10 * PATIENCE)
    if not out:
        raise SystemExit(f"churn: a client failed: {errors[-2000:]}")
    report: dict[str, Any] = json.loads(out)
    return report


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=9)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", help="keep all files in this directory (default: a temporary directory)"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        made = arguments.directory or stack.enter_context(tempfile.TemporaryDirectory())
        Path(made).mkdir(parents=True, exist_ok=True)
        result = measure(arguments, Path(made))
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key.replace('_', ' '):<28}{value}")
    return 0 if result["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
