"""Node settings, from defaults, config file, environment and flags. Later sources win.

An unknown name is an error in every source, because a misspelt setting would have no effect.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from oncecast.errors import BadSetting
from oncecast.network.addresses import split_process

PREFIX = "ONCECAST_SERVE_"


def setting(default: str | bool | int | float, about: str) -> Any:
    """Return a Settings field with this default and help text."""
    return field(default=default, metadata={"about": about})


# Long because it is the one table of all settings.
@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a node, each with its default and help text. Numbers must be above 0."""

    data: str = setting("oncecast-data", "directory for the log and all other state")
    listen: str = setting(
        "127.0.0.1:7400",
        "host:port to listen on for clients and other nodes; port 0 picks a free port",
    )
    http: str = setting("", "host:port for /metrics, /health and /live; if empty, HTTP is off")
    kafka: str = setting(
        "", "host:port to listen on for Kafka clients; if empty, Kafka clients cannot connect"
    )
    cluster: str = setting(
        "oncecast", "cluster name; clients and nodes of other clusters are refused"
    )

    join: str = setting(
        "",
        "host:port of nodes in the group or ring to join, separated by commas; "
        "if empty, start a new group",
    )
    advertise: str = setting(
        "",
        "host:port at which clients and other nodes reach this node; if empty, the listen address",
    )
    own_group: bool = setting(
        False, "start a new ring; each process that joins gets its own replica group"
    )
    replicas: int = setting(3, "number of replicas in a new group, up to 9")
    heartbeat: float = setting(1.0, "seconds between leader heartbeats")
    suspicion: float = setting(
        2.0, "seconds without a heartbeat before an election; at least twice the heartbeat"
    )
    replace_after: float = setting(
        30.0, "seconds before another node replaces an unreachable replica"
    )
    compare_every: float = setting(60.0, "seconds between checks that all replicas agree")

    insecure: bool = setting(
        False, "allow listening without TLS on an address that other machines can reach"
    )
    tls_certificate: str = setting("", "PEM file with this node's certificate and its chain")
    tls_key: str = setting("", "PEM file with the certificate's private key")
    tls_ca: str = setting("", "PEM file with the CA that signs client and node certificates")
    tls_crl: str = setting("", "PEM file with the CA's certificate revocation list (CRL)")
    tls_clients: Literal["required", "optional"] = setting(
        "required", "whether clients need a certificate from the CA: required or optional"
    )
    cluster_secret_file: str = setting(
        "", "private file with the secret that all nodes of the cluster share, at least 16 bytes"
    )

    kafka_advertise: str = setting(
        "", "host:port at which Kafka clients reach this node; if empty, the address in kafka"
    )
    kafka_sasl: bool = setting(False, "require a login from Kafka clients: SCRAM-SHA-256 or PLAIN")
    kafka_no_auto_create: bool = setting(False, "do not create missing topics for Kafka clients")

    http_token_file: str = setting("", "file with a token that HTTP clients must send")

    audit_file: str = setting(
        "",
        "file that gets one JSON line per login, denied request and administrative request; "
        "if empty, they go to the log",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "minimum level to log: debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = setting(
        "text", "format of the log: text, or json for one JSON object per line"
    )

    connections_max: int = setting(
        800, "maximum client connections; must be below the open file limit"
    )
    kafka_connections_max: int = setting(1000, "maximum connections of Kafka clients")
    user_connections_max: int = setting(
        0, "maximum connections per user, or 0 for no limit other than connections_max"
    )
    host_connections_max: int = setting(
        0,
        "maximum connections without a login from one host, or 0 for no limit other than "
        "connections_max",
    )
    peers_max: int = setting(128, "maximum connections from other nodes, in addition to clients")
    batch_bytes_max: int = setting(
        64 << 20, "maximum bytes in one batch; use the same value on all nodes of a group"
    )
    topics_max: int = setting(100_000, "maximum topics per group")
    subscriptions_max: int = setting(100_000, "maximum subscriptions per group")
    producers_max: int = setting(200_000, "maximum producers that a group keeps records of")
    client_calls_max: int = setting(10_000, "maximum calls in flight from one client")
    client_bytes_max: int = setting(64 << 20, "maximum bytes of puts in flight from one client")
    client_rate: float = setting(
        float("inf"), "maximum bytes that one client may put per second, or inf for no limit"
    )
    producer_idle: float = setting(
        604_800.0, "seconds before an idle producer or source is deleted, or inf for never"
    )
    window_bytes: int = setting(8 << 20, "maximum unacknowledged bytes in flight to one client")
    snapshot_bytes: int = setting(
        64 << 20, "bytes of log between snapshots; a restart replays about this many bytes"
    )
    unsynced_bytes_max: int = setting(
        64 << 20, "maximum bytes not yet synced to disk; above it, the node stops reading input"
    )
    busy_poll: float = setting(
        0.0, "seconds to poll the network after each message instead of sleeping, or 0 for never"
    )
    drain_timeout: float = setting(
        5.0, "maximum seconds to send pending messages when the node stops"
    )


