"""Delayed messages and times to live on real nodes, and the options of the commands (WRK-5)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from oncecast import Shared, blocking
from oncecast.errors import ExitStatus
from tests.live.conftest import Command
from tests.live.replicas import replicas, until

DELAY = 1.5


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_delayed_message_survives_the_kill_of_the_leader(tmp_path: Path) -> None:
    """WRK-5: it is delivered once, and not early, although its node is killed before it is due."""
    with replicas(tmp_path, 3) as group:
        leader = group.settled()
        with blocking.connect(group.server, name="ann") as client:
            client.create_subscription("t", "workers", shared=Shared())
            late = time.monotonic() + DELAY
            assert client.put("t", b"late", delay=DELAY).offset == -1
            assert client.put("t", b"old", delay=0.1, ttl=0.2).offset == -1
            leader.end()
            client.put("t", b"now")  # after the next leader is elected
            jobs = client.work("t", "workers")
            found = [jobs.get(timeout=20.0) for _ in range(2)]
            assert time.monotonic() >= late
            assert [each.value for each in found if each] == [b"now", b"late"]
            for each in found:
                assert each is not None
                each.ack()
            jobs.flush()
            letters = client.dead_letters("t", "workers")
            dead = until("the dead letter is stored", lambda: letters.first(2) or None)
            assert [(each.value, each.reason) for each in dead] == [(b"old", "expired")]
            assert jobs.get(timeout=0.0) is None


def test_put_command_delays_messages(oncecast: Command, topic: str) -> None:
    """WRK-5 CLI-3"""
    oncecast("sub", topic)
    words = ("put", topic, "a", "b", "--delay", "0.2s", "--ttl", "1h")
    assert oncecast(*words) == (ExitStatus.OK, "delayed\ndelayed\n", "")
    assert oncecast("put", topic, "now", "--ttl", "1h") == (ExitStatus.OK, "0\n", "")
    assert oncecast("get", topic, "-n", "3", "--timeout", "9")[1].startswith("now\n")
    until(
        "the delayed messages are due",
        lambda: oncecast("topic", "describe", topic)[1].count("next 3"),
    )
    status, out, _ = oncecast("put", topic, "c", "--at", "2001-01-01T12:00Z", "--json")
    assert (status, lines(out)[0]["offset"]) == (ExitStatus.OK, 3)
    tomorrow = time.strftime("%Y-%m-%dT%H:%M", time.localtime(time.time() + 86_400))
    (fields,) = lines(oncecast("put", topic, "d", "--at", tomorrow, "--json")[1])
    assert (fields["offset"], fields["kept"]) == (-1, True)
    assert "delayed    1 message\n" in oncecast("topic", "describe", topic)[1]
    assert lines(oncecast("topic", "describe", topic, "--json")[1])[0]["delayed"] == 1


def test_put_command_warns_that_a_delayed_message_will_be_discarded(
    oncecast: Command, topic: str
) -> None:
    """SVC-5"""
    status, out, err = oncecast("put", topic, "a", "--delay", "1h")
    assert (status, out) == (ExitStatus.OK, "delayed\n")
    assert "will be discarded when they are due" in err


def test_topic_that_drops_expired_messages(oncecast: Command, topic: str) -> None:
    """WRK-5 CLI-3"""
    words = ("topic", "create", topic, "--keep-all", "--drop-expired")
    assert "keeps all messages; drops expired messages" in oncecast(*words)[1]
    (fields,) = lines(oncecast("topic", "describe", topic, "--json")[1])
    assert fields["drop_expired"] is True


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--delay", "-5"), "-5 is out of range"),
        (("--delay", "nan"), "nan is out of range"),
        (("--delay", "soon"), "'soon' is not a number with a unit"),
        (("--delay", "400d"), "delay is 34560000.0; use a number of seconds from 0 to 31,622,400"),
        (("--at", "tomorrow"), "'tomorrow' is not a time; use a time such as 2030-01-31T12:00"),
        (("--at", "9999-01-01"), "use a time within the next 366 days"),
        (("--at", "2030-01-31", "--delay", "5s"), "not allowed with argument"),
        (("--delay", "5s", "--ttl", "5s"), "ttl is 5 s, but the message is due in 5 s"),
        (("--ttl", "0"), "0 is out of range"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_invalid_times_are_usage_errors(
    oncecast: Command,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    fact: str,
) -> None:
    """WRK-5 SVC-7"""
    try:
        status, _, err = oncecast("put", topic, "x", *words)
    except SystemExit as ended:
        status, err = int(str(ended.code)), capsys.readouterr().err
    assert status == ExitStatus.USAGE
    assert fact in err
