"""The options of the Spark source and sink, parsed once on the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from oncecast import errors
from oncecast.client import blocking
from oncecast.client.client import DEFAULT_ADDRESS
from oncecast.client.login import Login
from oncecast.errors import BadOption
from oncecast.network.tls import Tls
from oncecast.wire.retention import Policy

ZSTD_MAX = 22
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
CONNECT = 5.0  # maximum seconds until the first connection
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
    """Return the compression level. Raise ValueError if it is too high."""
    if positive(value) > ZSTD_MAX:
        raise ValueError(f"use a level from 1 to {ZSTD_MAX}")
    return positive(value)


def version(value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value.strip()):
        raise ValueError("use an integer of at least 0")
    return int(value)


def replay(value: str) -> bool:
    """Return whether to compare a repeated batch with the published batch."""
    if value.lower() not in ("check", "skip"):
        raise ValueError("use check or skip")
    return value.lower() == "check"


def retention(value: str) -> Policy:
    """Return the policy for `all`, or for an age such as 12h or 7d."""
    if value.strip().lower() == "all":
        return Policy(keep_all=True)
    found = re.fullmatch(r"([1-9]\d{0,8})([smhd])", value.strip())
    if found is None:
        raise ValueError("use all, or an age such as 90s, 12h or 7d")
    return Policy(age_us=int(found[1]) * SECONDS[found[2]] * 1_000_000)


ADDRESS = [
    Option("address", text, DEFAULT_ADDRESS, "address of a node, or several separated by commas"),
    Option("cluster", text, "oncecast", "name of the cluster"),
    Option("tlsCa", text, None, "file with the nodes' certificate authority"),
    Option("tlsCert", text, None, "file with the client certificate"),
    Option("tlsKey", text, None, "file with the client certificate's private key"),
    Option("user", text, None, "user to log in as, with `password`"),
    Option("password", text, None, "password of the user"),
    Option("token", text, None, "token to log in with, instead of `user` and `password`"),
    Option("timeout", positive, "60", "seconds to wait for the node's answer"),
]
SINK = [
    *ADDRESS,
    Option("topic", text, None, "topic for all rows, instead of the column `topic`"),
    Option("zstd", level, None, "Zstandard compression level, 1 to 22"),
    Option("createTopics", flag, "true", "create missing topics"),
    Option(
        "topicPolicy",
        retention,
        "all",
        "retention of topics that the sink creates: `all`, or an age such as `7d`",
    ),
    Option(
        "failOnDataLoss",
        flag,
        "true",
        "fail if a topic would drop the rows because it has neither retention nor a subscription",
    ),
    Option("txnAppId", text, None, "identity of the query or job, instead of the query id"),
    Option("txnVersion", version, None, "batch only: number of this batch; requires `txnAppId`"),
    Option(
        "replay",
        replay,
        "check",
        "`check`: fail if a repeated batch differs from the published one; `skip`: do not compare",
    ),
]


SPARKS_OWN = {"checkpointlocation", "queryname"}  # Spark also passes its own options
# Options of Spark's Kafka connector, and the remedy for each.
KAFKA = {
    "assign": "use option topics, because topics have no partitions",
    "groupidprefix": "use option subscription, which names the stream's cursor",
    "kafka.group.id": "use option subscription, which names the stream's cursor",
    "kafka.bootstrap.servers": "set option address to an oncecast node",
    "kafkaconsumer.polltimeoutms": "use option timeout, in seconds",
    "fetchoffset.numretries": "use option timeout; the client retries until it expires",
    "fetchoffset.retryintervalms": "use option timeout; the client retries until it expires",
}


def of_kafka(key: str) -> str | None:
    """Return the remedy for a Kafka connector option, or None for any other option."""
    if key.startswith("kafka.") and key not in KAFKA:
        return "it configures a Kafka client; use address, tlsCa, user, password or token"
    return KAFKA.get(key)


def parse(known: list[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the options by name, with defaults. Raise BadOption if one is unknown or invalid."""
    by_key = {option.name.lower(): option for option in known}
    for key in given:
        if key.lower() not in by_key and key.lower() not in SPARKS_OWN:
            allowed = ", ".join(option.name for option in known)
            remedy = of_kafka(key.lower()) or f"choose from {allowed}"
            raise BadOption(f"unknown option {key!r}", remedy)
    found: dict[str, Any] = {}
    for key, option in by_key.items():
        value = given.get(key, option.default)
        try:
            found[option.name] = None if value is None else option.parse(value)
        except ValueError as error:
            wrong, reason = f"option {option.name} is {value!r}", str(error)
            if reason.startswith("use "):
                raise BadOption(wrong, reason) from None
            raise BadOption(f"{wrong}: {reason}") from None
    return found


# These classes hold options as plain values, so that Spark can send them to executors.


@dataclass(frozen=True)
class Node:
    address: str
    cluster: str
    timeout: float
    # Paths of certificate, key and CA; every executor must have these files.
    tls: tuple[str | None, ...]
    login: Login

    @classmethod
    def of(cls, found: dict[str, Any]) -> Node:
        files = tuple(found[name] for name in ("tlsCert", "tlsKey", "tlsCa"))
        certificate, key, ca = files
        if (certificate is None) != (key is None) or (certificate and not ca):
            raise BadOption(
                "options tlsCa, tlsCert and tlsKey belong together",
                "set tlsCa alone, all three, or none",
            )
        address, cluster = found["address"], found["cluster"]
        try:
            login = Login(found["user"], found["password"], found["token"])
        except errors.InvalidArgument as error:
            raise BadOption(error.message, error.remedy) from None
        return cls(address, cluster, float(found["timeout"]), files if ca else (), login)

    @contextmanager
    def connect(self, *, patient: bool = False, scans: bool = False) -> Iterator[blocking.Client]:
        """Connect to the node, and yield the client.

        `patient` waits longer, for a node that restarts during a query. With `scans`, the client
        starts at a random replica, so that tasks spread over all replicas.
        """
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
            any_replica=scans,
        )
        try:
            client.__enter__()
        except errors.NotConnected as error:
            raise error.reworded(remedy=REMEDY) from None
        with closing(client):
            yield client


@dataclass(frozen=True)
class SinkOptions:
    node: Node
    topic: str | None
    zstd: int | None
    create: bool
    policy: Policy
    keep: bool
    app: str | None
    version: int | None
    check: bool
    checkpoint: str | None  # the checkpoint location, if it is set as an option

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        found = parse(SINK, given)
        if streaming and found["txnVersion"] is not None:
            raise BadOption(
                "option txnVersion is allowed only in batch writes",
                "remove it; the micro-batch number serves as the version",
            )
        if not streaming and (found["txnAppId"] is None) != (found["txnVersion"] is None):
            raise BadOption("set both txnAppId and txnVersion, or neither")
        return cls(
            node=Node.of(found),
            topic=found["topic"],
            zstd=found["zstd"],
            create=found["createTopics"],
            policy=found["topicPolicy"],
            keep=found["failOnDataLoss"],
            app=found["txnAppId"],
            version=found["txnVersion"],
            check=found["replay"],
            checkpoint=given.get("checkpointlocation"),
        )
