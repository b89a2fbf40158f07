"""A real process is killed at each crash point and then replaced.

All other participants run in the test process.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import oncecast
from oncecast import errors
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced
from oncecast.wire.results import Appended, Opened
from tests.client.serving import run
from tests.crashpoints import POINTS, Point
from tests.live.dying import small_segments
from tests.live.result_store import ResultStore, consume
from tests.live.test_serve import PATIENCE, Process
from tests.node.guest import guest, put
from tools.check_docs import ROOT

COUNT = 12
TIMES = 3  # arrivals at the point until the process dies,
RARE = ("snapshot", "log", "get", "data", "ack")  # except at these points, which it reaches rarely


def deaths(process: str) -> list[Point]:
    return [point for point in POINTS if point.process == process and point.action == "crash"]


def times(point: Point) -> int:
    return 1 if point.process != "publisher" and point.name.startswith(RARE) else TIMES


def named(process: str, name: str) -> str:
    return next(str(point) for point in POINTS if (point.process, point.name) == (process, name))


@contextmanager
def victim(point: str, times: int, *role: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.live.dying", point, str(times), *role]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str], line: str = "") -> tuple[int, list[str], str]:
    out, err = process.communicate(line, PATIENCE)
    return process.returncode, out.splitlines(), err


@pytest.fixture
def address(node: Process) -> str:
    return f"127.0.0.1:{node.port}"


@pytest.fixture
def topic(request: pytest.FixtureRequest, address: str) -> str:
    """Return a new topic with a subscription that keeps its messages."""
    name = request.node.name
    with oncecast.blocking.connect(address) as client:
        client.subscribe(name, "results").close()
    return str(name)


def read_all(address: str, topic: str) -> list[int]:
    with oncecast.blocking.connect(address) as client, client.read(topic, "results") as sub:
        return [int(message.value) for message in iter(lambda: sub.get(timeout=0), None)]


# -- publishers --


@pytest.mark.parametrize("point", deaths("publisher"), ids=str)
def test_next_publisher_continues_where_a_crashed_publisher_stopped(
    point: Point, address: str, topic: str, tmp_path: Path
) -> None:
    """SVC-2 SVC-12 SVC-13"""
    state = tmp_path / "state"
    with victim(str(point), TIMES, "publisher", address, topic, str(state), "1000") as process:
        status, promised, err = end(process)
    assert status == -signal.SIGKILL, err
    with oncecast.blocking.connect(address, state=state) as client:
        client.put(topic, b"1000", timeout=PATIENCE)
    *numbers, last = read_all(address, topic)
    assert (numbers, last) == (list(range(len(numbers))), 1000)
    assert len(numbers) > max(map(int, promised), default=-1)


def test_newer_publisher_fences_the_older_publisher(
    address: str, topic: str, tmp_path: Path
) -> None:
    """SVC-8 SVC-13: two processes run at once."""
    point = named("publisher", "two processes at once")
    older = [address, topic, str(tmp_path / "older"), "10"]
    with victim(point, TIMES, "publisher", *older) as process:
        assert process.stdout is not None
        assert "here\n" in iter(process.stdout.readline, "")
        name = f"publisher of {topic}"
        with oncecast.blocking.connect(address, name=name, state=tmp_path / "newer") as newer:
            newer.put_many(topic, [b"%d" % number for number in range(100, 110)], PATIENCE)
            status, promised, err = end(process, "\n")
    assert (status, "Fenced" in err) == (1, True), err
    numbers = read_all(address, topic)
    assert [number for number in numbers if number >= 100] == list(range(100, 110))
    older_numbers = [number for number in numbers if number < 100]
    assert older_numbers == list(range(len(older_numbers)))
    assert len(older_numbers) > max(map(int, promised), default=-1)


def test_late_put_with_an_old_epoch_is_fenced(node: Process) -> None:
    """SVC-2 SVC-8 SVC-13: the process restarts with the old epoch."""
    with guest(node.port) as one, guest(node.port) as other:
        one.call(do.Subscribe("topic", "sub", do.FromEarliest(), 0))
        old, new = (
            client.call(do.OpenProducer("topic", "me", incarnation, 0))
            for client, incarnation in ((one, "old"), (other, "new"))
        )
        assert isinstance(old, Opened)
        assert isinstance(new, Opened)
        assert other.call(put(new.epoch, 0, [b"0"])) == Appended(0, 1, True)
        late = one.call(put(old.epoch, 0, [b"0"])), one.call(put(old.epoch, 1, [b"1"]))
        assert late == (Fenced(new.epoch), Fenced(new.epoch))


# -- nodes --


@pytest.mark.parametrize("point", deaths("node"), ids=str)
def test_clients_continue_when_a_crashed_node_restarts(point: Point, tmp_path: Path) -> None:
    """SVC-2 SVC-3 SVC-9 SVC-10 SVC-13"""
    data = tmp_path / "data"
    with victim(str(point), times(point), "node", str(data)) as process:
        address = listening(process)
        run(continues(process, point, data, address))


def listening(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if " at=127.0.0.1:" in line and "listening" in line:
            return line.split(" at=")[1].split()[0]
    raise AssertionError("the node does not listen")


async def continues(process: subprocess.Popen[str], point: Point, data: Path, address: str) -> None:
    over = asyncio.Event()
    async with oncecast.connect(address, name="me") as client:
        sub = await client.subscribe("t")
        working = asyncio.create_task(work(client, sub, over))
        status, _, err = await asyncio.to_thread(end, process)
        assert status == -signal.SIGKILL, err
        if point.disk == "torn":
            tear(data)
        with small_segments():
            server = Server(Settings(data=str(data), listen=address))
            async with server:
                over.set()
                count, got = await working
                assert got == list(range(count))
                assert await sub.get(timeout=0) is None
                await client.close()


async def work(
    client: oncecast.Client, sub: oncecast.Subscription, over: asyncio.Event
) -> tuple[int, list[int]]:
    """Put and get a few at a time until `over`. Return the number of puts, and the values."""
    count, got = 0, list[int]()
    while not over.is_set() or len(got) < count:
        for _ in range(5):
            client.put_nowait("t", b"%d" % count)
            count += 1
        await client.flush()
        while len(got) < count:
            got += [int(message.value) for message in await sub.get_many(100)]
    return count, got


def tear(data: Path) -> None:
    """Destroy the end of the last write, as a power cut might."""
    log = max(path for path in data.glob("*.log") if path.read_bytes().strip(b"\0"))
    content = log.read_bytes()
    end_of_data = len(content.rstrip(b"\0"))
    log.write_bytes(content[: end_of_data - 5] + bytes(len(content) - end_of_data + 5))


# -- subscribers --


@pytest.mark.parametrize("point", deaths("subscriber"), ids=str)
def test_each_message_takes_effect_once_if_its_subscriber_crashes(
    point: Point, address: str, topic: str, tmp_path: Path
) -> None:
    """SVC-3 SVC-11 SVC-13"""
    values = [b"%d" % number for number in range(COUNT)]
    with oncecast.blocking.connect(address) as client:
        client.put_many(topic, values, PATIENCE)
    path = tmp_path / "results"
    role = ["subscriber", address, topic, str(path), str(COUNT)]
    with victim(str(point), times(point), *role) as process:
        status, _, err = end(process)
    assert status == -signal.SIGKILL, err
    consume(address, topic, path, COUNT)
    assert ResultStore(path).effects == values


def test_fenced_subscriber_does_not_duplicate_effects(
    address: str, topic: str, tmp_path: Path
) -> None:
    """SVC-3 SVC-8 SVC-13"""
    values = [b"%d" % number for number in range(COUNT)]
    with oncecast.blocking.connect(address) as client:
        client.put_many(topic, values, PATIENCE)
    path = tmp_path / "results"
    role = ["subscriber", address, topic, str(path), str(COUNT)]
    with victim(named("subscriber", "fenced in the handler"), TIMES, *role) as process:
        assert process.stdout is not None
        assert "here\n" in iter(process.stdout.readline, "")
        consume(address, topic, path, COUNT)
        status, _, err = end(process, "\n")
    assert (status, errors.Fenced.__name__ in err) == (1, True), err
    assert ResultStore(path).effects == values
