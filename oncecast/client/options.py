"""Client options, checked before the client connects."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import msgspec

from oncecast.client.arguments import check_compression, check_name, check_timeout, check_tls
from oncecast.client.login import Login
from oncecast.errors import BadAddress, InvalidArgument, NotConnected
from oncecast.network.addresses import split

if TYPE_CHECKING:
    from oncecast.network.tls import Tls
    from oncecast.security.secret import ClusterSecret

DEFAULT_ADDRESS = "127.0.0.1:7400"
SCAN_BYTES = 4 << 20  # bytes per page; the next page is prefetched


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `oncecast.connect`, and two options for nodes that connect as clients."""

    address: str = DEFAULT_ADDRESS
    name: str | None = None
    state: str | os.PathLike[str] | None = None
    timeout: float = 30.0
    connect_timeout: float = 5.0
    tls: Tls | None = None
    cluster: str = "oncecast"
    zstd: int | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    secret: ClusterSecret | None = None  # set if a node connects as a client
    node: str = ""  # the address of a node that queries other nodes before it joins them
    acts_for: str = ""  # the user that a front end acts for
    any_replica: bool = False  # send scans to any replica, not only to the leader
    busy_poll: float = 0.0  # seconds to poll after a message instead of sleeping; 0: never

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("client", self.name)
        check_timeout("timeout", self.timeout)
        check_timeout("connect_timeout", self.connect_timeout)
        check_timeout("busy_poll", self.busy_poll)
        if not isinstance(self.address, str):
            raise InvalidArgument(f"address is {self.address!r:.80}", 'use a str: "host:port"')
        try:
            for address in self.addresses:
                split(address)
        except BadAddress as error:
            raise NotConnected(error.message, error.remedy) from None
        for address in self.addresses:
            self.login.check_exposure(address, tls=self.tls is not None)
        if self.tls is not None:
            check_tls(self.tls)
        if self.zstd is not None:
            check_compression(self.zstd)

    @property
    def addresses(self) -> list[str]:
        return [each.strip() for each in self.address.split(",")]

    def begin_at(self, rng: Random) -> list[str]:
        """Return the addresses in the order in which to try them."""
        addresses = self.addresses
        if self.any_replica:
            rng.shuffle(addresses)
        return addresses

    @property
    def login(self) -> Login:
        return Login(self.user, self.password, self.token, self.node, self.acts_for)

    @property
    def durable_name(self) -> bool:
        """Return whether the client keeps its name across restarts."""
        return self.name is not None or self.state is not None

    def anonymous_at(self, address: str) -> ClientOptions:
        """Return the options for a second, unnamed client at another address."""
        return msgspec.structs.replace(self, address=address, name=None, state=None, zstd=None)
