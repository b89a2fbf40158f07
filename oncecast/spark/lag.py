"""Report to programs and Prometheus how far a streaming query is behind its topics (OPS-1).

    listener = LagListener()
    spark.streams.addListener(listener)
    with listener.serve(9404):
        ...

A query's progress shows only the class of a Python source. The source therefore reports its lag in
the field `latestOffset`, where this module reads it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

ALL = ""  # stands for all topics of a source
BEHIND = "oncecast_spark_messages_behind"
SECONDS = "oncecast_spark_seconds_behind"
READ = "oncecast_spark_messages_read_total"
TOOK = "oncecast_spark_micro_batch_seconds"
ABOUT = {
    BEHIND: ("gauge", "Messages left to read after the last micro-batch."),
    SECONDS: ("gauge", "Age in seconds of the first message after the last micro-batch."),
    READ: ("counter", "Messages read since the listener was added."),
    TOOK: ("gauge", "Duration of the last micro-batch in seconds."),
}


class Lag(NamedTuple):
    messages: int
    seconds: float


def lag(progress: Mapping[str, Any]) -> dict[str, Lag]:
    """Return the lag of each topic after a micro-batch, and the total under the name "".

    `progress` is `query.lastProgress` or the progress of an event. If several sources read the same
    topic, the result is the largest lag.
    """
    found: dict[str, Lag] = {}
    for source in progress["sources"]:
        for topic, each in reported(source["latestOffset"]).items():
            here = Lag(each["behind"], each["seconds"])
            found[topic] = max(found.get(topic, here), here)
    return found


def reported(latest: Any) -> dict[str, Any]:
    """Return the lag that our source reported, or {} if this is another source."""
    try:
        found = json.loads(latest) if isinstance(latest, str) else latest
    except ValueError:
        return {}
    ours = isinstance(found, dict) and isinstance(found.get(ALL), dict)
    return found if ours and found[ALL].keys() == {"behind", "seconds"} else {}


class LagListener(StreamingQueryListener):
    """A listener that collects the lag of all queries in a session for Prometheus.

    With `file`, the listener writes the metrics to a file after each micro-batch, for the textfile
    collector of the node exporter.
    """

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        self._file = None if file is None else Path(file)
        self._lock = threading.Lock()
        self._samples: dict[str, dict[str, dict[str, float]]] = {}  # by run, metric and labels

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing, because a query has no metrics before its first micro-batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing, because an idle query keeps the metrics of its last micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        with self._lock:
            samples = self._samples.setdefault(str(progress.runId), {name: {} for name in ABOUT})
            alone = labels(query=query)
            rows = samples[READ].get(alone, 0) + progress.numInputRows
            samples |= {READ: {alone: rows}, TOOK: {alone: progress.batchDuration / 1e3}}
            found = {labels(query=query, topic=name): at for name, at in lag(progress).items()}
            samples[BEHIND] = {name: at.messages for name, at in found.items()}
            samples[SECONDS] = {name: at.seconds for name, at in found.items()}
        self._write()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._samples.pop(str(event.runId), None)
        self._write()

    def text(self) -> str:
        """Return all metrics in the Prometheus text format.

        The total lag has an empty `topic` label.
        """
        lines = []
        with self._lock:
            for name, (kind, about) in ABOUT.items():
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                for samples in self._samples.values():
                    lines += [f"{name}{{{each}}} {at:g}" for each, at in samples[name].items()]
        return "\n".join(lines) + "\n"

    def _write(self) -> None:
        if self._file is not None:
            fresh = self._file.with_name(f"{self._file.name}.new")
            fresh.write_text(self.text())
            fresh.replace(self._file)

    @contextmanager
    def serve(self, port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
        """Serve the metrics over HTTP, and yield their URL. Port 0 picks a free port."""
        with ThreadingHTTPServer((host, port), page(self.text)) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://{host}:{server.server_port}/metrics"
            finally:
                server.shutdown()
                thread.join()


def labels(**values: str) -> str:
    return ",".join(f'{name}="{escaped(value)}"' for name, value in values.items())


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def page(text: Any) -> type[BaseHTTPRequestHandler]:
    """Return a handler that answers each request with `text()`."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Page
