"""PIPE-4: run the examples in docs/tables.md."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_examples import examples
from tests.live.test_serve import Process
from tools.check_docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_table_examples_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "tables.md"
    monkeypatch.chdir(tmp_path)
    node = Process("--data", str(tmp_path / "data"))
    text = examples(page).replace("127.0.0.1:7400", f"127.0.0.1:{node.port}")
    exec(compile(text, page, "exec", dont_inherit=True), {"__name__": page.stem})
    assert node.end(signal.SIGTERM) == 0
    assert node.process.stderr is not None
    node.process.stderr.close()
