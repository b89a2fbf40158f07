"""The files of nodes and clients are private to their owner."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncecast.cli.cluster.local import open_log
from oncecast.client.client import Client
from oncecast.client.state import StateDirectory
from oncecast.node.config import Settings
from oncecast.node.directory import groups_in, open_directory
from oncecast.node.ring_server import RingServer
from oncecast.node.server import Server
from oncecast.storage import snapshot
from tests.client.serving import run


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    """Return the modes of a directory and its contents that are not private."""
    found = [path, *path.rglob("*")]
    assert len(found) > 1
    return {
        str(each.relative_to(path)): mode
        for each in found
        if (mode := each.stat().st_mode & 0o777) != (0o700 if each.is_dir() else 0o600)
    }


def test_node_and_client_files_are_private(tmp_path: Path) -> None:
    """SEC-4"""

    async def scenario() -> None:
        settings = Settings(data=str(tmp_path / "node"), listen="127.0.0.1:0")
        async with Server(settings) as server:
            state = str(tmp_path / "state")
            async with Client(server.me, name="ann", state=state) as client:
                await client.put("news", b"hello")

    run(scenario())
    disk = open_directory(str(tmp_path / "node"))
    snapshot.save(disk, 1, [b"state"])
    disk.close()
    assert list((tmp_path / "node").glob("*.snap"))
    assert modes(tmp_path / "node") == {}
    assert modes(tmp_path / "state") == {}


def test_ring_files_are_private(tmp_path: Path) -> None:
    """SEC-4"""

    async def scenario() -> None:
        data = str(tmp_path / "ring")
        async with RingServer(Settings(data=data, listen="127.0.0.1:0", own_group=True)):
            pass

    run(scenario())
    assert groups_in(str(tmp_path / "ring"))
    assert modes(tmp_path / "ring") == {}


def test_local_cluster_log_is_private(tmp_path: Path) -> None:
    """SEC-4"""
    with open_log(tmp_path) as log:
        assert os.fstat(log.fileno()).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o755])
def test_directory_accessible_to_other_users_is_used_with_a_warning(
    mode: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-4"""
    caplog.set_level(logging.WARNING, "oncecast")
    open_directory(str(tmp_path / "new")).close()
    StateDirectory(tmp_path / "other").close()
    assert caplog.messages == []
    for name in ("new", "other"):
        (tmp_path / name).chmod(mode)
    open_directory(str(tmp_path / "new")).close()
    StateDirectory(tmp_path / "other").close()
    new, other = caplog.messages
    assert new.startswith("directory_exposed")
    assert f"run chmod -R go= {tmp_path}/new" in new
    assert f"run chmod -R go= {tmp_path}/other" in other
