"""Send mutated and extreme frames to nodes, and check after each block that the nodes work.

Every frame has one of these outcomes:

answered   the node sent a reply
refused    the node sent a refusal
ignored    the node sent nothing, and continued to read
closed     the node closed the connection because of the frame
unread     the node had closed the connection because of an earlier frame
stalled    the node neither answered nor closed the connection in time
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import msgspec

from bench.hostile.corpus import Corpus, record
from bench.hostile.extremes import (
    ADMINISTRATIVE,
    Extremes,
    messages_of_clients,
    messages_of_peers,
)
from bench.hostile.mutations import broken, damaged, mutated
from bench.hostile.targets import KINDS, Kind, Target, running
from bench.hostile.ways import Closed, Intruder, Way
from bench.peers.peer import say
from oncecast.network.framing import GREETING, MESSAGE, PING, PONG, PREAMBLE, frame
from oncecast.network.handshake import GREETINGS, PEER, Welcome
from oncecast.wire.errors import AnyRefusal, Denied

MUTATED, EXTREME = "mutated", "extreme"
ENDINGS = ("answered", "refused", "ignored", "closed", "unread", "stalled")
PROCESSES = 2
SMALL = 10_000  # one process is enough for this many frames
TOGETHER = 40  # number of frames per write
WRITES = 5  # number of writes per connection
UNKNOWN_TOGETHER = 20  # number of frames after a greeting that the node should refuse

Endings = Counter[str]


@dataclass(frozen=True)
class Block:
    """The task of one attacker process."""

    way: Way
    kind: str  # MUTATED or EXTREME
    count: int
    seed: int
    corpus: Path
    spare: bool  # whether to omit administrative commands


# -- in the attacker's process --


def attack(block: Block) -> Endings:
    """Send `count` frames over as many connections as necessary, and return their outcomes."""
    rng, found = Random(block.seed), Endings()
    make, spoil = makers(block)
    # A peer that dials again replaces its older connection, so each process has its own id.
    ghost = f"127.0.0.1:{1 + block.seed % 1000}" if block.way.role == PEER else ""
    block = replace(block, way=replace(block.way, sender=ghost))
    while (left := block.count - found.total()) > 0:
        try:
            intruder = Intruder(block.way)
        except Closed:
            found["closed"] += 1
            continue
        with closing(intruder):
            if block.kind == MUTATED and rng.random() < 0.1:
                found += greet_badly(intruder, rng)
            else:
                found += visit(intruder, rng, make, spoil, left)
    return found


def makers(block: Block) -> tuple[Callable[[Random], bytes], Callable[[Random], bytes]]:
    """Return a function that makes a message body, and one that makes a complete frame.

    In a MUTATED block, the frame is broken.
    """
    peer = block.way.role == PEER
    corpus = Corpus.load(block.corpus).of(peer=peer)
    if block.kind == MUTATED:
        return partial(mutated, corpus=corpus), partial(broken, corpus=corpus)
    kinds = messages_of_peers() if peer else messages_of_clients()
    extremes = Extremes(kinds, spare=ADMINISTRATIVE if block.spare else ())
    return extremes.make, lambda rng: frame(MESSAGE, extremes.make(rng))


def greet_badly(intruder: Intruder, rng: Random) -> Endings:
    """Send a damaged greeting, which counts as one frame."""
    hello = PREAMBLE + frame(GREETING, GREETINGS.encode(intruder.way.hello()))
    try:
        intruder.send(damaged(rng, hello))
        intruder.no_more()
        replies = list(intruder.rest())
    except Closed:
        return Endings(closed=1)
    return Endings({"refused" if replies else "closed": 1})


def visit(
    intruder: Intruder,
    rng: Random,
    make: Callable[[Random], bytes],
    spoil: Callable[[Random], bytes],
    most: int,
) -> Endings:
    """Connect, send frames, and return their outcomes."""
    try:
        greeting = intruder.greet()
    except Closed:
        greeting = None
    if not isinstance(greeting, Welcome):
        found = Endings({"closed" if greeting is None else "refused": 1})
        for _ in range(WRITES):
            found += burst_in(intruder.way, rng, make, min(most, UNKNOWN_TOGETHER))
        return found
    found = Endings()
    for _ in range(WRITES):
        count = min(TOGETHER, most - found.total())
        if count <= 0:
            return found
        found += exchange(intruder, [frame(MESSAGE, make(rng)) for _ in range(count)])
        if found["closed"] or found["stalled"]:
            return found
    return found + end_badly(intruder, spoil(rng))


def burst_in(way: Way, rng: Random, make: Callable[[Random], bytes], count: int) -> Endings:
    """Send a greeting and frames at once, without waiting for the answer."""
    bodies = b"".join(frame(MESSAGE, make(rng)) for _ in range(count))
    try:
        with closing(Intruder(way)) as intruder:
            hello = frame(GREETING, GREETINGS.encode(way.hello()))
            intruder.send(PREAMBLE + hello + bodies)
            intruder.no_more()
            replies = list(intruder.rest())
    except Closed:
        return Endings(closed=1, unread=count - 1)
    return Endings({"refused" if replies else "closed": 1, "unread": count - 1})


def exchange(intruder: Intruder, frames: list[bytes]) -> Endings:
    """Send frames and a ping, and read until the pong."""
    found, count = Endings(), len(frames)
    try:
        intruder.send(b"".join(frames) + frame(PING))
        while True:
            kind, body = intruder.frame()
            if kind == PONG:
                break
            found[ending_of(kind, body)] += 1
    except Closed as closed:
        found["stalled" if "timed out" in str(closed) else "closed"] += 1
    rest = max(0, count - found.total())
    found["unread" if found["closed"] or found["stalled"] else "ignored"] += rest
    return trimmed(found, count)


def trimmed(found: Endings, count: int) -> Endings:
    """Ignore late answers to earlier frames, so that each frame counts once."""
    for name in ("answered", "refused", "ignored"):
        surplus = found.total() - count
        found[name] -= min(found[name], max(0, surplus))
    return found


def end_badly(intruder: Intruder, data: bytes) -> Endings:
    """Send a broken frame, and wait until the node closes the connection."""
    try:
        intruder.send(data)
        intruder.no_more()
        for _ in intruder.rest():
            pass
    except Closed:
        pass
    return Endings(closed=1)


def ending_of(kind: int, body: bytes) -> str:
    if kind != MESSAGE:
        return "refused"
    try:
        tag, *fields = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, TypeError):
        return "answered"
    if tag == "FlowEnded":
        return "refused"
    result: Any = fields[1] if tag == "Answer" else None
    refused = isinstance(result, list) and bool(result) and result[0] in refusals()
    return "refused" if refused else "answered"


@lru_cache
def refusals() -> frozenset[str]:
    """Return the tags of all refusals."""
    kinds = (*AnyRefusal.__args__, Denied)
    return frozenset(str(kind.__struct_config__.tag) for kind in kinds)


# -- in the process of the benchmark --


@dataclass
class Outcome:
    """The outcomes of all frames from one kind of attacker, and the target's problems."""

    target: str
    way: str
    kind: str
    endings: dict[str, int]
    seconds: float
    grown_mb: float
    faults: list[str]


