"""Let a Kafka client log in on its connection, before it gets a desk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from oncecast.client.options import ClientOptions
from oncecast.client.relay import LoginRelay, check_password
from oncecast.errors import Malformed, NotAuthenticated, OncecastError
from oncecast.kafka.connection import Connection
from oncecast.kafka.sasl import Begin, Check, Entrance, Prove, Respond, Step

Admit = Callable[[Connection, str], Awaitable[None]]  # prepares a desk for a user


class Reception:
    """Runs the logins of all connections."""

    def __init__(
        self,
        options: ClientOptions,
        mechanisms: tuple[str, ...],
        admit: Admit,
        log: Callable[[str], None],
    ) -> None:
        self._options, self._mechanisms, self._admit, self._log = options, mechanisms, admit, log
        self._visits: dict[int, Visit] = {}

    def opened(self, connection: Connection) -> None:
        connection.admitted = False
        visit = Visit(connection, Entrance(self._mechanisms), self._options, self._admit, self._log)
        self._visits[connection.number] = visit

    def received(self, number: int, data: bytes) -> None:
        self._visits[number].received(data)

    def left(self, number: int) -> None:
        """End the login of a connection that is closed or admitted."""
        visit = self._visits.pop(number, None)
        if visit is not None:
            visit.end()

    def __contains__(self, number: int) -> bool:
        return number in self._visits


class Visit:
    """The login of one connection."""

    def __init__(
        self,
        connection: Connection,
        entrance: Entrance,
        options: ClientOptions,
        admit: Admit,
        log: Callable[[str], None],
    ) -> None:
        self._connection, self._entrance = connection, entrance
        self._admit, self._log, self._options = admit, log, options
        self._relay: LoginRelay | None = None
        self._task: asyncio.Task[None] | None = None

    def received(self, data: bytes) -> None:
        try:
            step = self._entrance.received(data)
        except Malformed as error:
            self._close(str(error))
            return
        if isinstance(step, Respond):
            self._respond(step)
        else:
            self._task = asyncio.create_task(self._work(step))

    async def _work(self, step: Step) -> None:
        try:
            response = await self._outcome(step)
        except NotAuthenticated as error:
            response = self._entrance.refused(error.message)
        except (OncecastError, TimeoutError, OSError) as error:
            self._close(f"a login failed: {error!r}")
            return
        self._respond(response)

    async def _outcome(self, step: Step) -> Respond:
        """Let a node check the login. Return the response, or raise NotAuthenticated."""
        match step:
            case Begin(message):
                self._relay = LoginRelay(self._options)
                return self._entrance.challenged(await self._relay.begin(message))
            case Prove(message):
                assert self._relay is not None
                principal, answer = await self._relay.prove(message)
                self._relay.close()
                await self._admit(self._connection, principal)
                return self._entrance.finished(answer)
            case Check(user, password):
                principal = await check_password(self._options, user, password)
                await self._admit(self._connection, principal)
                return self._entrance.finished()
            case _:
                raise AssertionError(step)

    def _respond(self, response: Respond) -> None:
        if response.ends:
            self._connection.finish(response.data)
        else:
            self._connection.reply(response.data)

    def _close(self, why: str) -> None:
        self._log(f"closed connection {self._connection.number}: {why}")
        self._connection.close()

    def end(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
