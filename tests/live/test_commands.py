"""CLI-3, SVC-12: run each operation as a command against a node in its own process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli import connecting
from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from tests.live.conftest import Command
from tests.live.test_serve import PATIENCE, Process


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Return a unique topic name, which commands must not change (SVC-1)."""
    return f"{request.node.name} ü"


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# put and get


def test_repeated_get_commands_print_each_message_once_and_in_order(
    oncecast: Command, topic: str
) -> None:
    """SVC-3: all calls share a subscription, and each ack is confirmed."""
    assert oncecast("sub", topic)[0] == ExitStatus.OK
    assert oncecast("put", topic, "one", "two words")[:2] == (ExitStatus.OK, "0\n1\n")
    assert oncecast("put", topic, "three")[:2] == (ExitStatus.OK, "2\n")
    assert oncecast("get", topic) == (ExitStatus.OK, "one\n", "")
    assert oncecast("get", topic, "--count", "9") == (ExitStatus.OK, "two words\nthree\n", "")
    status, out, err = oncecast("get", topic)
    assert (status, out) == (ExitStatus.EMPTY, "")
    assert "no message" in err


def test_json_output_has_all_message_fields(oncecast: Command, topic: str) -> None:
    oncecast("sub", topic)
    oncecast("put", topic, "v", "--key", "k", "--header", "a=b=c", "--name", "ann")
    (fields,) = lines(oncecast("get", topic, "--json")[1])
    assert fields.pop("timestamp") > 0
    assert fields == {
        "topic": topic,
        "offset": 0,
        "key": "k",
        "value": "v",
        "headers": {"a": "b=c"},
        "producer": "ann",
        "sequence": 0,
        "redelivered": False,
    }


def test_message_read_with_keep_is_redelivered_and_marked(oncecast: Command, topic: str) -> None:
    oncecast("sub", topic)
    oncecast("put", topic, "v")
    seen = [lines(oncecast("get", topic, "--keep", "--json")[1])[0] for _ in range(2)]
    seen += lines(oncecast("get", topic, "--json")[1])
    assert [each["value"] for each in seen] == ["v"] * 3
    assert [each["redelivered"] for each in seen] == [False, True, True]
    assert oncecast("get", topic)[0] == ExitStatus.EMPTY


def test_get_waits_until_its_timeout(oncecast: Command, topic: str) -> None:
    oncecast("sub", topic)
    assert oncecast("get", topic, "--timeout", "0.05")[0] == ExitStatus.EMPTY


def test_non_utf8_value_is_shown_as_base64_in_json(
    oncecast: Command, node: Process, topic: str
) -> None:
    oncecast("sub", topic)
    put = piped(node, b"\xff\xfe\n\nlast", "put", topic, "-")
    assert (put.returncode, put.stdout) == (ExitStatus.OK, b"0\n1\n2\n"), put.stderr
    found = lines(oncecast("get", topic, "--count", "3", "--json")[1])
    assert [each["value"] for each in found] == [{"base64": "//4="}, "", "last"]


def test_lines_from_standard_input_are_stored_unchanged(node: Process, topic: str) -> None:
    """SVC-2: there are more lines than fit in one put, and a line larger than one read."""
    text = b"".join(b"%d\n" % number for number in range(5000)) + b"x" * 700_000 + b"\n"
    assert piped(node, b"", "sub", topic).returncode == ExitStatus.OK
    assert piped(node, text, "put", topic, "-").returncode == ExitStatus.OK
    got = piped(node, b"", "get", topic, "--count", "6000")
    assert (got.returncode, got.stdout) == (ExitStatus.OK, text)


@pytest.mark.long
def test_message_larger_than_any_window_is_delivered(node: Process, topic: str) -> None:
    """SVC-1: the reader does not count as slow."""
    text = b"x" * (32 << 20) + b"\n"
    piped(node, b"", "sub", topic)
    assert piped(node, text, "put", topic, "-").returncode == ExitStatus.OK
    got = piped(node, b"", "get", topic)
    assert (got.returncode, got.stdout == text) == (ExitStatus.OK, True), got.stderr


