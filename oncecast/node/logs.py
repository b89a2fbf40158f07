"""Format a node's log: one line per event on standard error, as text or JSON."""

from __future__ import annotations

import json
import logging
import sys

from oncecast.kernel.escaping import escaped
from oncecast.network.incidents import Line, line
from oncecast.node.config import Settings


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = record.msg if isinstance(record.msg, Line) else line("said", {})
        entry = {
            **event.facts,
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event.event,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """A formatter that escapes control characters, because tracebacks may contain peer data."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), keep="\n")


def log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = TextLines("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    root = logging.getLogger("oncecast")
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    root.propagate = False
