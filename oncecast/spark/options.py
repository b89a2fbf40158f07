"""The options of the Spark source and sink, parsed once on the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.client import DEFAULT_ADDRESS
from oncecast.client.login import Login
from oncecast.client.starts import EARLIEST, NEW, from_offset, from_time
from oncecast.errors import BadOption
from oncecast.network.tls import Tls
from oncecast.wire.commands import Start

Ends = Start | dict[str, Start]  # for all topics, or for each
ZSTD_MAX = 22
CONNECT = 5.0  # seconds in which a running node answers
REMEDY = 'start a node there with "oncecast serve", or set option address to a running node'


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    default: str | None
    meaning: str


# Parsers of option values.


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("the value is empty")
    return value.strip()


def names(value: str) -> tuple[str, ...]:
    return tuple(text(each) for each in value.split(","))


def pattern(value: str) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text(value)


def flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("use true or false")
    return value.lower() == "true"


def positive(value: str) -> int:
    number = int(value) if re.fullmatch(r"\d{1,18}", value.strip()) else 0
    if number < 1:
        raise ValueError("use an integer of at least 1")
    return number


def level(value: str) -> int:
    """Check the level on the driver, before the first task compresses."""
    if positive(value) > ZSTD_MAX:
        raise ValueError(f"use a level from 1 to {ZSTD_MAX}")
    return positive(value)


def ends(value: str) -> Ends:
    """Parse `earliest`, `latest`, or JSON offsets by topic; -2 is earliest and -1 latest."""
    if value.strip().lower() in ("earliest", "latest"):
        return EARLIEST if value.strip().lower() == "earliest" else NEW
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(type(each) is int for each in found.values()):
        raise ValueError('use earliest, latest, or offsets such as {"topic": 17}')
    return {topic: by_number(offset) for topic, offset in found.items()}


def by_number(offset: int) -> Start:
    if offset < -2:
        raise ValueError(f"offset {offset} is too low (minimum 0; -2 is earliest, -1 latest)")
    return {-2: EARLIEST, -1: NEW}.get(offset) or from_offset(offset)


def moment(value: str) -> Start:
    """Parse milliseconds since 1970, as in Spark's Kafka source."""
    if not re.fullmatch(r"\d{1,14}", value.strip()):
        raise ValueError("use milliseconds since 1970")
    return from_time(int(value) / 1e3)


ADDRESS = [
    Option("address", text, DEFAULT_ADDRESS, "address of a node, or several separated by commas"),
    Option("cluster", text, "oncecast", "name of the cluster"),
    Option("tlsCa", text, None, "file with the certificate authority of the nodes"),
    Option("tlsCert", text, None, "file with the client certificate"),
    Option("tlsKey", text, None, "file with the key of the client certificate"),
    Option("user", text, None, "user to log in as, with `password`"),
    Option("password", text, None, "password of the user"),
    Option("token", text, None, "token to log in with, instead of `user` and `password`"),
    Option("timeout", positive, "60", "seconds to wait for an answer of the node"),
]
SOURCE = [
    *ADDRESS,
    Option("topics", names, None, "names separated by commas; or use `topicPattern`"),
    Option("topicPattern", pattern, None, "regular expression for whole topic names"),
    Option("startingOffsets", ends, None, "`earliest`, `latest`, or JSON with offsets"),
    Option(
        "startingTimestamp", moment, None, "milliseconds since 1970, instead of `startingOffsets`"
    ),
    Option("endingOffsets", ends, None, "batch only: `latest`, or JSON with offsets"),
    Option("endingTimestamp", moment, None, "batch only: milliseconds since 1970"),
    Option(
        "maxOffsetsPerTrigger", positive, None, "streaming only: maximum messages per micro-batch"
    ),
    Option(
        "minPartitions", positive, None, "minimum number of tasks, unless there are fewer messages"
    ),
    Option("maxRecordsPerPartition", positive, None, "maximum messages per task"),
    Option("includeHeaders", flag, "false", "add the column `headers`"),
    Option(
        "failOnDataLoss", flag, "true", "fail the query if messages are gone; otherwise skip them"
    ),
    Option(
        "subscription",
        text,
        None,
        "streaming only: subscription that keeps messages until Spark commits",
    ),
]
SINK = [
    *ADDRESS,
    Option("topic", text, None, "topic of all rows; or use a column `topic`"),
    Option("zstd", level, None, "compression level, 1 to 22"),
]


SPARKS_OWN = {"checkpointlocation"}  # Spark passes its own options as well


