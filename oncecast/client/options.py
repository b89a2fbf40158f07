"""The options of a client, checked before anything connects."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from oncecast.client.arguments import check_compression, check_name
from oncecast.client.login import Login
from oncecast.errors import BadAddress, InvalidArgument, NotConnected
from oncecast.network.addresses import split
from oncecast.network.tls import Tls
from oncecast.security.secret import ClusterSecret

DEFAULT_ADDRESS = "127.0.0.1:7400"


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The arguments of `oncecast.connect`."""

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
    secret: ClusterSecret | None = None  # the secret of a node that connects as a client
    node: str = ""  # the address of a node that asks before it joins

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name("client", self.name)
        try:
            for address in self.addresses:
                split(address)
        except BadAddress as error:
            raise NotConnected(error.message, error.remedy) from None
        for address in self.addresses:
            self.login.check_exposure(address, tls=self.tls is not None)
        if not isinstance(self.tls, Tls | None):
            raise InvalidArgument(f"tls is {self.tls!r:.80}", "use oncecast.Tls.from_files(...)")
        if self.zstd is not None:
            check_compression(self.zstd)

    @property
    def addresses(self) -> list[str]:
        return [each.strip() for each in self.address.split(",")]

    @property
    def login(self) -> Login:
        return Login(self.user, self.password, self.token, self.node)

    @property
    def durable_name(self) -> bool:
        """Return whether the client has the same name in its next process."""
        return self.name is not None or self.state is not None

    def anonymous_at(self, address: str) -> ClientOptions:
        """Return the options for an unnamed second client of another node."""
        return replace(self, address=address, name=None, state=None, zstd=None)
