"""Serve the application with uvicorn, within limits on connections, headers and time.

uvicorn waits for slow clients without limit. So each connection has a deadline for the head of a
request, and one for a response that the client does not read. Signals are left to the command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from oncecast.errors import CannotListen

if TYPE_CHECKING:
    from oncecast.network.tls import Tls
    from oncecast.web.app import Application

HEAD_BYTES_MAX = 17 << 10  # maximum size of an incomplete head; the guard limits a complete one
HEAD_SECONDS = 10.0  # time for the head to arrive
IDLE_SECONDS = 30  # time between two requests of a connection
UNREAD_SECONDS = 30.0  # time that a client may read nothing of a response
TLS_SECONDS = 15.0  # time for the TLS handshake
STOP_SECONDS = 3  # time for requests in progress to end
BACKLOG = 512


class Connection(H11Protocol):  # type: ignore[misc]
    """A connection that is closed if its client is too slow."""

    connections_max = 1000

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def expendable(self) -> bool:
        """Return whether the connection is idle, or waits for the body of a request."""
        return self.idle or (self.cycle.more_body and not self.cycle.response_started)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            # The connection that was last used the longest time ago gives way to the new one.
            oldest = next((each for each in self.server_state.order if each.expendable), self)
            oldest.transport.abort()
            self.server_state.order.pop(oldest, None)
        self.server_state.order[self] = None
        self._await_head()

    def connection_lost(self, error: Exception | None) -> None:
        self.server_state.order.pop(self, None)
        for timer in (self._head, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(error)

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.idle:
            self._await_head()
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self in self.server_state.order:  # it is now the connection that was used last
            del self.server_state.order[self]
            self.server_state.order[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self._late)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class Uvicorn(uvicorn.Server):  # type: ignore[misc]
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """Serves an application at an address. Use it in `async with`."""

    def __init__(
        self,
        app: Application,
        host: str,
        port: int,
        *,
        tls: Tls | None = None,
        connections_max: int = 1000,
    ) -> None:
        self._app, self._host, self._port, self._tls = app, host, port, tls
        self._protocol = type("Limited", (Connection,), {"connections_max": connections_max})
        self._server: Uvicorn | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    # Long because it lists all settings of the server, and starts it without its signal handlers.
    async def __aenter__(self) -> Self:
        for name in ("uvicorn.error", "uvicorn.access"):  # a hostile client could fill the log
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        server = self._server = Uvicorn(self._configured())
        server.lifespan = server.config.lifespan_class(server.config)
        server.server_state.order = {}  # connections, those used last at the end
        listener = await self._listen(server)
        server.servers, server.started = [listener], True
        self._port = listener.sockets[0].getsockname()[1]
        self._ticking = asyncio.create_task(server.main_loop())
        return self

    def _configured(self) -> uvicorn.Config:
        config = uvicorn.Config(
            self._app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        return config

    async def _listen(self, server: Uvicorn) -> asyncio.Server:
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            protocol: asyncio.Protocol = self._protocol(
                config=server.config, server_state=server.server_state, app_state={}, _loop=loop
            )
            return protocol

        try:
            return await loop.create_server(
                connection,
                self._host,
                self._port,
                ssl=self._tls.server if self._tls else None,
                ssl_handshake_timeout=TLS_SECONDS if self._tls else None,
                backlog=BACKLOG,
            )
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from error

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._ticking is not None
        self._server.should_exit = True
        await self._ticking
        await self._app.close()
        await self._server.shutdown()
