"""Test the commands for topics with partitions (PART-1, PART-2)."""

from __future__ import annotations

import json

import pytest

from oncecast.errors import ExitStatus
from oncecast.wire.partitions import partition_for_key
from tests.live.conftest import Command

pytestmark = pytest.mark.long


def test_commands_show_a_topic_with_partitions_once(oncecast: Command) -> None:
    """PART-1 PART-2"""
    oncecast("topic", "create", "plain")
    assert "partitions" not in oncecast("topic", "list")[1]
    create = ("topic", "create", "orders", "--keep-all")
    created = "orders: created with 4 partitions, keeps all messages\n"
    assert oncecast(*create, "--partitions", "4") == (ExitStatus.OK, created, "")
    assert oncecast(*create, "--partitions", "3")[0] == ExitStatus.FAILURE
    assert oncecast("sub", "orders", "--subscription", "g", "--start", "earliest")[0] == 0
    where = partition_for_key(b"tea", 4)
    put = ("put", "orders", "--key", "tea", "hello", "again")
    assert oncecast(*put) == (0, f"{where}:0\n{where}:1\n", "")
    assert oncecast("subs", "lag", "orders", "--subscription", "g") == (0, "2\n", "")
    status, out, _ = oncecast("get", "orders", "--subscription", "g", "--json", "-n", "2")
    found = [json.loads(line) for line in out.splitlines()]
    assert status == ExitStatus.OK
    assert [(each["topic"], each["partition"], each["offset"]) for each in found] == [
        ("orders", where, 0),
        ("orders", where, 1),
    ]
    assert oncecast("subs", "lag", "orders", "--subscription", "g")[1] == "0\n"
    assert oncecast("topic", "set", "orders", "--partitions", "6")[1] == (
        "orders: 6 partitions, keeps all messages\n"
    )
    assert oncecast("topic", "set", "orders", "--partitions", "5")[0] == ExitStatus.USAGE
    lines = oncecast("topic", "list")[1].splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["topic", "partitions", "messages"],
        ["orders", "6", "2"],
        ["plain", "0", "0"],
    ]
    described = oncecast("topic", "describe", "orders")[1]
    assert "partitions 6" in described
    assert described.splitlines()[-6:][where].split()[:3] == [str(where), "2", "2"]
    facts = json.loads(oncecast("topic", "describe", "orders", "--json")[1])
    assert (facts["partitions"], facts["subscriptions"][0]["holders"]) == (6, [""] * 6)
    seek = ("subs", "seek", "orders", "--subscription", "g", "earliest")
    assert oncecast(*seek)[0] == ExitStatus.OK
    assert oncecast("subs", "lag", "orders", "--subscription", "g")[1] == "2\n"
    assert oncecast("unsub", "orders", "--subscription", "g")[0] == ExitStatus.OK
    assert oncecast("work", "orders", "--subscription", "w", "true")[0] == ExitStatus.NOT_ALLOWED
    assert oncecast("topic", "delete", "orders", "--yes")[0] == ExitStatus.OK
    assert oncecast("topic", "list", "--json")[1].count("\n") == 1
