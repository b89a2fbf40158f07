"""The settings of a node, in one table: defaults < config file < environment < flags.

A name that is not in the table is an error wherever it stands: a setting that is misspelt would
otherwise be a setting that is silently not made.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from oncecast.network.addresses import split_process

PREFIX = "ONCECAST_SERVE_"
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class BadSetting(ValueError):
    """A setting that is unknown or of no use; says where it stands."""


def setting(default: Any, about: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"about": about, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = setting("oncecast-data", "the directory for all that must survive")
    listen: str = setting("127.0.0.1:7400", "host:port for clients; port 0 takes any free one")
    http: str = setting("", "host:port for /metrics, /health and /live; off if left out")
    cluster: str = setting("oncecast", "clients of another cluster are turned away")

    join: str = setting(
        "", "host:port of nodes whose group or ring to join, with commas; off: found one"
    )
    advertise: str = setting("", "host:port by which others reach this node; that of listen if off")
    own_group: bool = setting(
        False, "found a ring, not a group; who joins a ring has a group of its own there"
    )
    replicas: int = setting(3, "nodes that a new group should have")
    heartbeat: float = setting(1.0, "seconds between two signs of life of the leader")
    suspicion: float = setting(2.0, "seconds without one until another leads; two of them or more")
    replace_after: float = setting(30.0, "seconds until a silent node loses its place to another")
    compare_every: float = setting(60.0, "seconds between comparisons of the replicas' states")

    insecure: bool = setting(False, "allow an address that others can reach without TLS")
    tls_certificate: str = setting("", "PEM file of this node, with its chain")
    tls_key: str = setting("", "PEM file of its key")
    tls_ca: str = setting("", "PEM file of the authority of clients and nodes")

    log_level: str = setting("info", "least important line to log", choices=LEVELS)
    log_format: str = setting("text", "text or one JSON object a line", choices=FORMATS)

    connections_max: int = setting(800, "clients at once; keep it below the limit of open files")
    batch_bytes_max: int = setting(64 << 20, "of one batch; the same on all nodes of a group")
    producer_idle: float = setting(
        604_800.0, "seconds until the record of an idle producer or source is deleted; inf: never"
    )
    window_bytes: int = setting(8 << 20, "under way to one client that has not said it has them")
    snapshot_bytes: int = setting(64 << 20, "of log between snapshots; a start replays as much")
    unsynced_bytes_max: int = setting(64 << 20, "waiting for the disk; beyond, nothing is read")
    drain_timeout: float = setting(5.0, "seconds that a stop gives to what is unsent")


TABLE = {each.name: each for each in fields(Settings)}


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: str | None = None
) -> Settings:
    """`flags` are those that were given; `config` is the name of a TOML file."""
    config = config or environment.get(PREFIX + "CONFIG") or None
    found: dict[str, Any] = {}
    if config:
        for name, value in read_file(config).items():
            found[name] = typed(name, value, f"{config}: {name}")
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != PREFIX + "CONFIG":
            name = variable.removeprefix(PREFIX).lower()
            found[name] = typed(name, text, variable)
    for name, value in flags.items():
        found[name] = typed(name, value, f"--{name.replace('_', '-')}")
    return checked(Settings(**found))


def read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path}: {error}; give a readable TOML file") from None


KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def typed(name: str, value: Any, where: str) -> Any:
    """The value as the type of its setting, which is that of its default."""
    known = TABLE.get(name)
    if known is None:
        near = difflib.get_close_matches(name, TABLE, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLE)}"
        raise BadSetting(f"{where}: no such setting; {hint}")
    kind: Any = type(known.default)
    try:
        value = parsed(value, kind) if isinstance(value, str) else value
    except ValueError:
        raise BadSetting(f"{where}: {value!r} is not {KINDS[kind]}") from None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BadSetting(f"{where}: {value!r} is not {KINDS[kind]}")
    choices = known.metadata["choices"]
    if choices and value not in choices:
        raise BadSetting(f"{where}: {value!r} is none of {', '.join(choices)}; choose one")
    if kind in (int, float) and not value > 0:
        raise BadSetting(f"{where}: {value!r} is not above 0; write a larger number")
    return value


def parsed(text: str, kind: type) -> Any:
    if kind is not bool:
        return kind(text)
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "1")


def checked(settings: Settings) -> Settings:
    """What must fit together."""
    tls = (settings.tls_certificate, settings.tls_key, settings.tls_ca)
    if any(tls) and not all(tls):
        raise BadSetting("TLS needs tls_certificate, tls_key and tls_ca; give all three, or none")
    if settings.suspicion < 2 * settings.heartbeat:
        raise BadSetting(
            f"suspicion: {settings.suspicion:g} s is less than two heartbeats of "
            f"{settings.heartbeat:g} s, so that a single late heartbeat would trigger an election; "
            "raise it"
        )
    if settings.join and not settings.advertise and is_anywhere(settings.listen):
        raise BadSetting(
            f"listen: others cannot reach a node as {settings.listen}; give advertise the address "
            "by which they can"
        )
    for address in addresses(settings.join):
        split_process(address)
    return settings


def addresses(text: str) -> list[str]:
    """Those that commas stand between."""
    return [each.strip() for each in text.split(",") if each.strip()]


def is_anywhere(address: str) -> bool:
    return split_process(address)[0] in ("0.0.0.0", "::", "")
