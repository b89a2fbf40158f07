"""Invalid and impossible requests raise a clear error, and the client continues."""

from __future__ import annotations

import re
from math import nan
from pathlib import Path
from typing import Any, cast

import pytest

import oncecast
from oncecast import Policy, errors
from oncecast.client import putting
from oncecast.client.arguments import check_topic
from tests.client.serving import run, serving


async def seek_far(client: oncecast.Client) -> None:
    topic = await client.subscribe("far")
    await topic.seek(oncecast.from_offset(2**70))


async def seek_by_name(client: oncecast.Client) -> None:
    topic = await client.subscribe("far")
    await topic.seek("earliest")  # type: ignore[arg-type]


async def nack_text(client: oncecast.Client) -> None:
    topic = await client.subscribe("far")
    topic.nack("x")  # type: ignore[arg-type]


REFUSED: dict[str, tuple[type[errors.OncecastError], Any]] = {
    "empty topic": (errors.InvalidTopic, lambda client: client.put("", b"x")),
    "long topic": (errors.InvalidTopic, lambda client: client.put("x" * 256, b"x")),
    "topic with a surrogate": (errors.InvalidTopic, lambda client: client.subscribe("\ud800")),
    "empty subscription": (errors.InvalidName, lambda client: client.subscribe("t", "")),
    "large message": (
        errors.PayloadTooLarge,
        lambda client: client.put("t", bytes(putting.PAYLOAD_BYTES_MAX + 1)),
    ),
    "large key": (errors.PayloadTooLarge, lambda client: client.put("t", b"x", key=bytes(70_000))),
    "unknown topic": (errors.NoSuchTopic, lambda client: client.describe("nowhere")),
    "read of an unknown topic": (errors.NoSuchTopic, lambda client: client.get("nowhere")),
    "invalid policy": (
        errors.InvalidArgument,
        lambda client: client.create_topic("t", oncecast.Policy(drop_unread=True)),
    ),
    "prefix with a surrogate": (
        errors.InvalidArgument,
        lambda client: anext(client.topics("\ud800")),
    ),
    "start at a 70-bit offset": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", start=oncecast.from_offset(2**70)),
    ),
    "time out of range": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time(1e30)),
    ),
    "seek to a 70-bit offset": (errors.InvalidArgument, seek_far),
    "negative offset": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_offset(-1)),
    ),
    "a 70-bit start_at": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at=2**70),
    ),
    "seek to a name": (errors.InvalidArgument, seek_by_name),
    "start_at as text": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at="5"),
    ),
    "negative start_at": (
        errors.InvalidArgument,
        lambda client: client.subscribe("t", "s", start_at=-3),
    ),
    "time in microseconds": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time(1_700_000_000_000_000)),
    ),
    "time as text": (
        errors.InvalidArgument,
        lambda client: client.seek("t", "s", oncecast.from_time("now")),  # type: ignore[arg-type]
    ),
    "fractional age": (
        errors.InvalidArgument,
        lambda client: client.create_topic("t", oncecast.Policy(age_us=1.5)),  # type: ignore[arg-type]
    ),
    "nack a string": (errors.InvalidArgument, nack_text),
    "no topic": (errors.InvalidTopic, lambda client: client.put(None, b"x")),
    "topic as bytes": (errors.InvalidTopic, lambda client: client.subscribe(b"t")),
    "subscription as a number": (errors.InvalidName, lambda client: client.read("t", 5)),
    "offset beyond the end": (
        errors.OutOfRange,
        lambda client: client.subscribe("t", "s", start_at=7),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_raises_a_clear_error_and_the_client_stays_usable(
    case: str, tmp_path: Path
) -> None:
    """SVC-7"""
    kind, ask = REFUSED[case]

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            with pytest.raises(kind) as caught:
                await ask(client)
            assert caught.value.code in kind.code
            topic = await client.subscribe("fine")
            await client.put("fine", b"x")
            assert await topic.get() is not None

    run(scenario())


def test_put_nowait_refuses_an_invalid_message(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            with pytest.raises(TypeError):
                client.put_nowait("t", "text")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="headers"):
                client.put_nowait("t", b"x", None, [("h", b"v")])  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="header name"):
                client.put_nowait("t", b"x", None, {1: b"v"})  # type: ignore[dict-item]
            with pytest.raises(errors.PayloadTooLarge):
                client.put_nowait("t", bytes(putting.PAYLOAD_BYTES_MAX + 1))
            with pytest.raises(errors.InvalidTopic):
                client.put_nowait("", b"x")
            client.put_nowait("t", b"x")
            await client.flush()
            assert (await client.describe("t")).next == 1

    run(scenario())


