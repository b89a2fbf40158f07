"""Build the release files twice and compare them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.dist import digests, main


@pytest.mark.long
def test_release_files_are_reproducible_and_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OPS-4"""
    assert main([str(tmp_path)]) == 0
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums == capsys.readouterr().out
    found = digests(tmp_path)
    del found["SHA256SUMS"]
    assert sums == "".join(f"{digest}  {name}\n" for name, digest in found.items())
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    names = ZipFile(wheel).namelist()
    assert "oncecast/__main__.py" in names
    assert not [each for each in names if each.startswith(("tests/", "tools/"))]
    with tarfile.open(archive) as source:
        files = {each.partition("/")[2] for each in source.getnames()}
    assert {"deploy/Dockerfile", "docs/index.md", "tests/test_dist.py"} <= files