def barrage(
    frames: int,
    extreme: int,
    root: Path,
    seed: int = 1,
    kinds: Sequence[Kind] = KINDS,
    sessions: Corpus | None = None,
) -> Iterator[Outcome]:
    """Attack each kind of target with each kind of attacker, and yield the outcomes.

    Each pair of a target and an attacker gets the same number of frames.
    """
    corpus = root / "corpus"
    if sessions is None:
        say("recording ordinary sessions")
        sessions = record(root)
    sessions.save(corpus)
    seeds = itertools.count(seed * 1_000_000)
    ways = sum(each_way(kind) for kind in kinds)
    context, processes = get_context("spawn"), 1 if frames + extreme < SMALL else PROCESSES
    for kind in kinds:
        with running(kind, root) as target, ProcessPoolExecutor(processes, context) as pool:
            for name, count in ((MUTATED, frames), (EXTREME, extreme)):
                for way in target.ways():
                    if not target.running:
                        return  # the last outcome already reports the closed connection
                    share = -(-count // ways // processes)
                    blocks = [
                        Block(way, name, share, next(seeds), corpus, not kind.secured)
                        for _ in range(processes)
                    ]
                    yield run_block(target, blocks, pool)


def run_block(target: Target, blocks: list[Block], pool: ProcessPoolExecutor) -> Outcome:
    began, found = perf_counter(), Endings()
    for each in pool.map(attack, blocks):
        found += each
    seconds = perf_counter() - began
    first = blocks[0]
    say(f"{target.kind.name}: {first.kind} frames as {first.way.name}")
    endings = {name: found[name] for name in ENDINGS}
    faults = target.faults()
    if found["stalled"]:
        faults.append(f"{target.kind.name}: {found['stalled']} connections stalled")
    return Outcome(
        target.kind.name, first.way.name, first.kind, endings, seconds, target.grown_mb, faults
    )


def each_way(kind: Kind) -> int:
    """Return how many kinds of attackers a target of this kind has."""
    return 2 + kind.secured + (kind.secured or kind.secret)