def test_unprinted_message_is_not_acknowledged(
    oncecast: Command, node: Process, topic: str
) -> None:
    oncecast("sub", topic)
    oncecast("put", topic, "v")
    command = [sys.executable, "-m", "oncecast", "get", topic, "--server", f"127.0.0.1:{node.port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.wait(PATIENCE) == ExitStatus.BROKEN_PIPE
    (again,) = lines(oncecast("get", topic, "--json")[1])
    assert (again["value"], again["redelivered"]) == ("v", True)


def piped(node: Process, text: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "oncecast", *words, "--server", f"127.0.0.1:{node.port}"]
    return subprocess.run(command, input=text, capture_output=True, timeout=PATIENCE, check=False)


def test_put_warns_if_the_message_is_discarded(oncecast: Command, topic: str) -> None:
    """SVC-5"""
    status, out, err = oncecast("put", topic, "v", "--json")
    assert (status, lines(out)[0]["kept"]) == (ExitStatus.OK, False)
    assert "has no subscriptions and no retention" in err


def test_producer_with_a_state_directory_continues_its_sequence(
    oncecast: Command, topic: str, tmp_path: Path
) -> None:
    """SVC-12: the directory stores its name and sequence."""
    oncecast("sub", topic)
    state = str(tmp_path / "state")
    assert oncecast("put", topic, "a", "b", "--name", "ann", "--state", state)[0] == ExitStatus.OK
    assert oncecast("put", topic, "c", "--state", state)[0] == ExitStatus.OK
    found = lines(oncecast("get", topic, "--count", "3", "--json")[1])
    assert [(each["producer"], each["sequence"]) for each in found] == [
        ("ann", 0),
        ("ann", 1),
        ("ann", 2),
    ]
    status, _, err = oncecast("put", topic, "d", "--name", "bob", "--state", state)
    assert (status, "'ann'" in err) == (ExitStatus.FAILURE, True)


# subscriptions


def test_subscribing_twice_and_unsubscribing_twice_changes_nothing(
    oncecast: Command, topic: str
) -> None:
    """SVC-6"""
    answers = [
        lines(oncecast(word, topic, "--subscription", "s", "--json")[1])[0]["already"]
        for word in ("sub", "sub", "unsub", "unsub")
    ]
    assert answers == [False, True, False, True]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("new", ""), ("earliest", "a\nb\nc\n"), ("1", "b\nc\n"), ("2001-01-01T00:00", "a\nb\nc\n")],
)
def test_subscription_starts_at_the_requested_position(
    oncecast: Command, topic: str, start: str, expected: str
) -> None:
    oncecast("topic", "create", topic, "--keep-all")
    oncecast("put", topic, "a", "b", "c")
    assert oncecast("sub", topic, "--start", start)[0] == ExitStatus.OK
    assert oncecast("get", topic, "--count", "5")[1] == expected


def test_seek_changes_the_lag(oncecast: Command, topic: str) -> None:
    oncecast("topic", "create", topic, "--keep-all")
    oncecast("sub", topic)
    oncecast("put", topic, "a", "b", "c")
    oncecast("get", topic, "--count", "2")
    assert oncecast("subs", "lag", topic) == (ExitStatus.OK, "1\n", "")
    assert oncecast("subs", "seek", topic, "earliest")[0] == ExitStatus.OK
    assert lines(oncecast("subs", "lag", topic, "--json")[1])[0]["lag"] == 3
    assert oncecast("get", topic)[1] == "a\n"
    status, out, _ = oncecast("subs", "list", topic, "--json")
    assert (status, lines(out)) == (
        ExitStatus.OK,
        [{"topic": topic, "subscription": "default", "cursor": 1, "lag": 2, "attached": False}],
    )
    assert re.search(r"default +1 +2  no", oncecast("subs", "list")[1])


def test_seek_to_a_missing_offset_reports_where_the_subscription_moved(
    oncecast: Command, topic: str
) -> None:
    """SVC-7: an offset past the end or already deleted is reported, but is not an error."""
    oncecast("sub", topic)
    oncecast("put", topic, "a", "b", "c")
    oncecast("get", topic, "--count", "2")
    seek = ("subs", "seek", topic)
    assert oncecast(*seek, "9")[1].endswith("next offset 3: offset 9 is beyond the end\n")
    assert oncecast(*seek, "0")[1].endswith(": offset 0 is no longer kept\n")
    assert oncecast(*seek, "3")[1].endswith("next offset 3\n")
    (beyond,) = lines(oncecast(*seek, "9", "--json")[1])
    assert (beyond["cursor"], beyond["moved"]) == (3, True)
    assert lines(oncecast(*seek, "new", "--json")[1])[0]["moved"] is False
    sub = ("sub", topic, "--subscription", "late", "--start", "9")
    assert oncecast(*sub)[1].endswith("offset 9 is beyond the end\n")
    assert lines(oncecast(*sub, "--json")[1])[0]["moved"] is False  # it existed already


# topics


