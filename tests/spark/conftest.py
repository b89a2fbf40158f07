"""A Spark session for all tests, and a node that its executors reach over TCP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncecast import blocking
from oncecast.spark.session import spark as make_spark
from tests.live.test_serve import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": "0",  # lets the system choose a free port
    }
    session = make_spark("local[2]", light=True, **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process("--data", str(tmp_path_factory.mktemp("node") / "data"))
    yield process
    assert process.end(signal.SIGTERM) == 0
    assert process.process.stderr is not None
    process.process.stderr.close()


@pytest.fixture
def address(node: Process) -> str:
    return f"127.0.0.1:{node.port}"


@pytest.fixture
def client(address: str) -> Iterator[blocking.Client]:
    with blocking.connect(address) as connected:
        yield connected


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
