"""Run `oncecast stream read` and `write` against a node in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oncecast
from oncecast.cli import connecting
from oncecast.cli.main import main
from oncecast.coordination import KEEP_ALL, Durability, QoS, Reliability, blocking
from oncecast.errors import ExitStatus
from tests.live.test_coordination import free_addresses
from tests.live.test_streams import CALM

pytestmark = pytest.mark.long

EVERY = QoS(
    reliability=Reliability.RELIABLE, history=KEEP_ALL, durability=Durability.TRANSIENT_LOCAL
)


@pytest.fixture(scope="module")
def node() -> Iterator[blocking.Node]:
    with blocking.join(free_addresses(1)[0], **CALM) as node:
        yield node


Ran = tuple[int, str, str]


def stream(capfdbinary: Any, *words: str) -> Ran:
    status = main(["stream", *words])
    out, err = capfdbinary.readouterr()
    return status, out.decode(), err.decode()


def test_stream_write_sends_values_to_readers(node: blocking.Node, capfdbinary: Any) -> None:
    """DDS-1"""
    with node.stream("write", EVERY).reader() as reader:
        words = ("write", "write", "10", "11", "--key", "tea", "--peers", node.me, "--json")
        status, out, err = stream(capfdbinary, *words, "--durability", "transient-local")
        assert (status, err) == (ExitStatus.OK, "")
        assert json.loads(out) == {"stream": "write", "written": 2}
        found = [(each.key, each.value) for each in reader.take()]
        assert found == [(b"tea", b"10"), (b"tea", b"11")]


def test_stream_read_prints_values_raw_or_as_json(node: blocking.Node, capfdbinary: Any) -> None:
    """DDS-1"""
    with node.stream("read", EVERY).writer() as writer:
        writer.write(b"10", key=b"tea")
        writer.write(b"\xff")
        words = ("read", "read", "--peers", node.me, "-n", "2", "--durability", "transient-local")
        main(["stream", *words])
        assert capfdbinary.readouterr().out == b"10\n\xff\n"
        status, out, _ = stream(capfdbinary, *words, "--json")
        assert status == ExitStatus.OK
        first, second = map(json.loads, out.splitlines())
        assert (first["writer"], first["number"], first["key"]) == (node.me, 1, "tea")
        assert second["value"] == {"base64": "/w=="}
        status, out, err = stream(capfdbinary, *words[:-2], "--timeout", "0.2")
        assert (status, out) == (ExitStatus.EMPTY, "")
        assert "no value from stream 'read' within 0.2 s; raise --timeout to wait longer" in err


def test_stream_commands_report_incompatible_qualities(
    node: blocking.Node, capfdbinary: Any
) -> None:
    """DDS-1: both the reader and the writer report the mismatch."""
    with node.stream("less").writer(), node.stream("more", EVERY).reader():
        common = ("--peers", node.me, "--timeout", "0.5")
        status, _, err = stream(capfdbinary, "read", "less", *common)
        assert status == ExitStatus.NOT_ALLOWED
        assert f"stream 'less': {node.me} offers less than requested: reliability" in err
        status, _, err = stream(capfdbinary, "write", "more", "v", *common)
        assert status == ExitStatus.NOT_ALLOWED
        assert f"{node.me} (durability); offer more" in err


def test_error_for_an_unknown_stream_lists_the_known_streams(
    node: blocking.Node, capfdbinary: Any
) -> None:
    """DDS-1"""
    with node.stream("prices", EVERY).reader():
        words = ("write", "pricse", "v", "--peers", node.me, "--timeout", "0.5")
        status, _, err = stream(capfdbinary, *words)
        assert status == ExitStatus.NOT_FOUND
        assert "stream 'pricse': waited 0.5 s for 1 reader, found 0; other" in err
        assert "these streams: prices; open one of these" in err


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--history", "0"), "history is 0; keep 1 to 1048576 values, or all"),
        (("--history", "-1"), "history is -1; use 1 or more, or 'all'"),
        (
            ("--history", "some"),
            "history 'some' is not a number or 'all'; use a number of 1 or more, or 'all'",
        ),
        (("--deadline", "0"), "deadline is 0 s; use more than 0, or inf"),
        (("--samples-max", "0"), "samples_max is 0; use at least 1"),
        (("--peers", "nowhere"), "nowhere"),
    ],
)
def test_invalid_quality_is_a_usage_error(
    words: tuple[str, ...], fact: str, capfdbinary: Any
) -> None:
    """DDS-1"""
    status, _, err = stream(capfdbinary, "read", "s", *words)
    assert status == ExitStatus.USAGE
    assert fact in err


def test_persistent_values_are_stored_by_a_node(
    tmp_path: Path, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDS-1"""
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 0.1)
    persistent = ("s", "--durability", "persistent")
    status, _, err = stream(capfdbinary, "write", *persistent, "v", "--server", "127.0.0.1:1")
    assert status == ExitStatus.FAILURE
    assert "start a node with `oncecast serve`" in err
    with oncecast.blocking.embedded(tmp_path) as client:
        monkeypatch.setenv("ONCECAST_SERVER", client.node_of("s"))
        assert stream(capfdbinary, "write", *persistent, "v")[0] == ExitStatus.OK
        with oncecast.blocking.connect(client.node_of("s"), name="s") as other:
            other.put("s", b"w")
            words = ("read", *persistent, "-n", "2", "--json")
            status, out, _ = stream(capfdbinary, *words)
            assert other.put("s", b"x").offset == 2, "another producer has used its name"
        found = [json.loads(line) for line in out.splitlines()]
        assert (status, [each["value"] for each in found]) == (ExitStatus.OK, ["v", "w"])
        assert found[0]["writer"] != found[1]["writer"] == "s"
