"""An embedded node reports damaged directories and failed disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oncecast import blocking, errors


def test_damaged_directory_is_reported_on_every_start(
    tmp_path: Path,
) -> None:
    with blocking.embedded(tmp_path) as client:
        client.subscribe("t", "s")
        client.put_many("t", [bytes(30_000)])
        client.put_many("t", [bytes(30_000)])
    with (tmp_path / "00000001.log").open("r+b") as log:
        log.seek(20_000)
        log.write(b"damage")
    for _ in range(2):
        with (
            pytest.raises(errors.StateUnusable, match=r"cannot be read.*oncecast log verify"),
            blocking.embedded(tmp_path),
        ):
            pass


def test_disk_failure_on_the_node_fails_all_pending_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-10: the node stops, and no call waits forever."""

    def failing(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with (
        # Closing the client raises it again.
        pytest.raises(errors.StateUnusable, match="fsync failed"),
        blocking.embedded(tmp_path) as client,
    ):
        sub = client.subscribe("t", "s")
        client.put("t", b"stored")
        monkeypatch.setattr(os, "fdatasync", failing)
        for ask in (lambda: client.put("t", b"lost"), lambda: client.describe("t"), sub.flush):
            with pytest.raises(errors.StateUnusable, match="fsync failed"):
                ask()
    monkeypatch.undo()
    with blocking.embedded(tmp_path) as client:
        message = client.read("t", "s").get(timeout=0)
        assert message is not None
        assert message.value == b"stored"
