"""Run `oncecast serve` as a user would: with a process, a port, a directory and signals."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncecast.network.handshake import Welcome
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.results import Already, Appended, Attached, Opened
from tests.node.guest import Guest, guest, put

PATIENCE = 20.0


class Process:
    def __init__(self, *flags: str, program: tuple[str, ...] = ("-m", "oncecast")) -> None:
        words = (*program, "serve", "--listen", "127.0.0.1:0", *flags)
        self.process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.port = int(self.wait_for(r"listening at=127\.0\.0\.1:(\d+)"))

    def wait_for(self, pattern: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"no {pattern} in {self.lines}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.lines += self.process.stderr
        return self.process.wait(PATIENCE)


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.wait(PATIENCE)
        assert each.process.stderr is not None
        each.process.stderr.close()


def opened(client: Guest) -> tuple[int, int]:
    client.call(do.Subscribe("topic", "sub", do.FromEarliest(), 0))
    result = client.call(do.OpenProducer("topic", "me", "inc", 0))
    assert isinstance(result, Opened)
    return result.epoch, result.next_sequence


def test_acknowledged_messages_survive_kill_9(tmp_path: Path, processes: list[Process]) -> None:
    """SVC-10, SVC-2: a repeated put adds nothing."""
    values = [b"one", b"two", b"three"]
    for run_number in range(3):
        node = Process("--data", str(tmp_path / "data"))
        processes.append(node)
        with guest(node.port, "me") as client:
            epoch, sequence = opened(client)
            assert sequence == 3 * run_number
            assert client.call(put(epoch, sequence, values)) == Appended(sequence, 3, True)
            assert client.call(put(epoch, sequence, values)) == Already(sequence, 3)
            node.end(signal.SIGKILL)

    node = Process("--data", str(tmp_path / "data"))
    processes.append(node)
    with guest(node.port) as client:
        attached = client.call(do.Attach("topic", "sub", "reader"))
        assert isinstance(attached, Attached)
        client.fetch(attached.epoch, 0)
        read: list[bytes] = []
        while len(read) < 9:
            delivery = client.delivery()
            assert delivery.chunks[0].offset == len(read)
            for chunk in delivery.chunks:
                read += batch.values(chunk.batch, chunk.skip, chunk.count)
    assert read == values * 3


def test_sigterm_stops_the_node_cleanly(tmp_path: Path, processes: list[Process]) -> None:
    node = Process("--data", str(tmp_path / "data"))
    processes.append(node)
    with guest(node.port) as client:
        opened(client)
        assert node.end(signal.SIGTERM) == 0
        with pytest.raises(ConnectionError):
            client.receive()
    assert "stopped" in node.lines[-1]


def test_client_without_a_name_gets_a_unique_name(tmp_path: Path, processes: list[Process]) -> None:
    """SVC-8"""
    node = Process("--data", str(tmp_path / "data"))
    processes.append(node)
    with guest(node.port) as one, guest(node.port) as other, guest(node.port, "ann") as ann:
        names = [each.greeting for each in (one, other, ann)]
        assert all(isinstance(each, Welcome) and each.you for each in names)
        assert len({each.you for each in names if isinstance(each, Welcome)}) == 3
        assert isinstance(ann.greeting, Welcome)
        assert ann.greeting.you == "ann"


def test_node_serves_metrics_and_health_over_http(tmp_path: Path, processes: list[Process]) -> None:
    node = Process(
        "--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--log-format", "json"
    )
    processes.append(node)
    (line,) = [each for each in node.lines if '"event": "http"' in each]
    found = re.search(r"at=127\.0\.0\.1:(\d+)", line)
    assert found is not None
    with guest(node.port) as client:
        opened(client)
    with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/health", timeout=PATIENCE) as page:
        health = json.loads(page.read())
    me = f"127.0.0.1:{node.port}"
    assert (health["status"], health["node"], health["leader"]) == ("ok", me, me)
    assert (health["role"], health["quorum"]) == ("leader", True)
    with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=PATIENCE) as page:
        text = page.read().decode()
    assert "oncecast_topics 1\n" in text
    assert re.search(r"oncecast_log_room_bytes [1-9]", text)
    assert "# TYPE oncecast_syncs_total counter\n" in text


def test_health_reports_a_draining_node(tmp_path: Path, processes: list[Process]) -> None:
    """The node answers until its process ends, so that load balancers stop sending clients to
    it."""
    node = Process(
        "--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--drain-timeout", str(PATIENCE)
    )
    processes.append(node)
    port = next(found[1] for line in node.lines if (found := re.search(r"http at=.*:(\d+)", line)))
    with guest(node.port) as client:
        node.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionError, match="goodbye"):
            client.receive()
        # The node waits for this client to close.
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE)
        with refused.value as page:
            assert (page.code, b'"status": "draining"' in page.read()) == (503, True)
    assert node.process.wait(PATIENCE) == 0


def ended_at_once(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncecast", "serve", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    ("flags", "status", "fact"),
    [
        (["--listen", "0.0.0.0:0"], 5, "is reachable from other machines, but TLS is off"),
        (["--http", "0.0.0.0:0"], 5, "without a token or TLS"),
        (["--http", "0.0.0.0:0", "--insecure"], 5, "without a token or TLS"),
        (["--listen", "nowhere"], 2, "not a valid address"),
        (["--snapshot-bytes", "many"], 2, "is not an integer"),
        (["--tls-key", "k.pem"], 2, "set both or neither"),
        (
            ["--tls-key", "k", "--tls-certificate", "c", "--tls-ca", "a"],
            2,
            "certificate c: No such file or directory; use a readable file",
        ),
        (["--config", "missing.toml"], 2, "missing.toml"),
        (["--data", "FILE"], 1, "FILE: not a directory"),
        (["--data", "STRANGE"], 1, "files that do not belong to a node"),
    ],
)
def test_serve_reports_invalid_settings_at_once(
    tmp_path: Path, flags: list[str], status: int, fact: str
) -> None:
    (tmp_path / "FILE").write_text("")
    (tmp_path / "STRANGE").mkdir()
    (tmp_path / "STRANGE" / "diary.txt").write_text("")
    flags = [str(tmp_path / each) if each in ("FILE", "STRANGE") else each for each in flags]
    if "--data" not in flags:
        flags += ["--data", str(tmp_path / "data")]
    if "--listen" not in flags:
        flags += ["--listen", "127.0.0.1:0"]
    ended = ended_at_once(*flags)
    assert (ended.returncode, fact in ended.stderr) == (status, True), ended.stderr


def test_serve_reports_a_directory_or_a_port_in_use(
    tmp_path: Path, processes: list[Process]
) -> None:
    node = Process("--data", str(tmp_path / "data"))
    processes.append(node)
    for data, listen, fact in (
        ("data", "127.0.0.1:0", "in use by process"),
        ("other", f"127.0.0.1:{node.port}", "free the port"),
    ):
        ended = ended_at_once("--data", str(tmp_path / data), "--listen", listen)
        assert (ended.returncode, fact in ended.stderr) == (1, True), ended.stderr


@pytest.mark.parametrize("flag", ["--listen", "--http"])
def test_node_that_cannot_listen_does_not_create_its_directory(
    flag: str, tmp_path: Path, processes: list[Process]
) -> None:
    node = Process("--data", str(tmp_path / "data"))
    processes.append(node)
    addresses = {"--listen": "127.0.0.1:0", flag: f"127.0.0.1:{node.port}"}
    words = [word for each in addresses.items() for word in each]
    ended = ended_at_once("--data", str(tmp_path / "new"), *words)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr
    assert not (tmp_path / "new").exists()


def test_serve_reports_an_address_that_belongs_to_another_machine(tmp_path: Path) -> None:
    ended = ended_at_once("--data", str(tmp_path), "--listen", "192.0.2.1:7400", "--insecure")
    assert ended.stderr.endswith("; use an address of this machine\n")
