"""The settings that decide which connections a process trusts."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncecast.network.login import Logins, OpenLogins
from oncecast.network.tls import Tls
from oncecast.security.secret import ClusterSecret


@dataclass(frozen=True, kw_only=True)
class Trust:
    tls: Tls | None = None
    secret: ClusterSecret | None = None
    insecure: bool = False  # listen without TLS on an address that other machines can reach
    logins: Logins = field(default_factory=OpenLogins)
