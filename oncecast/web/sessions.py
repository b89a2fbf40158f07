"""Client sessions, one for each user.

Each request acts as the user that it logs in as. A session is a client with the credentials of the
request, so the nodes check the login and the permissions. Later requests with the same credentials
share the session. Requests without credentials act as the user of the process, unless logins are
required.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec.structs import replace

from oncecast.client.client import Client
from oncecast.client.options import ClientOptions
from oncecast.client.relay import check_password
from oncecast.errors import (
    InvalidArgument,
    NotAuthenticated,
    NotConnected,
    OncecastError,
    Overloaded,
)
from oncecast.web.backend import Backend
from oncecast.web.census import Census
from oncecast.web.limits import Limits
from oncecast.web.producers import Producers
from oncecast.web.readers import Readers
from oncecast.web.workers import Workers

NOBODY = b""  # the key of the session without credentials
TIDY_SECONDS = 1.0
CHECK_AFTER = 60.0  # seconds after which a node checks a password again
TLS = "use a server with --listen-tls"
REMEDY = "log in with Basic authentication or a Bearer token"


class Credentials(NamedTuple):
    user: str | None = None
    password: str | None = None
    token: str | None = None


def credentials_of(header: str) -> Credentials:
    """Return the credentials in an Authorization header, or raise NotAuthenticated."""
    scheme, _, rest = header.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer" and rest:
        return Credentials(token=rest)
    if scheme.lower() == "basic":
        with suppress(binascii.Error, UnicodeDecodeError):
            user, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
            if colon and user and password:
                return Credentials(user, password)
    raise NotAuthenticated("the Authorization header is not valid", REMEDY)


class Session:
    """One user's client, and what the HTTP requests of this user need between requests."""

    def __init__(
        self,
        client: Client,
        *,
        user: str | None,
        owned: bool,  # whether this object opens and closes the client
        password: str | None = None,
    ) -> None:
        self.client, self.user, self._owned, self._password = client, user, owned, password
        self._checked = 0.0
        self._checking: asyncio.Task[None] | None = None
        self.backend = Backend(client)
        self.census = Census(client, self.backend)
        self.producers = Producers(self.backend)
        self.readers = Readers(self.backend)
        self.workers = Workers(client, self.backend)
        self.using = 0  # requests in progress
        self.used = 0.0

    @contextmanager
    def use(self) -> Iterator[None]:
        self.using += 1
        try:
            yield
        finally:
            self.using -= 1
            self.used = asyncio.get_running_loop().time()

    @property
    def failed(self) -> bool:
        return self.client.closed is not None

    async def open(self) -> None:
        if self._owned:
            await self.client.__aenter__()
        self._checked = asyncio.get_running_loop().time()

    async def check(self) -> None:
        """Let a node check the password again after some time. Raise NotAuthenticated."""
        now = asyncio.get_running_loop().time()
        if self._password is None or now - self._checked < CHECK_AFTER:
            return
        if self._checking is None:
            self._checking = asyncio.create_task(self._check())
            self._checking.add_done_callback(lambda _: setattr(self, "_checking", None))
        await asyncio.shield(self._checking)

    async def _check(self) -> None:
        assert self.user is not None
        assert self._password is not None
        with suppress(NotConnected, TimeoutError, OSError):  # the request will show it
            await check_password(self.client.options, self.user, self._password)
        self._checked = asyncio.get_running_loop().time()

    async def close(self) -> None:
        await self.workers.close()
        if self._owned:
            with suppress(OncecastError):
                await self.client.close(ack=False, timeout=1.0)


