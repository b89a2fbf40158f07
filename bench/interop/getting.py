"""Get the clients that are not Python packages of this project, into a directory of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

KAFKA = "4.0.0"  # the version of the Java client and of its tools
SPARK = "4.0.0"  # all parts of its Kafka connector are published for this version
PATIENCE = 600.0  # seconds for one installation

PROJECT = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncecast</groupId><artifactId>interop</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
TOOLS = [
    ("org.apache.kafka", "kafka-tools", KAFKA),
    ("org.apache.kafka", "kafka_2.13", KAFKA),
]
CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{SPARK}",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


class Missing(Exception):
    """A client that this machine cannot get."""


def run(*words: str) -> None:
    """Run an installer. Raise Missing with its last line if it fails."""
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{words[0]}: {error}") from None
    if ended.returncode:
        lines = (ended.stdout + ended.stderr).strip().splitlines()
        why = next((each for each in lines if "ERROR" in each or "error" in each), "no reason")
        raise Missing(f"{' '.join(words[:2])} failed: {why[:200]}")


def kcat() -> str:
    """Return the path of kcat. Install the package of Debian if it is missing."""
    found = shutil.which("kcat")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        run("apt-get", "install", "--yes", "--quiet", "kcat")
        found = shutil.which("kcat")
    if found is None:
        raise Missing("kcat is not installed; on Debian, run: apt-get install kcat")
    return found


def faststream(home: Path) -> str:
    """Return the Python of an environment that has FastStream."""
    return python_with(home, "faststream", "faststream[kafka]")


def python_with(home: Path, name: str, package: str) -> str:
    """Return the Python of an environment of its own that has a package."""
    python, ready = home / name / "bin" / "python", home / name / "ready"
    if not ready.exists():
        run(sys.executable, "-m", "venv", str(home / name))
        run(str(python), "-m", "pip", "install", "--quiet", package)
        ready.touch()
    return str(python)


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise Missing("java is not installed")
    return found


def jars(home: Path, name: str, wanted: list[tuple[str, str, str]]) -> Path:
    """Return a directory with these Java packages and all that they need."""
    directory = home / name
    ready = directory / "ready"
    if not ready.exists():
        if shutil.which("mvn") is None:
            raise Missing("mvn is not installed")
        directory.mkdir(parents=True, exist_ok=True)
        project = directory / "pom.xml"
        project.write_text(PROJECT.format("".join(DEPENDENCY.format(*each) for each in wanted)))
        goal = "dependency:copy-dependencies"
        where = f"-DoutputDirectory={directory}"
        run("mvn", "--quiet", "--batch-mode", "--file", str(project), goal, where)
        ready.touch()
    return directory


def kafka_tools(home: Path) -> str:
    """Return the class path of the Java client, its tools, and the broker."""
    return f"{jars(home, 'kafka', TOOLS)}/*"


def spark(home: Path) -> tuple[str, list[str]]:
    """Return a Python that has PySpark, and the jars of Spark's Kafka connector."""
    directory = home / "spark"
    ready = directory / "ready"
    if not ready.exists():
        if shutil.which("mvn") is None:
            raise Missing("mvn is not installed")
        # One by one: Spark's project files name a mirror that may be out of reach.
        for artifact in CONNECTOR:
            where = f"-DoutputDirectory={directory}"
            run("mvn", "--batch-mode", "dependency:copy", f"-Dartifact={artifact}", where)
        ready.touch()
    python = python_with(home, "pyspark", f"pyspark=={SPARK}")
    return python, sorted(map(str, directory.glob("*.jar")))
