"""Run queue producers and consumers as processes, kill consumers, and audit the trace.

python -m bench.queues [--elements 100000] [--producers 8] [--consumers 8] [--kill-every 3]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from time import monotonic, sleep

from bench.peers.comparing import machine
from bench.peers.peer import Failed, free_port, mind_signals, say
from bench.queues.trace import Born, Killed, Settled, Taken, audit, blind_to, encode, read

KEEPERS = 3  # number of producers that are also acceptors
LOOK_EVERY = 0.1
REPORT_EVERY = 5.0
STUCK_AFTER = 120.0  # seconds without any progress
FAULTS_SHOWN = 10


@dataclass
class Result:
    elements: int
    seconds: float  # time from the first put to the last take
    rate: float
    kills: int
    along: int  # number of elements that killed consumers got but had not recorded
    faults: list[str]
    blind_to: list[str]  # planted faults that the audit missed


@dataclass
class Party:
    """All processes in a run, and their traces."""

    root: Path
    tickets: int
    producers: list[subprocess.Popen[str]] = field(default_factory=list)
    consumers: dict[Path, subprocess.Popen[str]] = field(default_factory=dict)
    keepers: str = ""
    traces: list[Path] = field(default_factory=list)

    def start(self, role: str, own: str) -> tuple[Path, subprocess.Popen[str]]:
        trace = self.root / f"{role}-{len(self.traces):04}.jsonl"
        self.traces.append(trace)
        trace.touch()
        command = [sys.executable, "-m", "bench.queues.member", role, own, self.keepers, str(trace)]
        pipe = subprocess.PIPE
        return trace, subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def found(self, producers: int) -> None:
        ports: set[int] = set()
        while len(ports) < producers:
            ports.add(free_port())
        addresses = sorted(f"127.0.0.1:{port}" for port in ports)
        self.keepers = ",".join(addresses[:KEEPERS])
        self.producers = [self.start("produce", each)[1] for each in addresses]
        for each in self.producers:
            self.hear(each)

    def add_consumer(self) -> None:
        trace, process = self.start("take", str(self.tickets))
        self.consumers[trace] = process

    def tell(self, producer: subprocess.Popen[str], *words: object) -> None:
        assert producer.stdin is not None
        producer.stdin.write(" ".join(map(str, words)) + "\n")
        producer.stdin.flush()

    def hear(self, producer: subprocess.Popen[str]) -> str:
        assert producer.stdout is not None
        line = producer.stdout.readline().strip()
        if not line:
            raise Failed("a producer ended unexpectedly; see its standard error")
        return line

    def ask_all(self, *words: object) -> list[str]:
        for each in self.producers:
            self.tell(each, *words)
        return [self.hear(each) for each in self.producers]

    def kill_one(self, rng: Random, kills_file: Path) -> bool:
        """Kill a consumer that has taken an element, and start a new one."""
        busy = [trace for trace in self.consumers if b"taken" in trace.read_bytes()]
        if not busy:
            return False
        trace = rng.choice(busy)
        process = self.consumers.pop(trace)
        process.kill()
        process.communicate()
        born = next(each for each in read([trace]) if isinstance(each, Born))
        with kills_file.open("ab") as lines:
            lines.write(encode(Killed(born.taker)) + b"\n")
        self.add_consumer()
        return True

    def end(self) -> None:
        for process in [*self.consumers.values(), *self.producers]:
            process.kill()
            process.communicate()


@contextmanager
def party(root: Path, producers: int, consumers: int, tickets: int) -> Iterator[Party]:
    made = Party(root, tickets)
    try:
        made.found(producers)
        for _ in range(consumers):
            made.add_consumer()
        yield made
    finally:
        made.end()


def play(party: Party, elements: int, kill_every: float, rng: Random) -> tuple[float, int]:
    """Run until all elements are taken. Return the seconds and the number of kills."""
    kills_file = party.root / "killed.jsonl"
    kills_file.touch()
    party.traces.append(kills_file)
    shares = [elements // len(party.producers)] * len(party.producers)
    shares[0] += elements - sum(shares)
    began = reported = moved = monotonic()
    next_kill, kills, before = began + kill_every, 0, -1
    for producer, share in zip(party.producers, shares, strict=True):
        party.tell(producer, "put", share)
    while any(left != "0" for left in party.ask_all("left")):
        now, size = monotonic(), sum(each.stat().st_size for each in party.traces)
        moved, before = (now, size) if size != before else (moved, before)
        if now > moved + STUCK_AFTER:
            raise Failed(f"no element was put or taken for {STUCK_AFTER:g} s")
        if now > next_kill:
            next_kill = now + rng.uniform(0.5, 1.5) * kill_every
            kills += party.kill_one(rng, kills_file)
        if now > reported + REPORT_EVERY:
            reported = now
            taken = count_taken(party)
            rate = taken / (now - began)
            say(f"{taken:,} of {elements:,} taken, {rate:,.0f}/s, {kills} consumers killed")
        sleep(LOOK_EVERY)
    return monotonic() - began, kills


def count_taken(party: Party) -> int:
    takes = (each for each in party.traces if each.name.startswith("take"))
    return sum(each.read_bytes().count(b'"taken"') for each in takes)


def settle(party: Party) -> None:
    """Wait until the keepers and the live consumers have recorded all takes, or time is over."""
    party.ask_all("settled")
    until = monotonic() + STUCK_AFTER
    while monotonic() < until:
        faults = audit(read(party.traces))
        if not any(fault.startswith("unreported") for fault in faults):
            return
        sleep(LOOK_EVERY)


def measure(
    root: Path,
    *,
    elements: int,
    producers: int,
    consumers: int,
    tickets: int,
    kill_every: float,
    seed: int,
) -> Result:
    with party(root, producers, consumers, tickets) as made:
        seconds, kills = play(made, elements, kill_every, Random(seed))
        settle(made)
        lines = read(made.traces)
    taken = {each.element for each in lines if isinstance(each, Taken)}
    given = {each.element for each in lines if isinstance(each, Settled)}
    faults = audit(lines)
    blind = [] if faults else blind_to(lines)
    along = len(given - taken)
    return Result(elements, seconds, elements / seconds, kills, along, faults, blind)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.queues", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--elements",
        type=int,
        default=100_000,
        help="number of elements to put (default and limit: 100,000)",
    )
    parser.add_argument("--producers", type=int, default=8)
    parser.add_argument("--consumers", type=int, default=8)
    parser.add_argument(
        "--tickets",
        type=int,
        default=4,
        help="number of elements that each consumer requests at once (default: 4)",
    )
    parser.add_argument("--kill-every", type=float, default=3.0, metavar="S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the traces in this directory"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results to this file as JSON"
    )
    arguments = parser.parse_args()
    options = vars(arguments)
    keep, file = options.pop("keep"), options.pop("json")
    mind_signals()
    try:
        with tempfile.TemporaryDirectory(prefix="oncecast-bench-") as temporary:
            root = keep or Path(temporary)
            root.mkdir(exist_ok=True)
            about = machine(root)
            found = measure(root, **options)
    except Failed as failure:
        say(str(failure))
        return 1
    except KeyboardInterrupt:
        say("interrupted: all processes have been stopped")
        return 130
    report(arguments, found)
    if file:
        file.write_text(json.dumps({"machine": about, "result": asdict(found)}, indent=2) + "\n")
    return 1 if found.faults or found.blind_to else 0


def report(arguments: argparse.Namespace, found: Result) -> None:
    print(
        f"{found.elements:,} elements, {arguments.producers} producers, {arguments.consumers} "
        f"consumers with {arguments.tickets} tickets each: {found.seconds:.1f} s, "
        f"{found.rate:,.0f} per second; {found.kills} consumers were killed, with "
        f"{found.along} elements"
    )
    for fault in found.faults[:FAULTS_SHOWN]:
        print(f"FAULT {fault}")
    if found.blind_to:
        print(f"the audit does not detect {', '.join(found.blind_to)}")
    elif not found.faults:
        print("audit: each element was taken once; all planted faults were detected")


if __name__ == "__main__":
    sys.exit(main())
