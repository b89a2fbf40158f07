"""The options of the Spark source, parsed once on the driver.

Options that mean the same in Spark's Kafka connector have the same names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.errors import BadOption
from oncecast.spark.options import ADDRESS, SECONDS, Node, Option, flag, parse, positive, text
from oncecast.wire.commands import FromTime, Start
from oncecast.wire.partitions import MARK

Ends = Start | dict[str, Start]  # one position for all topics, or one per topic
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "producer": "string",
    "sequence": "bigint",
}
HEADER_MAP = "map<string,binary>"
HEADER_ARRAY = "array<struct<key:string,value:binary>>"
HEADERS = {"false": None, "true": HEADER_MAP, "array": HEADER_ARRAY}
TYPES = {
    **{name: (kind,) for name, kind in COLUMNS.items()},
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": (HEADER_MAP, HEADER_ARRAY),
    "partition": ("int",),
}
UNITS = {"ms": 0.001, **SECONDS}


class Span(NamedTuple):
    """The numbers from `low` up to but excluding `high`. None means no limit."""

    low: int | None = None
    high: int | None = None

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, int)
        low, high = self
        return (low is None or low <= value) and (high is None or value < high)


# Parsers of option values.


def names(value: str) -> tuple[str, ...]:
    return tuple(text(each) for each in value.split(","))


def pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text(value)


def by_topic(value: str, example: str) -> dict[str, int]:
    """Return the numbers in a JSON object by topic.

    As in Kafka options, numbers may be nested under partitions. "0" alone means the topic itself,
    because a plain topic is like one partition.
    """
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    flat: dict[str, Any] = {}
    for topic, number in found.items() if isinstance(found, dict) else ():
        if not isinstance(number, dict):
            flat[topic] = number
        elif set(number) == {"0"}:
            flat[topic] = number["0"]
        else:
            flat |= {f"{topic}{MARK}{partition}": each for partition, each in number.items()}
    if not isinstance(found, dict) or not all(type(each) is int for each in flat.values()):
        raise ValueError(f"use {example}")
    return flat


def ends(value: str) -> Ends:
    """Parse `earliest`, `latest`, or JSON offsets by topic, where -2 is earliest and -1 latest."""
    if value.strip().lower() in ("earliest", "latest"):
        return EARLIEST if value.strip().lower() == "earliest" else NEW
    found = by_topic(value, 'earliest, latest, or offsets such as {"topic": 17}')
    return {topic: by_number(offset) for topic, offset in found.items()}


def by_number(offset: int) -> Start:
    if offset < -2:
        raise ValueError(f"offset {offset} is too low (minimum 0; -2 is earliest, -1 latest)")
    return {-2: EARLIEST, -1: NEW}.get(offset) or from_offset(offset)


def moment(value: str) -> Start:
    """Parse a start time in milliseconds since 1970, as in Spark's Kafka source."""
    if not re.fullmatch(r"\d{1,14}", value.strip()):
        raise ValueError("use milliseconds since 1970")
    return from_time(int(value) / 1e3)


def moments(value: str) -> dict[str, Start]:
    found = by_topic(value, 'milliseconds since 1970, such as {"topic": 1700000000000}')
    return {topic: moment(str(time)) for topic, time in found.items()}


def one_of(*choices: str) -> Callable[[str], str]:
    def parse_choice(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(f"use {' or '.join(choices)}")
        return value.strip().lower()

    return parse_choice


def seconds(value: str) -> float:
    """Return a duration such as 15m in seconds."""
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|h|d)", value.strip())
    if found is None:
        raise ValueError("use a number with a unit: ms, s, m, h or d")
    return int(found[1]) * UNITS[found[2]]


def columns(value: str) -> tuple[str, ...]:
    found = names(value)
    for each in found:
        if each not in TYPES:
            raise ValueError(f"column {each!r} does not exist; choose from {', '.join(TYPES)}")
    return found


SOURCE = [
    *ADDRESS,
    Option(
        "topics", names, None, "topic names separated by commas; alternatively, set `topicPattern`"
    ),
    Option(
        "topicPattern", pattern, None, "regular expression that must match the whole topic name"
    ),
    Option("archive", text, None, "directory of an archive with earlier messages"),
    Option("startingOffsets", ends, None, "`earliest`, `latest`, or JSON with offsets"),
    Option(
        "startingTimestamp",
        moment,
        None,
        "start time in milliseconds since 1970, instead of `startingOffsets`",
    ),
    Option(
        "startingOffsetsByTimestamp",
        moments,
        None,
        "JSON object with the start time of each topic in milliseconds since 1970",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("latest", "error"),
        "latest",
        "`latest`, or `error` to fail if a topic has no message since its starting time",
    ),
    Option("endingOffsets", ends, None, "batch only: `latest`, or JSON with offsets"),
    Option("endingTimestamp", moment, None, "batch only: end time in milliseconds since 1970"),
    Option(
        "endingOffsetsByTimestamp",
        moments,
        None,
        "batch only: JSON object with the end time of each topic in milliseconds since 1970",
    ),
    Option(
        "timestampType",
        one_of("append", "message"),
        "append",
        "meaning of the start and end times: `append`, or `message` for the column `timestamp`",
    ),
    Option(
        "maxOffsetsPerTrigger",
        positive,
        None,
        "streaming only: maximum number of messages per micro-batch",
    ),
    Option(
        "minOffsetsPerTrigger",
        positive,
        None,
        "streaming only: minimum number of messages per micro-batch",
    ),
    Option(
        "maxTriggerDelay",
        seconds,
        "15m",
        "maximum time that `minOffsetsPerTrigger` delays a micro-batch",
    ),
    Option(
        "minPartitions", positive, None, "minimum number of tasks, unless there are fewer messages"
    ),
    Option("maxRecordsPerPartition", positive, None, "maximum number of messages per task"),
    Option("columns", columns, None, "names of the columns to read, separated by commas"),
    Option(
        "includeHeaders", one_of(*HEADERS), "false", "`true` or `array`: add the column `headers`"
    ),
    Option(
        "failOnDataLoss",
        flag,
        "true",
        "fail the query if messages were deleted, instead of skipping them",
    ),
    Option(
        "subscription",
        text,
        None,
        "streaming only: subscription that keeps messages until Spark commits",
    ),
]
ALIASES = {"topic": "topics", "subscribe": "topics", "subscribepattern": "topicpattern"}
ONE_OF = (
    ("topics", "topicPattern"),
    ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
)
OF_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "subscription")
NO_TABLES = "Spark does not pass the options of CREATE TABLE to a Python data source"
VIEWS = "use CREATE TEMPORARY VIEW name USING oncecast OPTIONS (...)"


