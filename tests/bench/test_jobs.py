"""A small run of `bench.jobs`: nodes and workers are killed, and each job has its effect once."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench.jobs.__main__ import is_good, run, show
from bench.jobs.planted import PLANTS
from tests.spark.audit_here import audited


def audit(traces: list[Path]) -> dict[str, Any]:
    """Audit traces without Spark."""
    files = {path.name: path.read_bytes() for path in traces}
    faults = audited(files)
    lines = sum(text.count(b"\n") for text in files.values())
    return {"faults": [each.fields() for each in faults], "lines": lines}


@pytest.mark.long
def test_each_job_has_its_effect_once_although_nodes_and_workers_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """WRK-1 WRK-2 WRK-3 PIPE-4: the audit finds no fault, and names each planted one."""
    options = argparse.Namespace(
        jobs=1500,
        workers=3,
        every=1.0,
        seconds=3.0,
        node_kills=1,
        worker_kills=2,
        seed=1,
        directory=tmp_path,
    )
    report = run(options, audit)
    assert is_good(report), json.dumps(report, indent=1)
    assert report["effects"] + report["dead_letters"] == 1500
    assert report["dead_letters"] == 1  # the job that cannot be done
    assert report["node_kills"] == 1
    assert 1 <= report["kills"] <= 2
    assert len(report["planted"]) == len(PLANTS)
    show(report)
    assert f"planted faults     {len(PLANTS)} of {len(PLANTS)} named" in capsys.readouterr().out
