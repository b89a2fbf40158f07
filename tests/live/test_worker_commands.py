"""Test the commands for shared subscriptions: `work`, `dead`, and the counts in `subs` (WRK-6)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncecast import blocking
from oncecast.errors import ExitStatus, LeaseLost
from oncecast.wire.frames import SharedView
from tests.live.conftest import Command
from tests.live.replicas import until
from tests.live.test_serve import PATIENCE, Process

FAST = ("--backoff-min", "0", "--backoff-max", "0", "--deliveries-max", "2")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def client(node: Process, topic: str, oncecast: Command) -> Iterator[blocking.Client]:
    """Yield a client, with a shared subscription `workers` to the topic."""
    words = ("sub", topic, "--subscription", "workers", "--shared", *FAST)
    assert oncecast(*words)[0] == ExitStatus.OK
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        yield client


@contextmanager
def working(node: Process, *words: str) -> Iterator[subprocess.Popen[str]]:
    server = ("--server", f"127.0.0.1:{node.port}")
    command = [sys.executable, "-m", "oncecast", "work", words[0], *server, *words[1:]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def view(client: blocking.Client, topic: str) -> SharedView:
    found = {each.name: each for each in client.describe(topic).subscriptions}["workers"].shared
    assert found is not None
    return found


def cursor(client: blocking.Client, topic: str) -> int:
    return {each.name: each for each in client.describe(topic).subscriptions}["workers"].cursor


def done(client: blocking.Client, topic: str, count: int) -> None:
    until(f"{count} messages are settled", lambda: cursor(client, topic) == count or None)


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_work_feeds_each_message_to_a_command(
    node: Process, client: blocking.Client, topic: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    script = f'read line; echo "$line $ONCECAST_OFFSET $ONCECAST_DELIVERIES" >> {out}'
    with working(node, topic, "--", "sh", "-c", script) as process:
        client.put_many(topic, [b"a\n", b"b\n"])
        done(client, topic, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK
    assert sorted(out.read_text().splitlines()) == ["a 0 1", "b 1 1"]


def test_command_may_end_without_reading_the_message(
    node: Process, client: blocking.Client, topic: str
) -> None:
    with working(node, topic, "--concurrency", "4", "--", "true") as process:
        client.put_many(topic, [b"x" * 200_000] * 20)
        done(client, topic, 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_work_replaces_braces_with_the_message(
    node: Process, client: blocking.Client, topic: str, tmp_path: Path
) -> None:
    words = ("--concurrency", "3", "--", "touch", f"{tmp_path}/{{}}")
    with working(node, topic, *words) as process:
        client.put_many(topic, [b"a", b"b c", b"d"])
        done(client, topic, 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b c", "d"]


def test_message_becomes_a_dead_letter_after_its_command_fails_repeatedly(
    node: Process, client: blocking.Client, topic: str
) -> None:
    with working(node, topic, "--", "sh", "-c", "exit 3") as process:
        client.put(topic, b"a")
        done(client, topic, 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == ExitStatus.OK
        assert process.stderr is not None
        assert process.stderr.read().splitlines() == [
            f"oncecast: {topic} 0: exit status 3 (delivery 1)",
            f"oncecast: {topic} 0: exit status 3 (delivery 2)",
        ]


def test_command_that_takes_too_long_is_stopped(
    node: Process, client: blocking.Client, topic: str
) -> None:
    with working(node, topic, "--limit", "0.1", "--", "sleep", "60") as process:
        client.put(topic, b"a")
        done(client, topic, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK
        assert process.stderr is not None
        assert "took longer than 0.1 s and was stopped" in process.stderr.read()


def test_message_that_cannot_be_an_argument_counts_as_a_failure(
    node: Process, client: blocking.Client, topic: str
) -> None:
    with working(node, topic, "--", "echo", "{}") as process:
        client.put(topic, b"a\0b")
        done(client, topic, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.OK
        assert process.stderr is not None
        assert "the message contains a null byte" in process.stderr.read()


def test_first_signal_drains_and_the_second_returns_the_message(
    node: Process, client: blocking.Client, topic: str, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    script = f"echo > {started}; sleep 60"
    with working(node, topic, "--", "sh", "-c", script) as process:
        client.put_many(topic, [b"a", b"b"])
        until("the command runs", lambda: started.exists() or None)
        process.send_signal(signal.SIGTERM)
        until("one message is held", lambda: view(client, topic).leased == 1 or None)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == ExitStatus.INTERRUPTED
    found = view(client, topic)
    assert (found.leased, found.waiting, found.dead) == (0, 2, 0)


def test_drain_finishes_all_commands_that_run_at_the_same_time(
    node: Process, client: blocking.Client, topic: str, tmp_path: Path
) -> None:
    """WRK-6: three of five messages are started; waiting messages go back at once."""
    script = f"touch {tmp_path}/$ONCECAST_OFFSET; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    words = ("--concurrency", "3", "--prefetch", "5", "--", "sh", "-c", script)
    with working(node, topic, *words) as process:
        client.put_many(topic, [b"a", b"b", b"c", b"d", b"e"])
        until("three commands run", lambda: len(list(tmp_path.iterdir())) == 3 or None)
        process.send_signal(signal.SIGTERM)
        until("three messages are held", lambda: view(client, topic).leased == 3 or None)
        assert process.poll() is None
        (tmp_path / "go").touch()
        assert process.wait(PATIENCE) == ExitStatus.OK
    found = view(client, topic)
    assert (found.leased, found.waiting, found.dead, cursor(client, topic)) == (0, 2, 0, 3)


def test_commands_for_exclusive_subscriptions_refuse_a_shared_one_and_lose_nothing(
    oncecast: Command, client: blocking.Client, topic: str
) -> None:
    """WRK-1: although a worker holds messages."""
    client.put_many(topic, [b"a", b"b"])
    with client.work(topic, "workers") as jobs:
        job = jobs.get()
        assert job is not None
        for words in (("sub", topic), ("get", topic)):
            status, _, err = oncecast(*words, "--subscription", "workers")
            assert status == ExitStatus.NOT_ALLOWED
            assert (
                f"subscription 'workers' of topic {topic!r} is shared; use `oncecast work`" in err
            )
        job.ack()
        other = jobs.get()
        assert other is not None
        other.ack()
        jobs.flush()
    assert cursor(client, topic) == 2


def test_seek_gives_back_all_messages_in_flight(
    oncecast: Command, client: blocking.Client, topic: str
) -> None:
    """WRK-3: the tokens from before the seek settle nothing."""
    client.put_many(topic, [b"a", b"b"])
    with client.work(topic, "workers") as jobs:
        old = [jobs.get(), jobs.get()]
        assert oncecast("subs", "seek", topic, "earliest", "--subscription", "workers")[0] == 0
        for job in old:
            assert job is not None
            job.ack()
        with pytest.raises(LeaseLost):
            jobs.flush()
        again = [jobs.get(PATIENCE), jobs.get(PATIENCE)]
        assert sorted(job.value for job in again if job is not None) == [b"a", b"b"]
        assert cursor(client, topic) == 0


@pytest.mark.parametrize("option", ["--delay", "--ttl"])
def test_negative_delay_is_refused_and_nothing_is_put(
    oncecast: Command, client: blocking.Client, topic: str, option: str
) -> None:
    """WRK-5"""
    with pytest.raises(SystemExit) as ended:
        oncecast("put", topic, "x", option, "-1")
    assert ended.value.code == ExitStatus.USAGE
    assert client.describe(topic).next == 0


@pytest.mark.parametrize("verb", ["list", "show", "retry", "drop"])
def test_dead_letters_of_an_unknown_subscription_are_not_found(
    oncecast: Command, client: blocking.Client, topic: str, verb: str
) -> None:
    """WRK-6"""
    offsets = [] if verb == "list" else ["0"]
    status, _, err = oncecast("dead", verb, topic, *offsets, "--subscription", "unknown")
    assert status == ExitStatus.NOT_FOUND
    assert f"topic {topic!r} has no subscription 'unknown'" in err
    status, _, err = oncecast("dead", verb, "nowhere", *offsets)
    assert status == ExitStatus.NOT_FOUND
    assert "topic 'nowhere' does not exist" in err


def test_unknown_command_is_refused_before_any_message_is_taken(
    oncecast: Command, client: blocking.Client, topic: str
) -> None:
    status, _, err = oncecast("work", topic, "--", "no such program")
    assert (status, err) == (
        127,
        "oncecast: no such program: not found or not executable; "
        "put an executable command after --\n",
    )


def test_work_on_an_exclusive_subscription_is_refused(oncecast: Command, topic: str) -> None:
    oncecast("sub", topic, "--subscription", "plain")
    status, _, err = oncecast("work", topic, "--subscription", "plain", "--", "true")
    assert status == ExitStatus.NOT_ALLOWED
    assert f"subscription 'plain' of topic {topic!r} is exclusive" in err
    status, _, err = oncecast("sub", topic, "--subscription", "plain", "--shared")
    assert status == ExitStatus.NOT_ALLOWED


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--lease", "0"), "the lease is 0 s"),
        (("--in-flight-max", "0"), "the in-flight maximum is 0"),
        (("--backoff-min", "9", "--backoff-max", "1"), "the backoff is 9 to 1 s"),
        (("--dead-letters", ""), "dead-letter topic name is empty"),
    ],
)
def test_invalid_settings_are_refused(
    oncecast: Command, topic: str, words: tuple[str, ...], fault: str
) -> None:
    status, _, err = oncecast("sub", topic, "--shared", *words)
    assert status == ExitStatus.USAGE
    assert fault in err


@pytest.mark.parametrize("words", [("--lease", "-1"), ("--deliveries-max", "x")])
def test_settings_must_be_numbers(oncecast: Command, topic: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        oncecast("sub", topic, "--shared", *words)
    assert ended.value.code == ExitStatus.USAGE


def test_settings_need_a_shared_subscription(oncecast: Command, topic: str) -> None:
    status, _, err = oncecast("sub", topic, "--by-key")
    assert (status, err) == (
        ExitStatus.USAGE,
        "oncecast: these settings are for shared subscriptions; add --shared\n",
    )


# Counts.


def test_subs_shows_the_messages_that_workers_hold(
    oncecast: Command, client: blocking.Client, topic: str
) -> None:
    oncecast("sub", topic)
    client.put_many(topic, [b"a", b"b", b"c", b"d", b"e"])
    with client.work(topic, "workers", prefetch=3) as jobs:
        first, second, third = jobs.get(), jobs.get(), jobs.get()
        assert first is not None
        assert second is not None
        assert third is not None
        first.ack()
        second.nack(delay=3600)
        third.reject("no")
        jobs.flush()
        until("the dead letter is written", lambda: view(client, topic).dead == 0 or None)
        until("two messages are held", lambda: view(client, topic).leased == 2 or None)
        status, out, _ = oncecast("subs", "lag", topic, "--subscription", "workers")
        assert (status, out) == (
            ExitStatus.OK,
            "3; workers 1; in flight 2; retries 1; dead letters 1\n",
        )
        (plain, shared) = lines(oncecast("subs", "list", topic, "--json")[1])
        if plain["subscription"] == "workers":
            plain, shared = shared, plain
        assert "in_flight" not in plain
        counts = {"workers": 1, "in_flight": 2, "retries": 1, "dead_letters": 1}
        assert shared == shared | counts | {"lag": 3, "attached": True}
        table = oncecast("subs", "list", topic)[1].splitlines()
        assert table[0].split() == [
            *("topic", "subscription", "next", "lag", "attached"),
            *("workers", "in", "flight", "retries", "dead", "letters"),
        ]


# Dead letters.


@pytest.fixture
def letters(client: blocking.Client, topic: str) -> blocking.Client:
    """Return the client. The topic has three dead letters, with the values 0, 1 and 2."""
    for n in range(3):
        client.put(topic, b"%d" % n, b"k", {"own": b"x"})
    with client.work(topic, "workers") as jobs:
        for _ in range(3):
            job = jobs.get()
            assert job is not None
            job.reject("bad")
        jobs.flush()
    done(client, topic, 3)
    return client


def test_dead_list_shows_letters(oncecast: Command, letters: blocking.Client, topic: str) -> None:
    status, out, _ = oncecast("dead", "list", topic, "--count", "2")
    assert status == ExitStatus.OK
    head, first, _, more = out.splitlines()
    assert head.split() == ["offset", "of", "message", "deliveries", "reason", "detail", "value"]
    assert first.split() == ["0", "0", "1", "rejected", "bad", "0"]
    assert more == "1 more dead letter; raise --count to list more"
    found = lines(oncecast("dead", "list", topic, "--json")[1])
    timestamp = found[1].pop("timestamp")
    assert timestamp > 0
    assert found[1] == {
        "offset": 1,
        "of_message": 1,
        "deliveries": 1,
        "reason": "rejected",
        "detail": "bad",
        "key": "k",
        "value": "1",
        "headers": {"own": "x"},
    }


def test_dead_show_prints_a_letter(oncecast: Command, letters: blocking.Client, topic: str) -> None:
    status, out, _ = oncecast("dead", "show", topic, "2")
    assert status == ExitStatus.OK
    assert out.splitlines() == [
        "offset      2",
        "of message  2",
        "deliveries  1",
        "reason      rejected",
        "detail      bad",
        "key         k",
        "header own  x",
        "",
        "2",
    ]
    assert lines(oncecast("dead", "show", topic, "2", "--json")[1])[0]["value"] == "2"
    assert oncecast("dead", "show", topic, "3")[0] == ExitStatus.USAGE


def test_dead_letters_can_be_retried_and_dropped(
    oncecast: Command, letters: blocking.Client, topic: str
) -> None:
    assert oncecast("dead", "drop", topic, "0")[:2] == (ExitStatus.OK, "1 dead letter deleted\n")
    status, out, _ = oncecast("dead", "retry", topic, "--all", "--json")
    assert (status, lines(out)[0]["count"]) == (ExitStatus.OK, 2)
    with letters.work(topic, "workers") as jobs:
        assert sorted(job.value for job in [jobs.get(), jobs.get()] if job) == [b"1", b"2"]
    assert oncecast("dead", "list", topic)[1].splitlines()[1:] == []


def test_dead_letter_commands_need_offsets_or_all(oncecast: Command, topic: str) -> None:
    for words in (("retry", topic), ("drop", topic), ("drop", topic, "1", "--all")):
        status, _, err = oncecast("dead", *words)
        assert (status, err) == (
            ExitStatus.USAGE,
            "oncecast: specify the offsets of dead letters, or --all\n",
        )
