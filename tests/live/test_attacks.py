"""A running node refuses attacks by clients and keeps serving other clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from oncecast import blocking
from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import Value
from oncecast.network.framing import MESSAGE, frame
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidTopic, TooMany
from oncecast.wire.frames import Answer, Call, Look, Scan
from oncecast.wire.limits import PARTS_MAX
from oncecast.wire.retention import Policy
from tests.live.test_bad_input import serving
from tests.live.test_serve import Process
from tests.node.guest import Guest

MB = 1_000_000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Process]:
    with serving(tmp_path / "data") as process:
        yield process


class Attacker(Guest):
    """A client that sends arbitrary messages, and reads only on demand."""

    def __init__(self, node: Process) -> None:
        super().__init__(node.port)

    def send_all(self, *messages: Value) -> None:
        """Send the messages in one write."""
        self.socket.sendall(b"".join(frame(MESSAGE, ENCODER.encode(each)) for each in messages))


def memory_bytes(node: Process) -> int:
    found = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(node.process.pid)], capture_output=True, check=True
    )
    return int(found.stdout) * 1024


def test_command_as_large_as_a_frame_is_refused(node: Process) -> None:
    """SEC-3: the group continues."""
    attacker = Attacker(node)
    attacker.send(Call(1, do.CreateTopic("x" * 60_000, 0)))
    assert attacker.receive() == Answer(1, InvalidTopic())
    attacker.send(
        Call(2, do.CreateTopic("x" * (16 << 20), 0))
    )  # the node drops the frame without reading it
    attacker.send(Call(3, do.PublishStaged("s", 1, ("",) * 15_000, 0)))
    assert attacker.receive() == Answer(3, TooMany("parts in one publish", PARTS_MAX))
    attacker.send(Call(4, do.PublishStaged("s", 1, ("",) * (16 << 20), 0)))
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        assert client.put("topic", b"x").offset == 0
    attacker.close()


def test_thousands_of_status_requests_do_not_delay_another_client(node: Process) -> None:
    """SEC-3: otherwise the requests would hold the loop for more than a minute."""
    attacker = Attacker(node)
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        attacker.send_all(*(Call(1 + n, do.CreateTopic(f"topic-{n:04}", 0)) for n in range(500)))
        for _ in range(500):
            attacker.frame()
        attacker.send_all(*(Look(n) for n in range(10_000)))
        for number in range(3):
            assert client.put("topic", b"x").offset == number
        attacker.socket.settimeout(0.0)
        answered = 0
        with pytest.raises(BlockingIOError):  # the answers have not all been sent yet
            while answered < 10_000:
                attacker.frame()
                answered += 1
        assert memory_bytes(node) < 200 * MB
    attacker.close()


def test_scans_with_unread_answers_use_little_memory(node: Process) -> None:
    """SEC-3: otherwise eight clients would use a gigabyte."""
    scan = Scan(1, "topic", do.FromEarliest(), bytes=8 << 20)
    with blocking.connect(f"127.0.0.1:{node.port}") as client, ExitStack() as attackers:
        client.create_topic("topic", Policy(keep_all=True))
        for _ in range(8):
            client.put("topic", bytes(1 << 20))
        before = memory_bytes(node)
        for _ in range(8):
            attacker = Attacker(node)
            attackers.callback(attacker.close)
            attacker.send_all(*(scan for _ in range(16)))  # too few unread answers for a reset
            kind, body = attacker.frame()  # only one answer is read
            assert (kind, len(body) > 4 << 20) == (MESSAGE, True)
        for number in range(8, 11):
            assert client.put("topic", b"x").offset == number
        assert memory_bytes(node) - before < 200 * MB
