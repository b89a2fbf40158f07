"""SVC-7: invalid input causes a clear error and a stable exit status, and loses no data."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncecast.errors import ExitStatus
from oncecast.network.handshake import VERSION, Refusal
from oncecast.storage import segment
from oncecast.storage.disk import OsDisk
from oncecast.storage.log import Log
from oncecast.wire.errors import Fenced
from oncecast.wire.results import Appended
from tests.live.conftest import Command
from tests.live.test_serve import PATIENCE, Process, ended_at_once, opened
from tests.node.guest import Guest, guest, put

TOPICS = {"empty": b"", "256 bytes": "é".encode() * 128, "no UTF-8": b"\xff\xfe"}
FAULTS = {
    "empty": "topic name is empty",
    "256 bytes": "topic name is 256 bytes long (limit 255)",
    "no UTF-8": r"topic name '\udcff\udcfe' is not valid Unicode",
}
WORDS: tuple[tuple[str, ...], ...] = (
    ("put", "TOPIC", "v"),
    ("get", "TOPIC"),
    ("sub", "TOPIC"),
    ("unsub", "TOPIC"),
    ("topic", "create", "TOPIC"),
    ("topic", "describe", "TOPIC"),
    ("topic", "delete", "TOPIC"),
    ("subs", "list", "TOPIC"),
    ("subs", "lag", "TOPIC"),
    ("subs", "seek", "TOPIC", "new"),
)


@contextmanager
def serving(data: Path, *flags: str, program: tuple[str, ...] = ()) -> Iterator[Process]:
    flags = ("--data", str(data), *flags)
    node = Process(*flags, program=program) if program else Process(*flags)
    try:
        yield node
    finally:
        node.process.kill()
        node.process.wait(PATIENCE)
        assert node.process.stderr is not None
        node.process.stderr.close()


def command(node: Process, *words: str | bytes, text: bytes = b"") -> tuple[int, str, str]:
    """Run a command in its own process. Return its status, stdout and stderr."""
    server = ("--server", f"127.0.0.1:{node.port}")
    ended = subprocess.run(
        [sys.executable, "-m", "oncecast", *words, *server],
        input=text,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


# Names


@pytest.mark.parametrize("words", WORDS, ids=lambda each: " ".join(each[:2]))
@pytest.mark.parametrize("kind", TOPICS)
def test_every_command_rejects_an_invalid_topic_name(
    oncecast: Command, words: tuple[str, ...], kind: str
) -> None:
    topic = os.fsdecode(TOPICS[kind])
    ended = oncecast(*(topic if word == "TOPIC" else word for word in words))
    assert ended[:2] == (ExitStatus.USAGE, "")
    assert f"{FAULTS[kind]}; use 1 to 255 bytes of UTF-8" in ended[2]


def test_arguments_that_are_not_utf8_are_rejected(node: Process) -> None:
    for words in (
        ("put", b"\xff", "v"),
        ("put", "t", "v", "--name", b"\xff"),
        ("put", "t", "v", "--header", b"\xff=v"),
        ("get", "t", "--subscription", b"\xff"),
        ("topic", "list", "--prefix", b"\xff"),
        ("status", "--cluster", b"\xff"),
    ):
        status, out, err = command(node, *words)
        assert (status, out, "not valid Unicode" in err) == (ExitStatus.USAGE, "", True), err
        assert "Traceback" not in err


def test_topic_name_can_have_255_bytes(oncecast: Command) -> None:
    """SVC-1"""
    topic = "é" * 127 + "x"
    oncecast("sub", topic)
    oncecast("put", topic, "v")
    assert oncecast("get", topic) == (ExitStatus.OK, "v\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ("sub", "t", "--start", "9" * 30),
        ("subs", "seek", "t", "9" * 30),
        ("subs", "seek", "t", "0001-01-01"),
        ("topic", "create", "t", "--keep-age", "inf"),
    ],
    ids=" ".join,
)
def test_position_or_age_out_of_range_is_a_usage_error(
    oncecast: Command, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        oncecast(*words)
    assert exit_.value.code == ExitStatus.USAGE
    assert "Traceback" not in capsys.readouterr().err


# Messages


def test_line_over_the_limit_is_rejected_after_earlier_lines_are_stored(
    node: Process, oncecast: Command
) -> None:
    oncecast("sub", "large")
    text = b"before\n" + bytes(61 << 20) + b"\nbehind\n"
    status, out, err = command(node, "put", "large", "-", text=text)
    assert (status, out) == (ExitStatus.USAGE, "0\n")
    assert "the line is too long (limit 62,914,560 bytes); split it, or store" in err
    assert oncecast("put", "large", "after")[:2] == (ExitStatus.OK, "1\n")
    assert oncecast("get", "large", "--count", "9")[1] == "before\nafter\n"


def test_message_over_the_node_limit_is_rejected(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--batch-bytes-max", "1000") as node:
        command(node, "sub", "t")
        status, out, err = command(node, "put", "t", "x" * 2000)
        assert (status, out) == (ExitStatus.USAGE, "")
        assert "the message is 2,000 bytes long (limit 928); " in err
        assert "(limit 928); send smaller messages or batches, or raise" in err
        assert command(node, "put", "t", "small")[:2] == (ExitStatus.OK, "0\n")


def test_put_to_a_missing_topic_warns_that_the_message_is_discarded(oncecast: Command) -> None:
    """SVC-5: the topic policy allows this, so it is a warning and not an error."""
    status, out, err = oncecast("put", "missing", "v")
    assert (status, out) == (ExitStatus.OK, "0\n")
    assert (
        "topic 'missing' has no subscriptions and no retention; the messages were discarded" in err
    )


def test_load_reports_an_error_in_one_line(oncecast: Command) -> None:
    status, out, err = oncecast("load", "--publishes", "4", "--size", str(61 << 20))
    assert (status, out, err.count("\n")) == (ExitStatus.USAGE, "", 1), err
    assert "limit 62,914,560" in err


# Other clients


def test_unknown_subscription_is_not_found(oncecast: Command) -> None:
    oncecast("sub", "known")
    status, out, err = oncecast("get", "known", "--subscription", "other")
    assert (status, out) == (ExitStatus.NOT_FOUND, "")
    assert "topic 'known' has no subscription 'other'; create it with `oncecast sub`" in err


def test_put_with_a_wrong_epoch_is_fenced_and_stores_nothing(tmp_path: Path) -> None:
    """SVC-8"""
    with serving(tmp_path / "data") as node, guest(node.port, "me") as client:
        epoch, sequence = opened(client)
        for wrong in (epoch - 1, epoch + 1):
            assert client.call(put(wrong, sequence, [b"x"])) == Fenced(epoch)
        assert client.call(put(epoch, sequence, [b"x"])) == Appended(0, 1, True)


def test_older_producer_with_the_same_name_is_fenced(node: Process, oncecast: Command) -> None:
    """SVC-8: earlier puts by the older producer are stored, later ones are not."""
    oncecast("sub", "fenced")
    words = ("put", "fenced", "-", "--name", "ann", "--server", f"127.0.0.1:{node.port}")
    with subprocess.Popen(
        [sys.executable, "-m", "oncecast", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as older:
        assert older.stdin is not None
        assert older.stdout is not None
        assert older.stderr is not None
        older.stdin.write(b"first\n")
        older.stdin.flush()
        assert older.stdout.readline() == b"0\n"
        assert oncecast("put", "fenced", "second", "--name", "ann")[:2] == (ExitStatus.OK, "1\n")
        older.stdin.write(b"third\n")
        older.stdin.close()
        assert older.wait(PATIENCE) == ExitStatus.NOT_ALLOWED
        assert b"client 'ann': another process has taken over this name" in older.stderr.read()
    assert oncecast("get", "fenced", "--count", "9")[1] == "first\nsecond\n"


def test_client_with_another_version_is_refused_with_a_remedy(node: Process) -> None:
    for version in (VERSION - 1, VERSION + 1):
        stranger = Guest(node.port, version=version)
        stranger.close()
        assert isinstance(stranger.greeting, Refusal)
        assert f"a client uses protocol version {version}" in stranger.greeting.reason
        assert "upgrade the older of the two" in stranger.greeting.reason


def test_client_from_another_cluster_is_refused(oncecast: Command) -> None:
    status, out, err = oncecast("status", "--cluster", "other")
    assert (status, out) == (ExitStatus.FAILURE, "")
    assert "a client belongs to cluster 'other'" in err


def test_error_names_an_unusable_state_directory(oncecast: Command, tmp_path: Path) -> None:
    """SVC-12"""
    (tmp_path / "file").write_text("")
    for path, fact in (("file", "File exists"), ("file/below", "Not a directory")):
        status, out, err = oncecast("put", "t", "v", "--state", str(tmp_path / path))
        assert (status, out) == (ExitStatus.FAILURE, "")
        assert f"{path}: {fact}; use a writable directory" in err
    held = OsDisk(tmp_path / "state")
    status, _, err = oncecast("put", "t", "v", "--state", str(tmp_path / "state"))
    held.close()
    assert (status, f"in use by process {os.getpid()}" in err) == (ExitStatus.FAILURE, True)


# The node's directory and port


def test_error_names_an_unusable_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    # Not even root can create a directory in these.
    for data in (tmp_path / "file" / "below", Path("/proc/oncecast"), Path(os.devnull)):
        ended = ended_at_once("--data", str(data), "--listen", "127.0.0.1:0")
        assert ended.returncode == ExitStatus.FAILURE
        assert f"{data}: " in ended.stderr
        assert "use a writable directory" in ended.stderr


def test_node_does_not_modify_a_directory_in_a_newer_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-10: an older version must not change the files of a newer version."""
    monkeypatch.setattr(segment, "VERSION", segment.VERSION + 1)
    disk = OsDisk(tmp_path / "data")
    log = Log.open(disk)
    log.append(b"of the future")
    log.sync()
    log.close()
    disk.close()
    before = files(tmp_path / "data")
    ended = ended_at_once("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert (ended.returncode, "format version 2" in ended.stderr) == (ExitStatus.FAILURE, True)
    assert files(tmp_path / "data") == before


def files(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir() if each.name != "LOCK"}


def test_invalid_config_file_is_a_usage_error(tmp_path: Path) -> None:
    for number, garbage in enumerate((b"\xff\xfe\x00", b"data = ", b"data = [1]", b"[data]\nx=1")):
        config = tmp_path / f"{number}.toml"
        config.write_bytes(garbage)
        ended = ended_at_once("--config", str(config), "--data", str(tmp_path / "data"))
        assert (ended.returncode, str(config) in ended.stderr) == (ExitStatus.USAGE, True), (
            ended.stderr
        )
        assert "Traceback" not in ended.stderr
    ended = ended_at_once("--config", "missing.toml")
    assert "missing.toml: No such file or directory; use a readable TOML file" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_error_names_a_port_in_use(node: Process, tmp_path: Path) -> None:
    used = f"127.0.0.1:{node.port}"
    for flags in (("--listen", used), ("--listen", "127.0.0.1:0", "--http", used)):
        ended = ended_at_once("--data", str(tmp_path / "data"), *flags)
        assert (ended.returncode, used in ended.stderr) == (ExitStatus.FAILURE, True), ended.stderr
        assert "already in use; free the port" in ended.stderr.lower()
    assert command(node, "status")[0] == ExitStatus.OK


# A full disk

FULL = """
import errno, os, sys
from pathlib import Path

allocate = os.posix_fallocate

def full_or_not(file, start, size):
    if Path(sys.argv[1]).exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    allocate(file, start, size)

os.posix_fallocate = full_or_not
from oncecast.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.long
def test_node_with_a_full_disk_rejects_puts_until_space_is_free(tmp_path: Path) -> None:
    """SVC-10: stored messages can still be read and acknowledged, which frees disk space."""
    full = tmp_path / "full"
    with serving(tmp_path / "data", program=("-c", FULL, str(full))) as node:
        command(node, "sub", "t")
        full.touch()
        large = b"x" * (1 << 20) + b"\n"
        # These 56 MiB still fit into the current segment of 64 MiB.
        assert command(node, "put", "t", "-", text=56 * large)[0] == ExitStatus.OK
        status, out, err = command(node, "put", "t", "late", "--timeout", "1")
        assert (status, out) == (ExitStatus.FAILURE, "")
        assert "not stored within 1 s: the node's disk is full; outcome unknown: check" in err
        assert command(node, "get", "t")[:2] == (ExitStatus.OK, large.decode())
        full.unlink()
        assert command(node, "put", "t", "again")[0] == ExitStatus.OK
        got = command(node, "get", "t", "--count", "99")[1].splitlines()
        assert (len(got), got[-1]) == (56, "again")  # "late" was lost with its process


def test_node_stops_on_a_failed_write_and_keeps_stored_messages(
    tmp_path: Path,
) -> None:
    """SVC-10: acknowledged messages survive."""
    with serving(tmp_path / "data") as node:
        command(node, "sub", "t")
        assert command(node, "put", "t", "stored")[0] == ExitStatus.OK
        # Every write fails, as with a quota or a failing disk.
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        assert command(node, "put", "t", "not stored", "--timeout", "1")[0] != ExitStatus.OK
        assert node.process.wait(PATIENCE) == ExitStatus.FAILURE
        assert node.process.stderr is not None
        said = node.process.stderr.read()
        assert "Traceback" not in said
        assert "check the disk" in said
    with serving(tmp_path / "data") as node:
        assert command(node, "get", "t", "--count", "9")[:2] == (ExitStatus.OK, "stored\n")


def test_node_without_disk_space_for_its_log_does_not_start(tmp_path: Path) -> None:
    limit = 1 << 20
    shell = f'ulimit -f {limit // 512}; exec "$@"'
    words = (sys.executable, "-m", "oncecast", "serve", "--listen", "127.0.0.1:0")
    ended = subprocess.run(
        ["sh", "-c", shell, "sh", *words, "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, "free up disk space" in ended.stderr) == (ExitStatus.FAILURE, True)


def test_put_to_a_stopped_node_fails_with_a_remedy(
    tmp_path: Path,
) -> None:
    """SVC-10"""
    with serving(tmp_path / "data") as node:
        command(node, "sub", "t")
        assert node.end(signal.SIGTERM) == 0
        status, out, err = command(node, "put", "t", "v", "--timeout", "1")
        assert (status, out) == (ExitStatus.FAILURE, "")
        assert f"cannot connect to 127.0.0.1:{node.port}: Connection refused; start a node" in err
        assert "`oncecast serve`" in err
