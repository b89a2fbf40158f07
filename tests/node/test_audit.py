"""Test the audit file: its mode, its lines, reopening it and failed writes (SEC-4)."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from oncecast.broker.guard import Checked
from oncecast.client.client import Client
from oncecast.errors import BadSetting, OncecastError
from oncecast.kernel.protocol import NodeId
from oncecast.network.login import Attempt
from oncecast.node.audit import Audit
from oncecast.node.config import Settings
from oncecast.node.ring_server import RingServer
from oncecast.node.server import Server
from tests.client.serving import run

DENIED = Checked(NodeId("client/bob"), "bob", "Put", "put", "news", "bob")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_audit_file_is_private_and_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    for _ in range(2):
        audit = Audit(str(file), clock=lambda: 0.0)
        audit.node = "127.0.0.1:7400"
        audit.request(DENIED, "10.0.0.1:5000")
        audit.close()
    assert file.stat().st_mode & 0o777 == 0o600
    expected = {
        "time": "1970-01-01T00:00:00.000+00:00",
        "node": "127.0.0.1:7400",
        "kind": "request",
        "principal": "bob",
        "verb": "put",
        "object": "news",
        "result": "denied",
        "address": "10.0.0.1:5000",
        "request": "Put",
    }
    assert lines(file) == [expected, expected]


def test_logins_are_recorded_with_their_reason(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    audit = Audit(str(file), clock=lambda: 0.0)
    audit.login(Attempt("10.0.0.1:5000", "password", "ann", "ann.laptop"))
    audit.login(Attempt("10.0.0.1:5000", "password", "\x1b[2J\n", "", "wrong password"))
    audit.close()
    ok, failed = lines(file)
    assert (ok["kind"], ok["verb"], ok["principal"], ok["result"], ok["object"]) == (
        "login",
        "password",
        "ann",
        "ok",
        "client ann.laptop",
    )
    assert (failed["principal"], failed["result"], failed["reason"]) == (
        "\x1b[2J\n",
        "failed",
        "wrong password",
    )
    assert "\x1b" not in file.read_text()


def test_rotated_audit_file_is_reopened(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    audit = Audit(str(file))
    audit.request(DENIED, "")
    file.rename(tmp_path / "audit.1")
    audit.reopen()
    audit.request(DENIED, "")
    audit.close()
    assert len(lines(file)) == len(lines(tmp_path / "audit.1")) == 1


def test_flood_of_audit_events_is_summarized_with_a_count(tmp_path: Path) -> None:
    file, now = tmp_path / "audit", [0.0]
    audit = Audit(str(file), clock=lambda: now[0])
    for _ in range(100_000):
        audit.request(DENIED, "10.0.0.1:5000")
    now[0] = 60.0
    audit.request(DENIED, "10.0.0.1:5000")
    audit.close()
    found = lines(file)
    assert len(found) == 21
    assert found[-1]["suppressed"] == 100_000 - 20


def test_audit_events_go_to_the_log_without_a_writable_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    caplog.set_level(logging.INFO, "oncecast")
    Audit("").request(DENIED, "10.0.0.1:5000")
    (told,) = caplog.messages
    assert told.startswith("audit ")
    assert "principal=bob" in told
    caplog.clear()
    monkeypatch.setattr(os, "write", full)
    audit = Audit(str(tmp_path / "audit"))
    audit.request(DENIED, "10.0.0.1:5000")
    audit.close()
    assert [each.split()[0] for each in caplog.messages] == ["audit_failed", "audit"]
    with pytest.raises(BadSetting, match="No such file"):
        Audit(str(tmp_path / "none" / "audit"))


@pytest.mark.parametrize("kind", [Server, RingServer])
def test_node_records_changes_logins_and_denials(
    kind: type[Server] | type[RingServer], tmp_path: Path
) -> None:
    """SEC-4"""
    file = tmp_path / "audit"

    async def scenario() -> None:
        settings = Settings(
            data=str(tmp_path / "data"),
            listen="127.0.0.1:0",
            audit_file=str(file),
            own_group=kind is RingServer,
        )
        async with kind(settings) as server:
            async with Client(server.me) as client:
                await client.create_topic("news")
                await client.put("news", b"not audited")
            async with Client(server.me) as client:
                await client.access.add_user("ann", "tulip", admin=True)
            async with Client(server.me, user="ann", password="tulip") as client:
                await client.access.add_user("bob", "rose")
            async with Client(server.me, user="bob", password="rose") as client:
                with pytest.raises(OncecastError):
                    await client.delete_topic("news")
            with pytest.raises(OncecastError):
                async with Client(server.me, user="ann", password="rose", connect_timeout=2.0):
                    pass

    run(scenario())
    found = [
        tuple(each.get(name, "") for name in ("principal", "request", "object", "result"))
        for each in lines(file)
        if each["kind"] == "request"
    ]
    assert found[:3] == [
        ("", "CreateTopic", "news", "ok"),
        ("", "AddUser", "user ann", "ok"),
        ("ann", "AddUser", "user bob", "ok"),
    ]
    assert ("bob", "DeleteTopic", "news", "denied") in found
    assert {each[1] for each in found} == {"CreateTopic", "AddUser", "DeleteTopic"}
    logins = [
        (each["principal"], each["verb"], each["result"])
        for each in lines(file)
        if each["kind"] == "login"
    ]
    assert ("ann", "password", "ok") in logins
    assert ("bob", "password", "ok") in logins
    assert ("ann", "password", "failed") in logins
    assert all(each["address"].startswith("127.0.0.1:") for each in lines(file))
