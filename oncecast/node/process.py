"""Base class for servers: listener, HTTP pages, start and stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol as Interface
from typing import Self

from oncecast.errors import BadSetting, CannotListen
from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import split_process
from oncecast.network.incidents import line
from oncecast.network.listener import check_free
from oncecast.network.network import Runtime
from oncecast.node.audit import Audit
from oncecast.node.config import Settings, addresses
from oncecast.node.derived import (
    check_exposure,
    listen_address,
    secret_of,
    tls_of,
    warn_of_certificate,
)
from oncecast.node.health import ending, page_of
from oncecast.node.http import HttpServer, Page
from oncecast.node.http_access import HttpAccess
from oncecast.node.reloading import TlsReloader
from oncecast.node.replica import without

logger = logging.getLogger("oncecast.node")


class Companion(Interface):
    """A server of an upper layer that runs in the process of a node."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Process:
    """A server. Either await `run()`, which returns after a signal, or use it in `async with`."""

    runtime: Runtime

    def __init__(self, settings: Settings) -> None:
        self.settings, self.tls = settings, tls_of(settings)
        self.reloader = TlsReloader(self.tls)
        self.secret = secret_of(settings.cluster_secret_file)
        check_exposure(settings)
        self._http_access = HttpAccess(settings)
        self.audit = Audit(settings.audit_file)
        if not Path(settings.data).exists():  # do not create it for a node that cannot listen
            for each in filter(None, (settings.listen, settings.http, settings.kafka)):
                check_free(each)
        self.listen, self.me = listen_address(settings)
        self.audit.node = self.me
        named = tuple(map(NodeId, addresses(settings.join)))
        self.joined = without(named, self.me)  # nodes to ask for membership
        if named and not self.joined:
            raise BadSetting(f"join: {self.me} is this node itself", "name another node")
        pages = {"/metrics": self.metrics, "/health": self.health, "/live": self.live}
        self._http = HttpServer(pages, self._http_access.admits)
        self.http_port = 0
        self.kafka_at = ""  # the address for Kafka clients, while a companion serves them
        self.companions: list[Companion] = []  # started after the node, and stopped before it

    # -- overridden by each kind of server --

    def announce(self) -> None:
        """Log the recovered state before the node accepts clients."""

    def settle(self) -> None:
        """Finish starting up once the runtime is running."""

    @abstractmethod
    def metrics(self) -> Page:
        """Return the /metrics page."""

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """Return the fields of the /health page, with `status` and `reason` as in `Health`."""

    def health(self) -> Page:
        """Return the /health page. Its status is 200 if this node or its leader accepts puts."""
        known = {**self.facts(), **ending(self.runtime)}
        return page_of(200 if known["status"] == "ok" else 503, self.me, known)

    def live(self) -> Page:
        """Return the /live page. Its status is always 200."""
        return page_of(200, self.me, {"status": "live"})

    async def hand_over(self) -> None:
        """Transfer leadership of all groups that this process leads, and wait briefly."""

    async def calm_down(self) -> None:
        """Clean up after the runtime has ended."""

    def close(self) -> None:
        """Close files and sockets after the server has stopped or failed to start."""
        self.audit.close()
        if isinstance(self.listen, socket.socket):
            self.listen.close()

    # -- start and stop --

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then transfer leadership and flush everything."""
        with self._hangup():
            async with self:
                await self.runtime.wait()

    @contextmanager
    def _hangup(self) -> Iterator[None]:
        """Reload on SIGHUP. At a terminal, stop instead: the terminal was closed."""
        loop = asyncio.get_running_loop()
        at_terminal = sys.stderr.isatty()
        loop.add_signal_handler(signal.SIGHUP, self._stop if at_terminal else self.reload)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def _stop(self) -> None:
        self.runtime.ask_to_stop()

    def reload(self) -> None:
        """Read the TLS files and the HTTP token again, and reopen the audit file."""
        self.reloader.reload()
        self._http_access.reload()
        self.audit.reopen()
        logger.info(line("reloaded", {"node": self.me}))

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
            await self.runtime.__aenter__()
        except BaseException:
            await self._end()
            raise
        self.reloader.start()
        self.settle()
        try:
            for each in self.companions:
                await each.start()
        except BaseException as error:
            await self.__aexit__(type(error), error)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        try:
            for each in self.companions:
                await each.stop()
            if error is None and not self.runtime.stopping:
                self.runtime.ask_to_stop()
                await self.hand_over()
            await self.runtime.__aexit__(kind, error)
        finally:
            await self._end()

    async def _begin(self) -> None:
        self.announce()
        warn_of_certificate(self.tls, self.me)
        if not self.settings.http:
            return
        host, port = split_process(self.settings.http)
        try:
            self.http_port = await self._http.open(host, port, self._http_access.tls)
        except OSError as error:
            cause = (error.strerror or str(error)).rpartition(": ")[2]  # omits the address
            raise CannotListen(
                f"cannot serve HTTP on {self.settings.http}: {cause}",
                "free the port or choose another one",
            ) from error
        logger.info(line("http", {"at": f"{host}:{self.http_port}"}))

    async def _end(self) -> None:
        self.reloader.stop()
        await self._http.close()
        await self.calm_down()
        self.close()
        logger.info(line("stopped", {"node": self.me}))