def test_topic_is_created_described_listed_and_deleted(oncecast: Command, topic: str) -> None:
    """SVC-9"""
    limits = ("--keep-age", "2h", "--keep-bytes", "3M", "--drop-unread")
    assert lines(oncecast("topic", "create", topic, *limits, "--json")[1])[0]["already"] is False
    assert lines(oncecast("topic", "create", topic, *limits, "--json")[1])[0]["already"] is True
    oncecast("sub", topic)
    (found,) = lines(oncecast("topic", "describe", topic, "--json")[1])
    assert (found["keep_age"], found["keep_bytes"], found["drop_unread"]) == (7200, 3 * 2**20, True)
    assert found["subscriptions"][0]["subscription"] == "default"
    assert lines(oncecast("topic", "list", "--prefix", topic, "--json")[1]) == [found]
    assert "2 h and 3145728 bytes" in oncecast("topic", "describe", topic)[1]
    assert topic in oncecast("topic", "list")[1]
    status, _, err = oncecast("topic", "create", topic, "--keep-all")
    assert (status, "`oncecast topic set`" in err) == (ExitStatus.FAILURE, True)
    assert oncecast("topic", "set", topic, "--keep-all")[0] == ExitStatus.OK
    assert lines(oncecast("topic", "describe", topic, "--json")[1])[0]["keep_all"] is True
    assert oncecast("topic", "delete", topic)[0] == ExitStatus.OK
    assert oncecast("topic", "delete", topic)[0] == ExitStatus.NOT_FOUND


def test_status_shows_the_node_and_its_version(oncecast: Command, node: Process) -> None:
    (found,) = lines(oncecast("status", "--json")[1])
    assert found["node"] == f"127.0.0.1:{node.port}"
    assert re.search(r"version +\d", oncecast("status")[1])


# errors


@pytest.mark.parametrize(
    ("words", "status", "fact"),
    [
        (("get", "missing"), ExitStatus.NOT_FOUND, "'missing' does not exist; create it with"),
        (("topic", "describe", "missing"), ExitStatus.NOT_FOUND, "'missing' does not exist"),
        (("subs", "lag", "missing"), ExitStatus.NOT_FOUND, "'missing' does not exist"),
        (("subs", "seek", "missing", "new"), ExitStatus.NOT_FOUND, "oncecast: "),
        (("put", "", "v"), ExitStatus.USAGE, "name is empty"),
        (("sub", "x" * 256), ExitStatus.USAGE, "256 bytes long (limit 255)"),
        (("put", "\udcff", "v"), ExitStatus.USAGE, "not valid Unicode"),
        (
            ("topic", "create", "t", "--keep-all", "--drop-unread"),
            ExitStatus.USAGE,
            "keep_all cannot",
        ),
        (("status", "--server", "nowhere"), ExitStatus.USAGE, "is not a valid address"),
        (("status", "--cluster", "other"), ExitStatus.FAILURE, "cluster 'other'"),
        (("status", "--tls", "a", "b", "c"), ExitStatus.USAGE, "certificate a: No such file"),
        (("load", "--trace", "."), ExitStatus.FAILURE, "directory"),
    ],
    ids=lambda each: " ".join(each)[:30] if isinstance(each, tuple) else "",
)
def test_failed_command_prints_one_line_and_exits_with_its_status(
    oncecast: Command, words: tuple[str, ...], status: int, fact: str
) -> None:
    """SVC-7"""
    ended, out, err = oncecast(*words)
    assert (ended, out, err.count("\n")) == (status, "", 1), err
    assert fact in err


def test_missing_subscription_is_not_found(oncecast: Command, topic: str) -> None:
    oncecast("sub", topic)
    for words in (("get",), ("subs", "lag"), ("subs", "seek")):
        position = ("new",) if words == ("subs", "seek") else ()
        status, _, err = oncecast(*words, topic, *position, "--subscription", "other")
        assert (status, "'other'" in err) == (ExitStatus.NOT_FOUND, True), words


def test_command_without_a_running_node_suggests_starting_one(
    oncecast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 0.1)
    status, out, err = oncecast("status", "--server", "127.0.0.1:1")
    assert (status, out) == (ExitStatus.FAILURE, "")
    assert "`oncecast serve`" in err


@pytest.mark.parametrize(
    "words",
    [
        ("put", "t"),
        ("put", "t", "v", "--header", "novalue"),
        ("get", "t", "--count", "0"),
        ("get", "t", "--timeout", "-1"),
        ("sub", "t", "--start", "sometimes"),
        ("topic", "create", "t", "--keep-age", "7x"),
        ("topic", "create", "t", "--keep-bytes", "0"),
        ("load", "--publishes", "0"),
    ],
    ids=" ".join,
)
def test_invalid_argument_is_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == ExitStatus.USAGE
