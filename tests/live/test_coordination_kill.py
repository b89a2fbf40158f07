"""Takers of a queue are killed with kill -9: each element goes to one, and none to two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.live.replicas import until
from tests.live.test_coordination import free_addresses

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ELEMENTS = 150  # a keeper
TAKERS, KILLS = 3, 3


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.live.taker", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def order(keeper: subprocess.Popen[str], *words: str) -> None:
    assert keeper.stdin is not None
    keeper.stdin.write(" ".join(words) + "\n")
    keeper.stdin.flush()


def answer(keeper: subprocess.Popen[str]) -> str:
    assert keeper.stdout is not None
    return keeper.stdout.readline().strip()


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def left(keepers: list[subprocess.Popen[str]]) -> int:
    for keeper in keepers:
        order(keeper, "left")
    return max(int(answer(keeper)) for keeper in keepers)


def test_takers_are_killed_and_no_element_is_taken_twice(tmp_path: Path) -> None:
    """DDS-5: the keepers know whom each element was given to, and it is one. Who was killed had
    one ticket, and so may have taken one element along that it never told of."""
    rng = Random(7)
    addresses = free_addresses(3)
    acceptors = ",".join(addresses)
    files = [tmp_path / f"taker-{number}" for number in range(TAKERS + KILLS)]
    with ExitStack() as all_of_them:
        keepers = [
            all_of_them.enter_context(process("keep", address, acceptors)) for address in addresses
        ]
        assert [answer(keeper) for keeper in keepers] == ["ready"] * 3
        for keeper in keepers:
            order(keeper, "put", str(ELEMENTS))
        alive = {
            file: all_of_them.enter_context(process("take", acceptors, str(file)))
            for file in files[:TAKERS]
        }
        assert [answer(keeper) for keeper in keepers] == ["done"] * 3
        for file in files[TAKERS:]:
            victim = rng.choice(list(alive))
            until("it takes something", partial(busy, victim, keepers))
            alive.pop(victim).kill()
            alive[file] = all_of_them.enter_context(process("take", acceptors, str(file)))
        until("all is taken", lambda: left(keepers) == 0 or None)
        decided: dict[str, str] = {}
        for keeper in keepers:
            order(keeper, "audit")
            decided |= json.loads(answer(keeper))
        until("all have heard", lambda: all(heard_all(file, decided) for file in alive) or None)
    put = [f"{address}/{number}" for address in addresses for number in range(ELEMENTS)]
    audit(files, list(alive), decided, put)


def busy(taker: Path, keepers: list[subprocess.Popen[str]]) -> bool | None:
    return len(lines(taker)) > 5 or left(keepers) == 0 or None


def heard_all(file: Path, decided: dict[str, str]) -> bool:
    """Whether a taker that lives has all that was given to it."""
    told = lines(file)
    return not told or set(told[1:]) >= {job for job, taker in decided.items() if taker == told[0]}


def audit(files: list[Path], alive: list[Path], decided: dict[str, str], put: list[str]) -> None:
    assert sorted(decided) == sorted(put)
    taken: dict[str, Path] = {}
    for file in files:
        told = lines(file)
        for job in told[1:]:
            assert job not in taken, f"{job} was taken by {file.name} and {taken[job].name}"
            assert decided[job] == told[0]
            taken[job] = file
    assert len(put) - len(taken) <= len(files) - len(alive)
