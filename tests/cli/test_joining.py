"""REP-4: the data directory or the peers decide whether a node joins a group or a ring."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli.serve import joining
from oncecast.errors import BadSetting, NotAllowed, NotConnected
from oncecast.node.config import Settings
from oncecast.node.directory import MEMBERS, RING

A, B = "127.0.0.1:1", "127.0.0.1:2"


class Peers:
    """Peers that are ring processes (True), replicas (False) or silent at first (None)."""

    def __init__(self, **known: bool | None) -> None:
        self.known = {A: known.get("a"), B: known.get("b")}
        self.asked: list[str] = []

    async def is_process(self, settings: Settings, address: str) -> bool:
        self.asked.append(address)
        known = self.known[address]
        if known is None:
            self.known[address] = True
            logging.getLogger("oncecast.network").info("unreachable peer=%s", address)
            raise NotConnected(f"{address}: no answer", refused=False)
        return known


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Peers:
    made = Peers(a=True, b=False)
    monkeypatch.setattr(joining, "is_process", made.is_process)
    monkeypatch.setattr(joining, "PAUSE", 0.0)
    return made


def of_ring(path: Path, **settings: Any) -> bool:
    return asyncio.run(joining.is_of_ring(Settings(data=str(path), **settings)))


@pytest.mark.parametrize("own_group", [False, True])
def test_node_without_peers_starts_a_ring_only_if_own_group_is_set(
    tmp_path: Path, peers: Peers, own_group: bool
) -> None:
    assert of_ring(tmp_path, own_group=own_group) == own_group
    assert of_ring(tmp_path, listen=A, join=A, own_group=own_group) == own_group
    assert peers.asked == []


def test_joining_node_takes_the_same_role_as_its_peers(tmp_path: Path, peers: Peers) -> None:
    """REP-4 REP-5: in a ring, the node gets its own group. In a group, it becomes a replica."""
    assert of_ring(tmp_path, join=A)
    assert of_ring(tmp_path, join=A, own_group=True)
    assert not of_ring(tmp_path, join=B)
    with pytest.raises(BadSetting, match=f"own_group: {B} is a replica of a group"):
        of_ring(tmp_path, join=B, own_group=True)


def test_restarted_node_uses_its_directory_without_asking_peers(
    tmp_path: Path, peers: Peers
) -> None:
    (tmp_path / MEMBERS).touch()
    assert not of_ring(tmp_path, join=A)
    (tmp_path / MEMBERS).unlink()
    (tmp_path / RING).touch()
    assert of_ring(tmp_path, join=B)
    assert of_ring(tmp_path)
    assert peers.asked == []


def test_node_waits_for_an_answer_and_logs_each_reason_once(
    tmp_path: Path, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    peers.known = {A: None, B: None}
    assert of_ring(tmp_path, join=f"{A},{B}")
    assert peers.asked == [A, B, A]
    assert [each.message for each in caplog.records] == [
        f'waits for={each} why="{each}: no answer"' for each in (A, B)
    ]


def test_invalid_settings_are_reported_before_the_node_waits(tmp_path: Path, peers: Peers) -> None:
    with pytest.raises(NotAllowed):
        of_ring(tmp_path, listen="10.0.0.1:7400", join=A)
    assert peers.asked == []