def test_full_buffer_refuses_put_nowait_and_lets_put_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7"""
    monkeypatch.setattr(putting, "BUFFER_BYTES", 1000)

    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            topic = await client.subscribe("t")
            client.put_nowait("t", bytes(putting.CUT_BYTES))
            with pytest.raises(errors.Overloaded):
                client.put_nowait("t", b"x")
            await client.put("t", b"y")
            await client.flush()
            assert len(await topic.get_many(10)) >= 1
            assert (await client.describe("t")).next == 2

    run(scenario())


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "topic name is empty"),
        ("x" * 256, "topic name is 256 bytes long (limit 255)"),
        ("\ud800", r"topic name '\ud800' is not valid Unicode"),
        (7, "topic name is 7, not a str"),
    ],
)
def test_error_explains_why_a_topic_name_is_invalid(name: object, fault: str) -> None:
    """SVC-8"""
    with pytest.raises(errors.InvalidTopic) as refused:
        check_topic(name)
    assert str(refused.value) == f"{fault}; use 1 to 255 bytes of UTF-8"


def test_empty_or_long_client_name_is_refused() -> None:
    """SVC-7 SVC-8: a client without a name omits the option."""
    for name in ("", "x" * 256):
        with pytest.raises(errors.InvalidName, match="client"):
            oncecast.connect(name=name)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"address": 7400}, "address is 7400; use a str"),
        ({"timeout": "5"}, "timeout is '5'; use 0 or a positive number of seconds"),
        ({"timeout": nan}, "timeout is nan"),
        ({"connect_timeout": -1.0}, "connect_timeout is -1.0"),
        ({"busy_poll": -1.0}, "busy_poll is -1.0"),
    ],
)
def test_error_names_the_invalid_option(options: dict[str, Any], fact: str) -> None:
    """SVC-7"""
    with pytest.raises(errors.InvalidArgument, match=fact):
        oncecast.connect(**options)


def test_error_names_the_argument_with_the_wrong_type(tmp_path: Path) -> None:
    """SVC-7"""
    wrong: Any = "x"

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            for call, name in (
                (client.create_topic("t", Policy(age_us=wrong)), "age_us"),
                (client.subscribe("t", start_at=wrong), "start_at"),
                (client.remove_replica(cast("str", 5)), "remove"),
            ):
                with pytest.raises(errors.InvalidArgument, match=f"^{name}: expected `"):
                    await call
            with pytest.raises(
                errors.InvalidArgument, match="the password is of type int; use a str"
            ):
                await client.access.add_user("ann", cast("str", 5), admin=True)

    run(scenario())


def test_error_names_the_timeout_or_count_with_the_wrong_type(tmp_path: Path) -> None:
    """SVC-7"""
    wrong: Any = "x"

    async def scenario() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            news = await client.subscribe("news", "ann")
            assert repr(news) == "<Subscription 'ann' of topic 'news'>"
            for call in (news.get(wrong), news.get(nan), news.get_many(1, wrong)):
                with pytest.raises(errors.InvalidArgument, match=r"timeout is .*; use a number"):
                    await call
            for put in (
                client.put("news", b"", None, None, wrong),
                client.put_many("news", [], wrong),
            ):
                with pytest.raises(errors.InvalidArgument, match="timeout is 'x'; use a number"):
                    await put
            assert await news.get(0) is None  # nothing was put
            with pytest.raises(errors.InvalidArgument, match="count is 'x'; request at least"):
                await news.get_many(wrong)

    run(scenario())


def test_unreachable_node_raises_not_connected(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            pass
        with pytest.raises(errors.NotConnected, match=node):
            async with oncecast.connect(node, connect_timeout=0.01):
                pass

    run(scenario())


def test_client_from_another_cluster_is_refused(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        async with serving(tmp_path) as node:
            with pytest.raises(errors.NotConnected, match="cluster 'other'"):
                async with oncecast.connect(node, cluster="other"):
                    pass

    run(scenario())


def test_closed_client_raises_closed(tmp_path: Path) -> None:
    """SVC-7"""

    async def scenario() -> None:
        client = oncecast.connect()
        with pytest.raises(errors.Closed):
            await client.put("t", b"x")
        with pytest.raises(errors.Closed):
            client.put_nowait("t", b"x")
        async with serving(tmp_path) as node, oncecast.connect(node) as client:
            topic = await client.subscribe("t")
        for ask in (client.put("t", b"x"), client.flush(), topic.get(), client.ping()):
            with pytest.raises(errors.Closed):
                await ask

    run(scenario())


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("start is 'earliest'; use NEW, EARLIEST,", lambda c: c.subscribe("t", start="earliest")),
        ("start is 3; use NEW, EARLIEST,", lambda c: c.create_subscription("t", "s", start=3)),
        ("start is 'end'; use NEW, EARLIEST,", lambda c: c.seek("t", "s", "end")),
        ("start is 'earliest'; use NEW, EARLIEST,", seek_by_name),
        ("policy is 'all'; use oncecast.Policy", lambda c: c.create_topic("t", "all")),
        ("policy is None; use oncecast.Policy", lambda c: c.set_policy("t", None)),
    ],
)
def test_error_names_the_valid_values_of_start_and_policy(
    text: str, ask: Any, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with oncecast.embedded(tmp_path) as client:
            with pytest.raises(errors.InvalidArgument, match=re.escape(text)):
                await ask(client)

    run(scenario())


def test_tls_argument_with_the_wrong_type_is_rejected_before_connecting() -> None:
    with pytest.raises(errors.InvalidArgument, match="tls is True; use oncecast"):
        oncecast.connect(tls=True)  # type: ignore[arg-type]