def parse(known: list[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the options by name, with defaults. Raise BadOption for an unknown or invalid one."""
    by_key = {option.name.lower(): option for option in known}
    for key in given:
        if key.lower() not in by_key and key.lower() not in SPARKS_OWN:
            allowed = ", ".join(option.name for option in known)
            raise BadOption(f"unknown option {key!r}", f"choose from {allowed}")
    found: dict[str, Any] = {}
    for key, option in by_key.items():
        value = given.get(key, option.default)
        try:
            found[option.name] = None if value is None else option.parse(value)
        except ValueError as error:
            raise BadOption(f"option {option.name} is {value!r}: {error}") from None
    return found


# Options as plain values, so that Spark can send them to executors.


@dataclass(frozen=True)
class Node:
    address: str
    cluster: str
    timeout: float
    tls: tuple[str | None, ...]  # certificate, key and CA; every executor must have the files
    login: Login

    @classmethod
    def of(cls, found: dict[str, Any]) -> Node:
        files = tuple(found[name] for name in ("tlsCert", "tlsKey", "tlsCa"))
        certificate, key, ca = files
        if (certificate is None) != (key is None) or (certificate and not ca):
            raise BadOption(
                "options tlsCa, tlsCert and tlsKey belong together",
                "set tlsCa alone, or all three, or none",
            )
        address, cluster = found["address"], found["cluster"]
        try:
            login = Login(found["user"], found["password"], found["token"])
        except errors.InvalidArgument as error:
            raise BadOption(error.message, error.remedy) from None
        return cls(address, cluster, float(found["timeout"]), files if ca else (), login)

    @contextmanager
    def connect(self, *, patient: bool = False) -> Iterator[blocking.Client]:
        """Connect to the node. `patient` waits longer, for a node that restarts during a query."""
        tls = None
        if self.tls:
            certificate, key, ca = self.tls
            tls = Tls.from_files(certificate=certificate, key=key, ca=ca)
        client = blocking.connect(
            self.address,
            cluster=self.cluster,
            timeout=self.timeout,
            connect_timeout=self.timeout if patient else min(self.timeout, CONNECT),
            tls=tls,
            user=self.login.user,
            password=self.login.password,
            token=self.login.token,
        )
        try:
            client.__enter__()
        except errors.NotConnected as error:
            raise error.reworded(remedy=REMEDY) from None
        with closing(client):
            yield client


@dataclass(frozen=True)
class SourceOptions:
    node: Node
    topics: tuple[str, ...]
    pattern: str | None
    start: Ends | None
    end: Ends | None
    rows_max: int | None
    partitions_min: int | None
    partition_rows_max: int | None
    headers: bool
    fail_on_loss: bool
    subscription: str | None

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        found = parse(SOURCE, given)
        if (found["topics"] is None) == (found["topicPattern"] is None):
            raise BadOption("set one of the options topics and topicPattern")
        for one, other in (
            ("startingOffsets", "startingTimestamp"),
            ("endingOffsets", "endingTimestamp"),
        ):
            if found[one] is not None and found[other] is not None:
                raise BadOption(f"set only one of the options {one} and {other}")
        wrong = ("endingOffsets", "endingTimestamp") if streaming else ("maxOffsetsPerTrigger",)
        wrong = wrong if streaming else (*wrong, "subscription")
        for name in wrong:
            if found[name] is not None:
                kind = "a batch" if streaming else "a streaming"
                raise BadOption(f"option {name} is only allowed in {kind} query")
        start = found["startingOffsets"] or found["startingTimestamp"]
        end = found["endingOffsets"] or found["endingTimestamp"]
        if start == NEW and not streaming:
            raise BadOption(
                "option startingOffsets is latest, which makes a batch empty",
                "use an earlier start",
            )
        if end == EARLIEST:
            raise BadOption(
                "option endingOffsets is earliest, which makes a batch empty", "use a later end"
            )
        return cls(
            node=Node.of(found),
            topics=found["topics"] or (),
            pattern=found["topicPattern"],
            start=start,
            end=end,
            rows_max=found["maxOffsetsPerTrigger"],
            partitions_min=found["minPartitions"],
            partition_rows_max=found["maxRecordsPerPartition"],
            headers=found["includeHeaders"],
            fail_on_loss=found["failOnDataLoss"],
            subscription=found["subscription"],
        )


@dataclass(frozen=True)
class SinkOptions:
    node: Node
    topic: str | None
    zstd: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        found = parse(SINK, given)
        return cls(Node.of(found), found["topic"], found["zstd"])
