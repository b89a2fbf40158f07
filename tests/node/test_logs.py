"""Test the JSON log of a node."""

from __future__ import annotations

import json
import logging

from oncecast.network.incidents import line
from oncecast.node.logs import JsonLines


def entry(message: str) -> dict[str, object]:
    record = logging.makeLogRecord({"msg": message, "name": "oncecast.node", "levelname": "INFO"})
    found: dict[str, object] = json.loads(JsonLines().format(record))
    del found["time"]
    return found


def test_log_fields_become_json_keys_and_numbers_stay_numbers() -> None:
    assert entry(line("slow", {"peer": "a b", "bytes": 7, "why": ValueError("%s")})) == {
        "peer": "a b",
        "bytes": 7,
        "why": "%s",
        "level": "info",
        "logger": "oncecast.node",
        "event": "slow",
        "message": 'slow peer="a b" bytes=7 why=%s',
    }


def test_log_fields_cannot_replace_standard_keys() -> None:
    assert entry(line("stopped", {"level": "none", "event": "other"})) == {
        "level": "info",
        "logger": "oncecast.node",
        "event": "stopped",
        "message": "stopped level=none event=other",
    }
