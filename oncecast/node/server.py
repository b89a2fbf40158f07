"""A node as a process: its directory, its address, its signals, its log."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Iterable
from random import SystemRandom
from types import TracebackType
from typing import Self

from oncecast.kernel.protocol import NodeId, Value
from oncecast.node.assemble import VERSION, assemble
from oncecast.node.config import BadSetting, Settings, addresses
from oncecast.node.directory import Members, note, open_directory, recall, set_aside
from oncecast.node.following import (
    check_address,
    door,
    group_options_of,
    options_of,
    tls_of,
    warn_of_batches,
)
from oncecast.node.http import HttpDoor, Page
from oncecast.node.metrics import metrics, page
from oncecast.pubsub.limits import Limits
from oncecast.replication.events import Crippled, Diverged
from oncecast.runtime.addresses import split
from oncecast.runtime.errors import CannotListen
from oncecast.runtime.incidents import line
from oncecast.runtime.journal import Journal
from oncecast.runtime.network import Runtime
from oncecast.session.frames import Call, Fetch, Govern, Look, LookGroup, Scan
from oncecast.session.governing import News, role_of, view_of
from oncecast.storage.errors import Corrupt

logger = logging.getLogger("oncecast.node")


class Server:
    """A node in this process. Either `await run()`, which ends by a signal, or `async with` it."""

    def __init__(self, settings: Settings) -> None:
        """Open the directory and recover what it holds; nobody is let in yet."""
        self.settings = settings
        self._tls = tls_of(settings)
        for address in filter(None, (settings.listen, settings.http)):
            check_address(address, guarded=settings.insecure or self._tls is not None)
        self._disk = open_directory(settings.data)
        self._noted: tuple[NodeId, ...] = ()  # the group, as the directory says
        try:
            self._listen, self.me = door(settings)
            self._recover()
        except BaseException:
            self._disk.close()
            raise
        self.runtime = Runtime(
            self.parts.stack,
            me=self.me,
            listen=self._listen,
            journal=self.journal,
            on_event=self._hear,
            tls=self._tls,
            insecure=settings.insecure,
            clients=(Call, Fetch, Look, Scan, LookGroup, Govern),
            options=options_of(settings),
        )
        self._http = HttpDoor({"/metrics": self._metrics, "/health": self._health})
        self.http_port = 0

    # -- what the directory holds --

    def _recover(self) -> None:
        """One that cannot be read is set aside, if there are others who have it all."""
        path, known = self.settings.data, recall(self.settings.data)
        joined = tuple(map(NodeId, addresses(self.settings.join)))
        if joined and not without(joined, self.me):
            raise BadSetting(f"join: {self.me} is this node itself; name another one, or none")
        contacts = without((*(known.members if known else ()), *joined), self.me)
        try:
            self._restore(contacts)
        except (Corrupt, Crippled) as damage:
            others = without(known.members, self.me, known.me) if known else joined
            if not others:
                raise
            self._disk.close()
            aside = set_aside(path)
            facts = {"data": path, "to": aside, "why": damage, "joins": ",".join(others)}
            logger.error(line("set_aside", facts))
            self._disk = open_directory(path)
            self._restore(without((*others, *joined), self.me))

    def _restore(self, contacts: tuple[NodeId, ...]) -> None:
        settings = self.settings
        self.parts = assemble(
            self.me,
            SystemRandom(),
            epoch_us=time.time_ns() // 1000 - int(time.monotonic() * 1e6),
            limits=Limits(batch_bytes_max=settings.batch_bytes_max),
            snapshot_bytes=settings.snapshot_bytes,
            window_bytes=settings.window_bytes,
            options=group_options_of(settings),
            contacts=contacts,
        )
        assert self.parts.governor is not None
        self.group = self.parts.governor.group
        self.journal = Journal.open(self._disk, self.parts.stack)
        self.parts.gateway.room = lambda: self.journal.log.room
        self._note_group()
        if self.group.damage:
            logger.warning(line("damaged", {"data": settings.data, "what": self.group.damage}))

    def _note_group(self) -> None:
        """So that it still knows whom to ask, should it lose all else."""
        nodes = self.group.nodes()
        if nodes and nodes != self._noted:
            note(self.settings.data, Members(self.me, nodes))
            self._noted = nodes

    # -- life --

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; then everything is made durable and sent."""
        try:
            await self._open_http()
            await self.runtime.run()
        except Diverged as error:
            logger.error(line("diverged", {"why": error}))
            raise
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
        if self.group.contacts or self.group.others():
            warn_of_batches(self.settings)
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

    # -- what it tells --

    def _hear(self, event: Value) -> None:
        if isinstance(event, News):
            self._note_group()
            facts = {"node": event.node or "nobody", "applied": self.group.applied}
            level = logging.WARNING if event.what == "suspected" else logging.INFO
            logger.log(level, line(event.what, facts))
            if event.what == "leader":
                self._compare_later()

    def _compare_later(self) -> None:
        """Who leads has its limits decided first of all; until then nobody knows them."""
        asyncio.get_running_loop().call_later(self.settings.suspicion, self._compare_limits)

    def _compare_limits(self) -> None:
        group, ours = self.group, self.settings.batch_bytes_max
        if group.leader in ("", self.me) or self.runtime.stopping:
            return
        if not group.seated or group.applied < group.known:
            self._compare_later()
            return
        theirs = self.parts.service.machine.registry.limits.batch_bytes_max
        if theirs != ours:
            remedy = "give all nodes the same, or this one cannot take what the leader takes"
            facts = {"setting": "batch_bytes_max", "here": ours, "leader": theirs}
            logger.error(line("differs", {**facts, "remedy": remedy}))

    def _metrics(self) -> Page:
        found = metrics(self.parts, self.journal, self.runtime.stats)
        return Page(200, "text/plain; version=0.0.4", page(found))

    def _health(self) -> Page:
        status, word = (503, "draining") if self.runtime.stopping else (200, "ok")
        view = view_of(self.group, asyncio.get_running_loop().time())
        health = {
            "status": word,
            "node": self.me,
            "version": VERSION,
            "role": role_of(self.group),
            "leader": view.leader,
            "quorum": view.quorum,
        }
        return Page(status, "application/json", json.dumps(health) + "\n")


def without(nodes: Iterable[NodeId], *others: NodeId) -> tuple[NodeId, ...]:
    """Each once, and none of the others."""
    return tuple(node for node in dict.fromkeys(nodes) if node not in others)
