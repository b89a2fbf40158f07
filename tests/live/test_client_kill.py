"""Each message arrives once and in order when a node or a publisher is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

import oncecast
from tests.client.serving import run
from tests.live.test_serve import PATIENCE, Process

PUBLISHER = """
import sys
from oncecast import blocking

with blocking.connect(sys.argv[1], state=sys.argv[2]) as client:
    for number in range(int(sys.argv[3]), 1_000_000):
        client.put_nowait("t", b"%d" % number)
        if number % 50 == 0:
            client.flush()
            print(number, flush=True)
"""


@contextmanager
def ended(process: Process) -> Iterator[None]:
    try:
        yield
    finally:
        process.process.kill()
        process.process.wait(PATIENCE)
        assert process.process.stderr is not None
        process.process.stderr.close()


@pytest.mark.parametrize("kills", [3])
def test_client_continues_when_its_node_is_killed(kills: int, tmp_path: Path) -> None:
    """SVC-2 SVC-3 SVC-10 SVC-13"""

    async def scenario() -> None:
        data = str(tmp_path / "data")
        node = Process("--data", data)
        address = f"127.0.0.1:{node.port}"
        async with oncecast.connect(address, name="me") as client:
            topic = await client.subscribe("t")
            got: list[int] = []
            for run_number in range(kills):
                with ended(node):
                    for number in range(run_number * 200, run_number * 200 + 200):
                        client.put_nowait("t", b"%d" % number)
                    got += [int(message.value) for message in await topic.get_many(20)]
                node = Process("--data", data, "--listen", address)
            with ended(node):
                await client.flush(PATIENCE)
                while len(got) < kills * 200:
                    got += [int(message.value) for message in await topic.get_many(100)]
                assert got == list(range(kills * 200))
                assert await topic.get(timeout=0) is None
                await client.close()

    run(scenario())


def test_restarted_publisher_continues_from_its_outbox(tmp_path: Path) -> None:
    """SVC-2 SVC-12 SVC-13"""
    node = Process("--data", str(tmp_path / "data"))
    address = f"127.0.0.1:{node.port}"
    with ended(node), oncecast.blocking.connect(address, name="reader") as reader:
        topic = reader.subscribe("t")
        begins, stored = [0], 0
        while len(begins) < 4:
            arguments = [address, str(tmp_path / "state"), str(begins[-1])]
            publisher = subprocess.Popen(
                [sys.executable, "-c", PUBLISHER, *arguments], stdout=subprocess.PIPE, text=True
            )
            assert publisher.stdout is not None
            lines = [int(publisher.stdout.readline()) for _ in range(5)]
            publisher.send_signal(signal.SIGKILL)
            lines += map(int, publisher.stdout)
            publisher.wait(PATIENCE)
            publisher.stdout.close()
            stored = lines[-1]
            begins.append(stored + 10_000)
        with oncecast.blocking.connect(address, state=tmp_path / "state") as last:
            last.put("t", b"1000000")
        numbers = [int(message.value) for message in iter(lambda: topic.get(timeout=0), None)]
        assert stored in numbers
        jumps = [after for before, after in pairwise(numbers) if after != before + 1]
        assert jumps == [*begins[1:-1], 1_000_000]
