"""What a node becomes: what its directory says, or what those are whom it joins. REP-4"""

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


class Others:
    """Who is there: whether each is a process of a ring, or why it does not answer at first."""

    def __init__(self, **known: bool | None) -> None:
        self.known = {A: known.get("a"), B: known.get("b")}
        self.asked: list[str] = []

    async def is_process(self, settings: Settings, address: str) -> bool:
        self.asked.append(address)
        known = self.known[address]
        if known is None:
            self.known[address] = True
            logging.getLogger("oncecast.network").info("unreachable peer=%s", address)
            raise NotConnected(f"{address}: no answer")
        return known


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    made = Others(a=True, b=False)
    monkeypatch.setattr(joining, "is_process", made.is_process)
    monkeypatch.setattr(joining, "PAUSE", 0.0)
    return made


def of_ring(path: Path, **settings: Any) -> bool:
    return asyncio.run(joining.is_of_ring(Settings(data=str(path), **settings)))


@pytest.mark.parametrize("own_group", [False, True])
def test_who_joins_nobody_is_what_it_is_told_to_be(
    tmp_path: Path, others: Others, own_group: bool
) -> None:
    assert of_ring(tmp_path, own_group=own_group) == own_group
    assert of_ring(tmp_path, listen=A, join=A, own_group=own_group) == own_group
    assert others.asked == []


def test_who_joins_is_what_they_are_whom_it_joins(tmp_path: Path, others: Others) -> None:
    """REP-4 REP-5: a ring takes it in with a group of its own, a group as a replica."""
    assert of_ring(tmp_path, join=A)
    assert of_ring(tmp_path, join=A, own_group=True)
    assert not of_ring(tmp_path, join=B)
    with pytest.raises(BadSetting, match=f"own_group: {B} is a replica of a group"):
        of_ring(tmp_path, join=B, own_group=True)


def test_a_directory_says_what_its_node_was_and_nobody_is_asked(
    tmp_path: Path, others: Others
) -> None:
    (tmp_path / MEMBERS).touch()
    assert not of_ring(tmp_path, join=A)
    (tmp_path / MEMBERS).unlink()
    (tmp_path / RING).touch()
    assert of_ring(tmp_path, join=B)
    assert of_ring(tmp_path)
    assert others.asked == []


def test_it_waits_until_somebody_answers_and_says_for_whom(
    tmp_path: Path, others: Others, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    others.known = {A: None, B: None}
    assert of_ring(tmp_path, join=f"{A},{B}")
    assert others.asked == [A, B, A]
    assert [each.message for each in caplog.records] == [
        f'waits for={each} why="{each}: no answer"' for each in (A, B)
    ]


def test_what_is_wrong_with_itself_is_said_before_it_waits(tmp_path: Path, others: Others) -> None:
    with pytest.raises(NotAllowed):
        of_ring(tmp_path, listen="10.0.0.1:7400", join=A)
    assert others.asked == []
