"""PIPE-5: the tutorial in docs/spark.md runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_examples import examples
from tools.check_docs import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_tutorial_runs(
    spark: SparkSession, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "spark.md"
    monkeypatch.chdir(tmp_path)
    text = examples(page).replace("127.0.0.1:7400", address)
    text = text.replace("loud.checkpoint", str(tmp_path / "checkpoint"))
    exec(compile(text, page, "exec", dont_inherit=True), {"__name__": page.stem})
