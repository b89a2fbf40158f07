"""The files of a node survive a power loss."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from oncecast.kernel.protocol import NodeId
from oncecast.node.directory import Members, group_path, note, recall, remove_group


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of synced files and directories, in order."""
    order: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: order.append(Path(f"/proc/self/fd/{file}").readlink())
    )
    return order


def test_saved_members_are_durable(tmp_path: Path, synced: list[Path]) -> None:
    """SVC-10: a node started with join must never create the group."""
    members = Members(NodeId("a:1"), (NodeId("a:1"), NodeId("b:1")))
    note(str(tmp_path), members)
    assert recall(str(tmp_path)) == members
    assert synced == [tmp_path / "members.tmp", tmp_path]


def test_group_is_deleted_after_its_rename_is_durable(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-10: a partly deleted directory must not appear under the old name."""
    group = Path(group_path(str(tmp_path), "g"))
    group.mkdir(parents=True)
    remove = shutil.rmtree

    def checked(path: Path) -> None:
        assert synced == [group.parent]
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", checked)
    remove_group(str(tmp_path), "g")
    assert list(group.parent.iterdir()) == []
