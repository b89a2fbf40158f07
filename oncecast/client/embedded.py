"""A node and its client in one process: the same code, files and promises as a node of its own."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, NoReturn

from oncecast.client.client import Client
from oncecast.client.driver import broken
from oncecast.client.errors import StateUnusable
from oncecast.node.config import Settings
from oncecast.node.server import Server
from oncecast.storage.errors import StorageError


class Embedded:
    """`async with` it to get a client; the node stops when that ends.

    `path` is the node's directory. Only one process can have it at a time.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        Client(**options)  # what is wrong with them is told here, before a node starts
        self._path, self._options = path, options

    def __await__(self) -> NoReturn:
        raise TypeError("use `async with oncecast.embedded(...)`: its node stops at the end of it")

    async def __aenter__(self) -> Client:
        try:
            self._server = Server(Settings(data=os.fspath(self._path), listen="127.0.0.1:0"))
            await self._server.__aenter__()
            if self._server.runtime.stopping:  # at once: its end tells why
                await self._server.__aexit__(None, None, None)
        except StorageError as error:
            raise StateUnusable(str(error)) from error
        try:
            self._client = Client(self._server.me, **self._options)
            await self._client.__aenter__()
            self._server.runtime.when_ended(self._node_ended)
            return self._client
        except BaseException:
            await self._server.__aexit__(None, None, None)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._client.__aexit__(kind, error, traceback)
        finally:
            try:
                await self._server.__aexit__(None, None, None)
            except StorageError as failed:
                raise StateUnusable(str(failed)) from failed

    def _node_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._client._break(broken("node", error))


embedded = Embedded
