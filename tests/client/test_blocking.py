"""The blocking client has the interface of the async client, without an event loop."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import oncecast
from oncecast import blocking, errors

ONLY_ASYNC = {"hurry", "wait_for_space"}
OF_TRANSACTIONS = {"claim", "give_back", "resolve", "transacted"}


def public(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (oncecast.Client, blocking.Client, ONLY_ASYNC),
        (
            oncecast.Subscription,
            blocking.Subscription,
            OF_TRANSACTIONS
            | {"arrived", "ended", "fail", "positioned", "ready", "skipped", "take_arrived"},
        ),
        (
            oncecast.SharedSubscription,
            blocking.SharedSubscription,
            OF_TRANSACTIONS | {"ended", "expired", "fail", "given", "lost", "settle"},
        ),
        (oncecast.Transaction, blocking.Transaction, set()),
        (oncecast.DeadLetters, blocking.DeadLetters, set()),
    ],
)
def test_blocking_and_async_clients_have_the_same_methods(
    one: type, other: type, apart: set[str]
) -> None:
    wanted = {name: reported for name, reported in public(one).items() if name not in apart}
    found = {name: reported for name, reported in public(other).items() if name not in apart}
    assert found == wanted


def test_last_message_is_redelivered_after_close_without_ack(
    tmp_path: Path,
) -> None:
    client = blocking.embedded(tmp_path).__enter__()
    topic = client.subscribe("t", "s")
    client.put("t", b"once more")
    assert client.led
    first = topic.get()
    client.close(ack=False)
    with blocking.embedded(tmp_path) as client:
        again = client.subscribe("t", "s").get(timeout=0)
    assert first is not None
    assert again is not None
    assert (again.value, again.offset, again.redelivered) == (first.value, first.offset, True)


def test_blocking_client_puts_and_gets_without_an_event_loop(tmp_path: Path) -> None:
    """SVC-1 SVC-12"""
    with blocking.embedded(tmp_path) as client:
        topic = client.subscribe("t")
        assert client.put("t", b"0", key=b"k") == (0, True)
        for number in range(1, 30_000):
            client.put_nowait("t", b"%d" % number)
        client.flush()
        assert client.put_many("t", [b"30000", b"30001"]) == (30_001, True)
        numbers = []
        for message in topic:
            numbers.append(int(message.value))
            if len(numbers) == 30_002:
                break
        assert numbers == list(range(30_002))
        assert topic.get(timeout=0) is None
        assert topic.get_many(3, timeout=0.01) == []
        assert [view.name for view in client.topics()] == ["t"]
        assert client.describe("t").next == 30_002


def test_blocking_client_acks_nacks_seeks_and_closes(tmp_path: Path) -> None:
    """SVC-3"""
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", oncecast.Policy(keep_all=True))
        with client.subscribe("t", "s", auto_ack=False) as topic:
            client.put_many("t", [b"0", b"1", b"2"])
            first, second = topic.get(), topic.get()
            assert first is not None
            assert second is not None
            topic.ack(first)
            topic.nack(second)
            again = topic.get()
            assert again is not None
            assert (again.offset, again.redelivered) == (1, True)
            topic.flush()
            assert client.describe("t").subscriptions[0].cursor == 1
            topic.seek(oncecast.EARLIEST)
            assert [message.offset for message in topic.get_many(5)] == [0, 1, 2]
        assert client.read("t", "s").get_many(1)[0].offset == 0
        assert client.seek("t", "s", oncecast.NEW) == 3
        assert client.unsubscribe("t", "s")
        assert client.delete_topic("t")


def test_blocking_client_raises_the_same_errors_as_the_async_client(tmp_path: Path) -> None:
    """SVC-7"""
    with blocking.embedded(tmp_path) as client:
        with pytest.raises(errors.NotSubscribed):
            client.put("t", b"x")
            client.get("t")
        client.put_nowait("", b"x")
        with pytest.raises(errors.InvalidTopic):
            client.flush()
        client.flush()
    with pytest.raises(errors.Closed):
        client.put("t", b"x")
    with pytest.raises(errors.NotConnected), blocking.connect("127.0.0.1:1", connect_timeout=0.0):
        pass


def test_every_call_on_an_unopened_client_raises_closed(tmp_path: Path) -> None:
    """SVC-7"""
    client = blocking.connect()
    asks: list[Callable[[], object]] = [
        lambda: client.name,
        lambda: client.put("t", b"x"),
        lambda: client.put_nowait("t", b"x"),
        lambda: client.subscribe("t"),
        lambda: client.topics(),
        client.ping,
    ]
    for ask in asks:
        with pytest.raises(errors.Closed, match="use it in `with`"):
            ask()
    client.close()


def test_threads_can_share_a_client(tmp_path: Path) -> None:
    """SVC-2"""
    with blocking.embedded(tmp_path) as client:
        topic = client.subscribe("t")

        def put(name: int) -> None:
            for number in range(200):
                client.put_nowait("t", b"%d %d" % (name, number))
            client.put("t", b"%d %d" % (name, 200))

        threads = [threading.Thread(target=put, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen: dict[int, int] = {}
        for message in topic.get_many(804):
            name, number = map(int, message.value.split())
            assert number == seen.get(name, -1) + 1
            seen[name] = number
        assert seen == dict.fromkeys(range(4), 200)


def test_unknown_option_is_refused_before_a_node_starts(tmp_path: Path) -> None:
    """SVC-7"""
    with pytest.raises(TypeError, match="foo"):
        blocking.connect(foo=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="foo"):
        blocking.embedded(tmp_path / "node", foo=1)  # type: ignore[call-arg]
    assert not (tmp_path / "node").exists()