class Setting(NamedTuple):
    """One field of Settings."""

    kind: Any  # a type
    default: Any  # a value of that type
    about: str


KINDS = get_type_hints(Settings)
TABLE = {
    each.name: Setting(KINDS[each.name], each.default, each.metadata["about"])
    for each in fields(Settings)
}


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: str | None = None
) -> Settings:
    """Return the settings. Raise BadSetting if one is invalid.

    `flags` contains the command-line flags. `config` is the path of a TOML file.
    """
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
        cause = getattr(error, "strerror", None) or error
        raise BadSetting(f"{path}: {cause}", "use a readable TOML file") from None


def converted(name: str, value: Any, where: str, *, strict: bool) -> Any:
    """Return `value` converted to the type of its setting. Parse strings unless `strict` is set."""
    known = TABLE.get(name)
    if known is None:
        near = difflib.get_close_matches(name, TABLE, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(TABLE)}"
        raise BadSetting(f"{where}: unknown setting", hint)
    import msgspec  # imported here to keep `oncecast --help` fast

    kind = Annotated[known.kind, msgspec.Meta(gt=0)] if known.kind in (int, float) else known.kind
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError:
        raise BadSetting(f"{where}: {value!r} is not {wanted(known)}") from None


def wanted(setting: Setting) -> str:
    """Describe the values that a setting accepts."""
    if choices := get_args(setting.kind):
        return f"one of {', '.join(choices)}"
    numbers = {int: "an integer above 0", float: "a number above 0"}
    if setting.kind in numbers:
        return f"{numbers[setting.kind]}; the default is {setting.default}"
    return "true or false" if setting.kind is bool else "a string; put it in quotes"


def checked(settings: Settings) -> Settings:
    """Return the settings, or raise BadSetting if they contradict each other."""
    from oncecast.replication.quorum import SIZE_MAX  # imported here because it loads msgspec

    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise BadSetting("TLS needs both tls_certificate and tls_key", "set both or neither")
    if settings.tls_ca and not settings.tls_certificate:
        raise BadSetting("tls_ca needs tls_certificate and tls_key", "set all three or none")
    if settings.tls_crl and not settings.tls_ca:
        raise BadSetting(
            "tls_crl needs tls_ca", "set tls_ca to the CA that signed the revocation list"
        )
    if settings.replicas > SIZE_MAX:
        raise BadSetting(
            f"replicas is {settings.replicas} (limit {SIZE_MAX})",
            "use 3, or 5 to survive two failures",
        )
    if settings.suspicion < 2 * settings.heartbeat:
        raise BadSetting(
            f"suspicion is {settings.suspicion:g} s, less than twice the heartbeat of "
            f"{settings.heartbeat:g} s, so a single late heartbeat would trigger an election",
            "raise suspicion, or lower heartbeat",
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
    """Return the addresses in a comma-separated list."""
    return [each.strip() for each in text.split(",") if each.strip()]


def is_wildcard(address: str) -> bool:
    return split_process(address)[0] in ("0.0.0.0", "::", "")