def renamed(given: Mapping[str, str]) -> dict[str, str]:
    """Replace Kafka option names with this source's names.

    Raise BadOption if two options have the same meaning.
    """
    found: dict[str, str] = {}
    for key, value in given.items():
        name = ALIASES.get(key.lower(), key.lower())
        if name in found:
            raise BadOption(
                f"option {key!r} has the same meaning as another option", "set only one of them"
            )
        found[name] = value
    return found


def parsed(given: Mapping[str, str]) -> dict[str, Any]:
    if "provider" in given:
        raise BadOption(NO_TABLES, VIEWS)
    return parse(SOURCE, renamed(given))


def schema(given: Mapping[str, str]) -> dict[str, str]:
    """Return the type of each column that these options select."""
    found = parsed(given)
    headers = HEADERS[found["includeHeaders"]]
    every = COLUMNS | {"headers": headers or HEADER_MAP, "partition": "int"}
    chosen = found["columns"] or (*COLUMNS, *(["headers"] if headers else []))
    return {name: every[name] for name in chosen}


def readable(columns: dict[str, str]) -> dict[str, str]:
    """Return the columns of the user's schema. Raise BadOption if a column is invalid."""
    for name, kind in columns.items():
        if name not in TYPES:
            raise BadOption(f"column {name!r} does not exist", f"choose from {', '.join(TYPES)}")
        if kind not in TYPES[name]:
            raise BadOption(f"column {name} has type {kind}", f"use {' or '.join(TYPES[name])}")
    return columns


# This class holds options as plain values, so that Spark can send them to executors.


@dataclass(frozen=True)
class SourceOptions:
    node: Node
    topics: tuple[str, ...]
    pattern: str | None
    archive: str | None
    start: Ends | None
    end: Ends | None
    times: Span  # range of the column `timestamp`, in microseconds since 1970
    must_find: bool  # whether to fail if a topic has no message since its starting time
    rows_max: int | None
    rows_min: int | None
    delay_max: float
    partitions_min: int | None
    partition_rows_max: int | None
    fail_on_loss: bool
    subscription: str | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        found = parsed(given)
        check(found, streaming=streaming)
        start, end = (first(found, each) for each in ONE_OF[1:])
        since = before = None
        if found["timestampType"] == "message":
            since, start = (start.at, None) if isinstance(start, FromTime) else (None, start)
            before, end = (end.at, None) if isinstance(end, FromTime) else (None, end)
        return cls(
            node=Node.of(found),
            topics=found["topics"] or (),
            pattern=found["topicPattern"],
            archive=found["archive"],
            start=start,
            end=end,
            times=Span(since, before),
            must_find=found["startingOffsetsByTimestampStrategy"] == "error",
            rows_max=found["maxOffsetsPerTrigger"],
            rows_min=found["minOffsetsPerTrigger"],
            delay_max=found["maxTriggerDelay"],
            partitions_min=found["minPartitions"],
            partition_rows_max=found["maxRecordsPerPartition"],
            fail_on_loss=found["failOnDataLoss"],
            subscription=found["subscription"],
        )


def first(found: Mapping[str, Any], options: tuple[str, ...]) -> Any:
    """Return the value of the first option that is set, or None."""
    return next((found[name] for name in options if found[name] is not None), None)


def check(found: Mapping[str, Any], *, streaming: bool) -> None:
    """Raise BadOption if the options contradict each other."""
    for options in ONE_OF:
        if sum(found[name] is not None for name in options) > 1:
            raise BadOption(f"set only one of the options {' and '.join(options)}")
    if found["topics"] is None and found["topicPattern"] is None:
        raise BadOption(
            "set one of the options topics and topicPattern", f"{NO_TABLES}, so {VIEWS}"
        )
    for name in OF_BATCHES if streaming else OF_STREAMS:
        if found[name] is not None:
            kind = "a batch" if streaming else "a streaming"
            raise BadOption(f"option {name} is allowed only in {kind} query")
    if found["startingOffsets"] == NEW and not streaming:
        raise BadOption(
            "option startingOffsets is latest, so the batch would be empty", "use an earlier start"
        )
    if found["endingOffsets"] == EARLIEST:
        raise BadOption(
            "option endingOffsets is earliest, so the batch would be empty", "use a later end"
        )
    if found["timestampType"] == "message" and (
        found["startingOffsetsByTimestamp"] or found["endingOffsetsByTimestamp"]
    ):
        raise BadOption(
            "timestampType is message, but offsets by timestamp use the append time",
            "use startingTimestamp and endingTimestamp",
        )
