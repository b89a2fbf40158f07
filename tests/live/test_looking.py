"""OPS-3: commands for looking at messages, and commands that ask before they harm."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from oncecast import blocking
from oncecast.errors import ExitStatus
from tests.live.conftest import Command
from tests.live.test_serve import Process


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"looking {request.node.name}"


def test_peek_shows_messages_and_moves_no_cursor(oncecast: Command, topic: str) -> None:
    """OPS-3"""
    oncecast("sub", topic)
    oncecast("put", topic, "one", "two", "three")
    assert oncecast("peek", topic) == (0, "one\ntwo\nthree\n", "")
    assert oncecast("peek", topic, "--from", "1", "-n", "1") == (0, "two\n", "")
    assert oncecast("peek", topic, "--to", "2") == (0, "one\ntwo\n", "")
    status, out, _ = oncecast("peek", topic, "--from", "2", "--json")
    assert (status, json.loads(out)["offset"]) == (0, 2)
    status, out, err = oncecast("peek", topic, "--from", "3")
    assert (status, out) == (ExitStatus.EMPTY, "")
    assert "offsets kept: 0 to 2" in err
    assert oncecast("get", topic, "-n", "3")[1] == "one\ntwo\nthree\n"


def test_get_does_not_disconnect_a_reader_unless_asked(
    oncecast: Command, node: Process, topic: str
) -> None:
    """OPS-3"""
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        reader = client.subscribe(topic, "audit")
        client.put(topic, b"first")
        status, out, err = oncecast("get", topic, "--subscription", "audit")
        assert (status, out) == (ExitStatus.FAILURE, "")
        assert "use --take-over" in err
        first = reader.get(timeout=10)
        assert first is not None
        assert first.value == b"first"
        client.put(topic, b"second")
        words = ("get", topic, "--subscription", "audit", "-n", "9", "--take-over")
        assert oncecast(*words, "--timeout", "1")[1].endswith("second\n")


def test_topic_set_changes_only_the_given_settings(oncecast: Command, topic: str) -> None:
    """OPS-3"""

    def policy(*words: str) -> dict[str, object]:
        status, out, err = oncecast("topic", "set", topic, *words, "--json")
        assert status == ExitStatus.OK, err
        found: dict[str, object] = json.loads(out)
        return found

    oncecast("topic", "create", topic, "--keep-age", "1d", "--drop-unread")
    assert policy("--keep-bytes", "1k")["keep_age"] == 86400
    assert policy("--no-drop-unread")["keep_bytes"] == 1024
    found = policy("--keep-all", "--drop-expired")
    assert (found["keep_all"], found["keep_age"], found["keep_bytes"]) == (True, 0, 0)
    found = policy("--keep-age", "2d")
    assert (found["keep_all"], found["keep_age"], found["drop_expired"]) == (False, 172800, True)
    assert policy("--reset")["drop_expired"] is False


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_topic_delete_asks_on_a_terminal(
    oncecast: Command, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPS-3"""
    oncecast("topic", "create", topic)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    status, out, err = oncecast("topic", "delete", topic)
    assert status == ExitStatus.FAILURE
    assert "with 0 messages and 0 subscriptions?" in out
    assert "not deleted" in err
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert oncecast("topic", "delete", topic)[0] == ExitStatus.OK
    oncecast("topic", "create", topic)
    assert oncecast("topic", "delete", topic, "--yes")[0] == ExitStatus.OK


def test_put_takes_keys_from_lines_and_values_from_files(
    oncecast: Command, topic: str, tmp_path: Path
) -> None:
    """CLI-3"""
    picture = tmp_path / "picture"
    picture.write_bytes(b"line one\nline two\n\xff")
    oncecast("topic", "create", topic, "--keep-all")
    assert oncecast("put", topic, "ann=1=2", "--key-separator", "=")[0] == ExitStatus.OK
    assert oncecast("put", topic, "--files", str(picture))[0] == ExitStatus.OK
    found = [json.loads(line) for line in oncecast("peek", topic, "--json")[1].splitlines()]
    assert [(each["key"], each["value"]) for each in found] == [
        ("ann", "1=2"),
        (None, {"base64": "bGluZSBvbmUKbGluZSB0d28K/w=="}),
    ]
    status, _, err = oncecast("put", topic, "nothing", "--key-separator", "=")
    assert status != ExitStatus.OK
    assert "'nothing' has no key; write KEY=VALUE" in err
    status, _, err = oncecast("put", topic, "--files", str(tmp_path / "missing"))
    assert status != ExitStatus.OK
    assert "missing: No such file or directory" in err


@pytest.mark.parametrize("what", ["put", "get", "latency"])
def test_bench_reports_a_rate_and_leaves_no_topic(oncecast: Command, what: str) -> None:
    """OPS-3"""
    status, out, err = oncecast("bench", what, "--messages", "50", "--size", "10", "--json")
    assert status == ExitStatus.OK, err
    found = json.loads(out)
    assert (found["bench"], found["messages"], found["size"]) == (what, 50, 10)
    assert oncecast("bench", what, "--messages", "1")[0] == ExitStatus.OK
    assert "oncecast.bench" not in oncecast("topic", "list")[1]


def test_completion_knows_commands_topics_and_subscriptions(oncecast: Command, topic: str) -> None:
    """OPS-3"""

    def complete(*words: str) -> list[str]:
        return oncecast("completion", "words", "--", *words)[1].splitlines()

    oncecast("sub", topic, "--subscription", "daily")
    assert complete("pee") == ["peek"]
    assert complete("topic", "") == ["create", "delete", "describe", "list", "set"]
    assert complete("get", topic[:-2]) == [topic]
    assert complete("get", topic, "--subscription", "") == ["daily"]
    assert complete("peek", topic, "--from", "") == ["earliest", "new"]
    assert "--take-over" in complete("get", topic, "--t")
    assert complete("publ") == []
    for shell in ("bash", "zsh", "fish"):
        assert "oncecast completion words" in oncecast("completion", shell)[1]
