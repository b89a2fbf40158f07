"""A node in this process: what its directory holds decides whether it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncecast import blocking, errors


def test_a_damaged_directory_is_named_each_time_though_the_node_has_another_address(
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