class Sessions:
    def __init__(
        self,
        source: Client | ClientOptions,
        limits: Limits,
        *,
        login: bool,  # whether each request must log in
        passwords: bool = True,  # False if passwords would cross a network in clear text
    ) -> None:
        self._source, self._limits = source, limits
        self._login, self._passwords = login, passwords
        self._secret = secrets.token_bytes(32)
        self._open: dict[bytes, asyncio.Task[Session]] = {}
        self._logins = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._tidier: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def of(self, authorization: str | None) -> Session:
        """Return the session for this Authorization header, which may be missing."""
        if isinstance(self._source, Client):
            return await self._session(NOBODY, None)  # the application checks its own users
        if authorization is None:
            if self._login:
                raise NotAuthenticated("this server requires a login", REMEDY)
            return await self._session(NOBODY, None)
        if not self._passwords:
            raise NotAuthenticated("this server does not use TLS, so it accepts no login", TLS)
        credentials = credentials_of(authorization)
        key = hmac.digest(self._secret, repr(credentials).encode(errors="replace"), "sha256")
        return await self._session(key, credentials)

    async def ready(self) -> None:
        if not self._login:
            await self._session(NOBODY, None)

    async def _session(self, key: bytes, credentials: Credentials | None) -> Session:
        task = self._open.get(key)
        if task is not None and task.done() and task.result().failed:
            self._drop(key)
            task = None
        if task is None:
            task = self._begin(key, credentials)
        session = await asyncio.shield(task)
        try:
            await session.check()
        except NotAuthenticated:
            if self._open.get(key) is task:
                self._drop(key)
            raise
        return session

    def _begin(self, key: bytes, credentials: Credentials | None) -> asyncio.Task[Session]:
        if credentials is not None:
            if self._logins >= self._limits.logins:
                raise Overloaded(f"logins in progress (limit {self._limits.logins})")
            if len(self._open) > self._limits.sessions and not self._evict():
                raise Overloaded(f"users that are logged in (limit {self._limits.sessions})")
        task = self._open[key] = asyncio.create_task(self._opened(credentials))
        task.add_done_callback(lambda done: self._begun(key, done))
        if self._tidier is None:
            self._tidier = task.get_loop().call_later(TIDY_SECONDS, self._tidy)
        return task

    def _begun(self, key: bytes, task: asyncio.Task[Session]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._open.get(key) is task:
            del self._open[key]

    async def _opened(self, credentials: Credentials | None) -> Session:
        if isinstance(self._source, Client):
            return Session(self._source, user=None, owned=False)
        options = self._source
        if credentials is None:
            session = Session(Client.of(options), user=options.user, owned=True)
            await session.open()
            return session
        self._logins += 1
        try:
            user, password, token = credentials
            named = {"user": user, "password": password, "token": token}
            # Nothing of the process's own identity may remain.
            own = {"name": None, "state": None, "secret": None, "node": "", "acts_for": ""}
            client = Client.of(replace(options, **own, **named))
            session = Session(client, user=user, owned=True, password=password)
            await session.open()
        except InvalidArgument as error:
            raise NotAuthenticated(error.message, error.remedy) from None
        finally:
            self._logins -= 1
        return session

    # -- the end of sessions --

    def _idle(self) -> Iterator[tuple[bytes, Session]]:
        """Yield the sessions that no request and no job needs, the oldest first."""
        done = [(key, task.result()) for key, task in self._open.items() if task.done() and key]
        free = [(key, each) for key, each in done if not each.using and not each.workers.busy]
        yield from sorted(free, key=lambda pair: pair[1].used)

    def _evict(self) -> bool:
        for key, _ in self._idle():
            self._drop(key)
            return True
        return False

    def _tidy(self) -> None:
        loop = asyncio.get_running_loop()
        for task in self._open.values():
            if task.done():
                task.result().workers.tidy(loop.time())
        for key, session in self._idle():
            if loop.time() - session.used > self._limits.session_idle:
                self._drop(key)
        self._tidier = loop.call_later(TIDY_SECONDS, self._tidy)

    def _drop(self, key: bytes) -> None:
        task = self._open.pop(key)
        closing = asyncio.create_task(task.result().close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        if self._tidier is not None:
            self._tidier.cancel()
            self._tidier = None
        for key, task in list(self._open.items()):
            await asyncio.gather(task, return_exceptions=True)
            if key in self._open:
                self._drop(key)
        await asyncio.gather(*self._closing, return_exceptions=True)
