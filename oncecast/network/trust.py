"""The settings that decide which connections a process trusts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from oncecast.network.login import Logins, OpenLogins

if TYPE_CHECKING:
    from oncecast.network.tls import Tls
    from oncecast.security.secret import ClusterSecret


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    tls: Tls | None = None
    secret: ClusterSecret | None = None
    insecure: bool = False  # listen without TLS on an address that other machines can reach
    logins: Logins = msgspec.field(default_factory=OpenLogins)
