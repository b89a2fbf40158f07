"""Run a node and its client in one process, with the files and guarantees of a separate node."""

from __future__ import annotations

import os
from functools import partial
from typing import NoReturn

from oncecast.client.client import Client
from oncecast.client.driver import broken
from oncecast.errors import StateUnusable, StorageError
from oncecast.network.tls import Tls
from oncecast.node.config import Settings
from oncecast.node.server import Server


class Embedded:
    """A node in this process. `async with` starts it, returns a client and finally stops it.

    `path` is the node's data directory. Only one process at a time can use it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        state: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        connect_timeout: float = 5.0,
        tls: Tls | None = None,
        cluster: str = "oncecast",
        zstd: int | None = None,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
    ) -> None:
        self._path = path
        self._make = partial(
            Client,
            name=name,
            state=state,
            timeout=timeout,
            connect_timeout=connect_timeout,
            tls=tls,
            cluster=cluster,
            zstd=zstd,
            user=user,
            password=password,
            token=token,
        )
        self._make()  # Check the options before the node starts.

    def __await__(self) -> NoReturn:
        raise TypeError("oncecast.embedded(...) cannot be awaited; use it in `async with`")

    async def __aenter__(self) -> Client:
        try:
            self._server = Server(Settings(data=os.fspath(self._path), listen="127.0.0.1:0"))
            await self._server.__aenter__()
            if self._server.runtime.stopping:  # __aexit__ raises the reason.
                await self._server.__aexit__(None, None, None)
        except StorageError as error:
            raise StateUnusable(error.message, error.remedy) from error
        try:
            self._client = self._make(self._server.me)
            await self._client.__aenter__()
            self._server.runtime.when_ended(self._node_ended)
            return self._client
        except BaseException:
            await self._server.__aexit__(None, None, None)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self._client.__aexit__(kind)
        finally:
            try:
                await self._server.__aexit__(None, None, None)
            except StorageError as failed:
                raise StateUnusable(failed.message, failed.remedy) from failed

    def _node_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._client.parts.fail(broken("node", error))


embedded = Embedded
