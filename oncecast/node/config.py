"""The settings of a node, from defaults, config file, environment and flags; the last one wins.

An unknown name is an error in each of them. A misspelt setting would otherwise have no effect.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from oncecast.errors import BadSetting
from oncecast.network.addresses import split_process

PREFIX = "ONCECAST_SERVE_"

Count = Annotated[int, Meta(gt=0)]
Bytes = Annotated[int, Meta(gt=0)]
Seconds = Annotated[float, Meta(gt=0)]
Level = Literal["debug", "info", "warning", "error"]


def about(text: str) -> Meta:
    return Meta(description=text)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a node, each with its default and its help text."""

    data: Annotated[str, about("directory for the log and all other state")] = "oncecast-data"
    listen: Annotated[
        str, about("host:port for clients and other nodes; port 0 picks a free port")
    ] = "127.0.0.1:7400"
    http: Annotated[str, about("host:port for /metrics, /health and /live; empty: no HTTP")] = ""
    cluster: Annotated[
        str, about("name of the cluster; clients and nodes of another cluster are refused")
    ] = "oncecast"

    join: Annotated[
        str,
        about(
            "host:port of nodes whose group or ring to join, separated by commas; "
            "empty: start a new one"
        ),
    ] = ""
    advertise: Annotated[
        str, about("host:port at which others reach this node; empty: the listen address")
    ] = ""
    own_group: Annotated[
        bool, about("start a new ring; each process that joins gets its own replica group")
    ] = False
    replicas: Annotated[Count, about("number of replicas in a new group")] = 3
    heartbeat: Annotated[Seconds, about("seconds between heartbeats of the leader")] = 1.0
    suspicion: Annotated[
        Seconds, about("seconds without a heartbeat until an election; at least two heartbeats")
    ] = 2.0
    replace_after: Annotated[
        Seconds, about("seconds until another node replaces an unreachable replica")
    ] = 30.0
    compare_every: Annotated[
        Seconds, about("seconds between comparisons of the replicas' states")
    ] = 60.0

    insecure: Annotated[
        bool, about("listen on an address that other machines can reach, without TLS")
    ] = False
    tls_certificate: Annotated[
        str, about("PEM file with this node's certificate and its chain")
    ] = ""
    tls_key: Annotated[str, about("PEM file with the certificate's private key")] = ""
    tls_ca: Annotated[
        str, about("PEM file with the authority for the certificates of clients and nodes")
    ] = ""

    log_level: Annotated[
        Level, about("least severe level to log: debug, info, warning or error")
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], about("text, or json for one JSON object per line")
    ] = "text"

    connections_max: Annotated[
        Count, about("maximum open connections; keep it below the limit of open files")
    ] = 800
    batch_bytes_max: Annotated[
        Bytes, about("maximum bytes in one batch; use the same value on all nodes of a group")
    ] = 64 << 20
    producer_idle: Annotated[
        Seconds, about("seconds until an idle producer or source is forgotten; inf: never")
    ] = 604_800.0
    window_bytes: Annotated[
        Bytes, about("maximum unacknowledged bytes in flight to one client")
    ] = 8 << 20
    snapshot_bytes: Annotated[
        Bytes, about("bytes of log between snapshots; a restart replays about as much")
    ] = 64 << 20
    unsynced_bytes_max: Annotated[
        Bytes, about("maximum bytes that wait for the disk; beyond that, the node reads no input")
    ] = 64 << 20
    drain_timeout: Annotated[
        Seconds, about("seconds to send pending messages when the node stops")
    ] = 5.0


class Setting(NamedTuple):
    """One field of Settings."""

    kind: Any  # the annotated type
    default: str | bool | int | float
    about: str


def described(field: msgspec.structs.FieldInfo) -> Setting:
    text = "".join(each.description or "" for each in field.type.__metadata__)
    return Setting(field.type, field.default, text)


TABLE = {field.name: described(field) for field in msgspec.structs.fields(Settings)}


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: str | None = None
) -> Settings:
    """Return the settings; `flags` are those given, `config` is the path of a TOML file."""
    config = config or environment.get(PREFIX + "CONFIG") or None
    found: dict[str, Any] = {}
    if config:
        for name, value in read_file(config).items():
            found[name] = converted(name, value, f"{config}: {name}", strict=True)
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != PREFIX + "CONFIG":
            name = variable.removeprefix(PREFIX).lower()
            found[name] = converted(name, text, variable, strict=False)
    for name, value in flags.items():
        found[name] = converted(name, value, f"--{name.replace('_', '-')}", strict=False)
    return checked(Settings(**found))


def read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path}: {error}", "give a readable TOML file") from None


def converted(name: str, value: Any, where: str, *, strict: bool) -> Any:
    """Return `value` as the type of its setting; a string is parsed unless `strict`."""
    known = TABLE.get(name)
    if known is None:
        near = difflib.get_close_matches(name, TABLE, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(TABLE)}"
        raise BadSetting(f"{where}: no such setting", hint)
    try:
        return msgspec.convert(value, known.kind, strict=strict)
    except msgspec.ValidationError:
        raise BadSetting(f"{where}: {value!r} is not {wanted(known)}") from None


def wanted(setting: Setting) -> str:
    """Return a phrase for the values that a setting accepts."""
    kind = get_args(setting.kind)[0]
    if choices := get_args(kind):
        return f"one of {', '.join(choices)}"
    numbers = {int: "an integer above 0", float: "a number above 0"}
    if kind in numbers:
        return f"{numbers[kind]}; the default is {setting.default}"
    return "true or false" if kind is bool else "a string; put it in quotes"


def checked(settings: Settings) -> Settings:
    """Return the settings, or raise BadSetting if they contradict each other."""
    tls = (settings.tls_certificate, settings.tls_key, settings.tls_ca)
    if any(tls) and not all(tls):
        raise BadSetting("TLS needs tls_certificate, tls_key and tls_ca", "give all three, or none")
    if settings.suspicion < 2 * settings.heartbeat:
        raise BadSetting(
            f"suspicion: {settings.suspicion:g} s is less than two heartbeats of "
            f"{settings.heartbeat:g} s, so that a single late heartbeat would trigger an election",
            "raise it",
        )
    if settings.join and not settings.advertise and is_wildcard(settings.listen):
        raise BadSetting(
            f"listen: other nodes cannot connect to {settings.listen}",
            "set advertise to an address that they can reach",
        )
    for address in addresses(settings.join):
        split_process(address)
    return settings


def addresses(text: str) -> list[str]:
    """Return the addresses of a comma-separated list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def is_wildcard(address: str) -> bool:
    return split_process(address)[0] in ("0.0.0.0", "::", "")
