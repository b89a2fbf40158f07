"""PIPE-6: jobs run over Spark Connect, from a client without Java.

The server comes from the pyspark package and runs in the JVM of the test session.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkImportError

from oncecast import Policy, blocking
from oncecast.errors import NoSpark
from oncecast.spark.session import connected
from oncecast.spark.session import spark as make_spark
from tests.spark.archive_kills import held, seen
from tests.spark.test_spark import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


def run(spark: SparkSession, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a Spark Connect server as its master, and without Java."""
    port = getattr(getattr(spark._jvm, CONNECT), "MODULE$").localPort()
    command = [sys.executable, "-m", "oncecast", *words, "--master", f"sc://127.0.0.1:{port}"]
    env = os.environ | {"JAVA_HOME": "/nonexistent"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_archive_runs_over_spark_connect(
    spark: SparkSession, client: blocking.Client, address: str, tmp_path: Path
) -> None:
    client.create_topic("connected", Policy(keep_all=True))
    client.put_many("connected", [b"%d" % number for number in range(50)])
    words = ["pipeline", "run", "archive", "--server", address, "--topics", "connected"]
    words += ["--format", "delta", "--batch", "25", "--compact", "--json", str(tmp_path)]
    done = run(spark, *words)
    assert (done.returncode, done.stderr) == (0, "oncecast: starting Spark\n")
    assert json.loads(done.stdout) == {"archived": 50, "compacted": 2}
    assert held(seen("delta", tmp_path)) == {("connected", offset): 1 for offset in range(50)}


def test_sweep_runs_over_spark_connect(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "outcomes")
    done = run(
        spark, "sim", "sweep", "shuffle", "--nodes", "5", "--seeds", "0..3", "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    [size] = json.loads(done.stdout)["sizes"]
    assert (size["seeds"], size["failed"]) == (4, 0)
    assert spark.read.parquet(out).count() == 4


def test_missing_spark_connect_server_is_reported() -> None:
    """SVC-7"""
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(NoSpark, match=rf"no Spark Connect server answers at sc://127.0.0.1:{port}"):
        make_spark(f"sc://127.0.0.1:{port}")


def test_missing_packages_are_reported_with_the_extra() -> None:
    """SVC-7"""

    class Builder:
        def remote(self, master: str) -> None:
            raise PySparkImportError("grpcio is missing")

    builder: Any = Builder()
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        pytest.raises(NoSpark, match=r'pip install "oncecast\[connect\]"'),
    ):
        connected(builder, f"sc://127.0.0.1:{server.getsockname()[1]}/;user_id=x")
