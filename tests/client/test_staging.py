"""PIPE-2: parts stay invisible until they are published, and are then stored once."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncecast import EARLIEST, blocking, errors, from_offset
from oncecast.wire.batch import encode
from oncecast.wire.retention import Policy


def packed(*values: bytes) -> bytes:
    return encode(values, timestamps=0)


def values(client: blocking.Client, topic: str) -> list[bytes]:
    return [message.value for each in client.scan(topic) for message in each.messages()]


def test_parts_are_published_once_atomically_and_in_order(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", Policy(keep_all=True))
        assert client.stage("s", 0, "b", "t", 2, packed(b"3", b"4"))
        assert client.stage("s", 0, "a", "t", 2, packed(b"1", b"2"))
        assert client.stage("s", 0, "from a failed attempt", "t", 1, packed(b"x"))
        assert not client.stage("s", 0, "a", "t", 2, packed(b"1", b"2"))
        assert values(client, "t") == []
        for _ in range(2):
            (where,) = {each.topic for each in client.publish_staged("s", 0, ["a", "b"])}
            assert where == "t"
            assert values(client, "t") == [b"1", b"2", b"3", b"4"]
        assert not client.stage("s", 0, "late", "t", 1, packed(b"x"))
        assert client.close_source("s")
        assert not client.close_source("s")


def test_publishing_an_unstaged_part_is_refused(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        client.create_topic("t", Policy(keep_all=True))
        client.stage("s", 0, "a", "t", 1, packed(b"1"))
        with pytest.raises(errors.NotStaged):
            client.publish_staged("s", 0, ["a", "b"])
        assert values(client, "t") == []
        assert client.drop_staged("s", 0) == 1
        with pytest.raises(errors.NotStaged):
            client.publish_staged("s", 0, ["a"])


def test_hold_keeps_messages_from_its_offset_onwards(tmp_path: Path) -> None:
    with blocking.embedded(tmp_path) as client:
        assert client.hold("t", "s", EARLIEST) == 0
        for number in range(5):
            client.put("t", b"%d" % number)
        assert client.hold("t", "s", from_offset(3)) == 3
        assert client.hold("t", "s", from_offset(3)) == 3
        assert client.locate("t", EARLIEST).first == 3
        (view,) = client.describe("t").subscriptions
        assert (view.lag, view.attached) == (2, False)
