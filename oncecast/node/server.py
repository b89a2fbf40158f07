"""A node as a process: its directory, its address, its signals, its log."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

from oncecast.kernel.protocol import NodeId
from oncecast.node.assemble import VERSION, assemble
from oncecast.node.config import Settings
from oncecast.node.http import HttpDoor, Page
from oncecast.node.metrics import metrics, page
from oncecast.pubsub.limits import Limits
from oncecast.runtime.addresses import is_loopback, split
from oncecast.runtime.errors import CannotListen
from oncecast.runtime.incidents import line
from oncecast.runtime.journal import Journal
from oncecast.runtime.network import Runtime
from oncecast.runtime.options import Options
from oncecast.runtime.tls import Tls
from oncecast.session.frames import Call, Fetch, Look
from oncecast.storage.disk import OsDisk
from oncecast.storage.errors import WrongFormat

logger = logging.getLogger("oncecast.node")

OURS = re.compile(r"\d{8}\.(log|idx|new)|[a-z]+-\d{20}\.snap|[a-z]+\.tmp|LOCK")
FRAME_SLACK = 64 * 1024  # what a message has beside its batch


class NotAllowed(Exception):
    """It would be open to the world, and nobody said that it should be."""


class Server:
    """A node in this process. Either `await run()`, which ends by a signal, or `async with` it."""

    def __init__(self, settings: Settings) -> None:
        """Open the directory and recover what it holds; nobody is let in yet."""
        self.settings = settings
        self._tls = tls_of(settings)
        for address in filter(None, (settings.listen, settings.http)):
            check_address(address, guarded=settings.insecure or self._tls is not None)
        self._disk = open_directory(settings.data)
        try:
            self._listen, self.me = door(settings.listen)
            self.parts = assemble(
                self.me,
                SystemRandom(),
                epoch_us=time.time_ns() // 1000 - int(time.monotonic() * 1e6),
                limits=Limits(batch_bytes_max=settings.batch_bytes_max),
                snapshot_bytes=settings.snapshot_bytes,
                window_bytes=settings.window_bytes,
            )
            self.journal = Journal.open(self._disk, self.parts.stack)
            self.parts.gateway.room = lambda: self.journal.log.room
        except BaseException:
            self._disk.close()
            raise
        self.runtime = Runtime(
            self.parts.stack,
            me=self.me,
            listen=self._listen,
            journal=self.journal,
            tls=self._tls,
            insecure=settings.insecure,
            clients=(Call, Fetch, Look),
            options=options_of(settings),
        )
        self._http = HttpDoor({"/metrics": self._metrics, "/health": self._health})
        self.http_port = 0

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; then everything is made durable and sent."""
        try:
            await self._open_http()
            await self.runtime.run()
        finally:
            await self._close()

    async def __aenter__(self) -> Self:
        try:
            await self._open_http()
            await self.runtime.__aenter__()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.runtime.__aexit__(kind, error, traceback)
        finally:
            await self._close()

    async def _open_http(self) -> None:
        registry = self.parts.service.machine.registry
        facts = {"node": self.me, "data": self.settings.data, "version": VERSION}
        counts = {"topics": len(registry.topics), "records": self.journal.log.last}
        logger.info(line("recovered", {**facts, **counts}))
        if self.settings.http:
            host, port = split(self.settings.http)
            try:
                self.http_port = await self._http.open(host, port)
            except OSError as error:
                raise CannotListen(
                    f"{self.settings.http}: {error.strerror or error}; stop what uses the port, or "
                    "give http another one"
                ) from error
            logger.info(line("http", {"at": f"{host}:{self.http_port}"}))

    async def _close(self) -> None:
        await self._http.close()
        self._disk.close()
        if isinstance(self._listen, socket.socket):
            self._listen.close()
        logger.info(line("stopped", {"node": self.me}))

    def _metrics(self) -> Page:
        found = metrics(self.parts, self.journal, self.runtime.stats)
        return Page(200, "text/plain; version=0.0.4", page(found))

    def _health(self) -> Page:
        status, word = (503, "draining") if self.runtime.stopping else (200, "ok")
        health = {"status": word, "node": self.me, "version": VERSION}
        return Page(status, "application/json", json.dumps(health) + "\n")


def options_of(settings: Settings) -> Options:
    return Options(
        cluster=settings.cluster,
        batch_bytes_max=settings.batch_bytes_max,
        connections_max=settings.connections_max,
        unsynced_bytes_max=settings.unsynced_bytes_max,
        drain_timeout=settings.drain_timeout,
        frame_bytes_max=settings.batch_bytes_max + FRAME_SLACK,
        # What flows have under way, of which the last batch may be beyond their window, and as
        # much again for answers and for what is asked for twice.
        queue_bytes_max=2 * (settings.window_bytes + settings.batch_bytes_max),
    )


def tls_of(settings: Settings) -> Tls | None:
    if not settings.tls_certificate:
        return None
    return Tls.from_files(
        certificate=settings.tls_certificate, key=settings.tls_key, ca=settings.tls_ca
    )


def check_address(address: str, *, guarded: bool) -> None:
    host, _ = split(address)
    if not guarded and not is_loopback(host):
        raise NotAllowed(
            f"{address} can be reached from other machines and TLS is off: give this node a "
            "certificate (tls_certificate, tls_key, tls_ca), listen on 127.0.0.1, or allow it "
            "with insecure"
        )


def door(listen: str) -> tuple[str | socket.socket, NodeId]:
    """Where to listen, and the address that a node has by it."""
    host, port = split(listen)
    if port:
        return listen, NodeId(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, 0), family=family)
    except OSError as error:
        raise CannotListen(f"{listen}: {error.strerror or error}; listen elsewhere") from error
    return sock, NodeId(f"{listen.rsplit(':', 1)[0]}:{sock.getsockname()[1]}")


def open_directory(path: str) -> OsDisk:
    """A directory that is empty or a node's, and no other process's."""
    directory = Path(path)
    try:
        found = list(directory.iterdir()) if directory.is_dir() else []
        if not all(OURS.fullmatch(each.name) for each in found):
            raise WrongFormat(
                f"{directory}: holds other files than a node's; give an empty or a new directory"
            )
        return OsDisk(directory)
    except OSError as error:
        raise WrongFormat(
            f"{directory}: {error.strerror or error}; give a directory that can be written"
        ) from error


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        facts = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": message.split(" ", 1)[0],
            "message": message,
        }
        if record.exc_info:
            facts["trace"] = self.formatException(record.exc_info)
        return json.dumps(facts)


def log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if settings.log_format == "json" else text)
    root = logging.getLogger("oncecast")
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    root.propagate = False
