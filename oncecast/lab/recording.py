"""A client that records the operations of its application and their results.

    with open("ann.jsonl", "ab", buffering=0) as file:
        recorder = Recorder(time.monotonic, Writer(file))
        async with RecordedClient(recorder, "127.0.0.1:7400", name="ann") as client:
            ...

`oncecast history check ann.jsonl bob.jsonl` then checks the files of all clients together. See
docs/history.md for the checks and the requirements on clients.

Each put is recorded as part of the batch that the client sends. Each message is recorded when the
application gets it. Calls about the group or the ring are not recorded.
"""

# ruff: noqa: ASYNC109  # a timeout is part of the interface

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from oncecast.client.client import Client
from oncecast.client.running import Running
from oncecast.client.session.client import ClientSession
from oncecast.client.subscription import Subscription
from oncecast.history.recorder import Recorder
from oncecast.history.session import SessionHistory
from oncecast.kernel.protocol import Value
from oncecast.network.tls import Tls
from oncecast.wire.message import Message

TOGETHER = 256  # maximum number of single messages that share one recorded operation
SHORTLY = 0.05  # seconds after the first message in which further messages may share the operation


class Recording:
    """The history of one client: its requests, its events, and the messages it received."""

    def __init__(self, recorder: Recorder, session: ClientSession) -> None:
        self._recorder, self._session = recorder, session
        self._loop = asyncio.get_running_loop()
        self._history: SessionHistory | None = None
        self._got: list[Message] = []  # messages of a subscription that are not recorded yet
        self._got_by: Subscription | None = None
        self._got_since = 0.0

    def asked(self, request: Value) -> None:
        self._recorded().asked(request)

    def heard(self, event: Value) -> None:
        self._recorded().heard(event)

    def took(self, subscription: Subscription, messages: list[Message]) -> None:
        """Record messages that the application has received.

        Messages received one by one share an operation, unless another event is recorded between
        them.
        """
        now = self._loop.time()
        if self._got_by is not subscription or now > self._got_since + SHORTLY:
            self._recorded()
        if not self._got:
            self._got_by, self._got_since = subscription, now
        self._got += messages
        if len(self._got) >= TOGETHER:
            self._recorded()

    def settle(self) -> None:
        if self._history is not None:
            self._recorded().settle()

    def _recorded(self) -> SessionHistory:
        """Return the history. It begins with the first request, when the session has a name."""
        if self._history is None:
            identity = self._session.identity
            name = f"{identity.producer}~{(identity.directory_id or identity.incarnation)[:8]}"
            self._history = SessionHistory(self._recorder, name, self._session, deliveries=False)
        if self._got and self._got_by is not None:
            got, self._got = self._got, []
            self._history.took(self._got_by.topic, self._got_by.name, got)
        return self._history


class RecordedClient(Client):
    """A Client that passes its operations to `recorder`. The other arguments are those of Client.

    The clients of one process may share a recorder.
    """

    def __init__(
        self,
        recorder: Recorder,
        address: str,
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
        super().__init__(
            address,
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
        self._recorder = recorder
        self._recording: Recording | None = None
        self._assemble = partial(
            Running,
            make_subscription=self._subscription,
            observe=self._observe,
        )

    def _subscription(self, *arguments: Any, **options: Any) -> Subscription:
        made = RecordedSubscription(*arguments, **options)
        made.client = self
        return made

    def _observe(self, session: ClientSession) -> Recording:
        self._recording = Recording(self._recorder, session)
        return self._recording

    def took(self, subscription: Subscription, messages: list[Message]) -> None:
        assert self._recording is not None
        self._recording.took(subscription, messages)

    async def close(self, *, ack: bool = True, timeout: float | None = None) -> None:
        await super().close(ack=ack, timeout=timeout)
        if self._recording is not None:
            self._recording.settle()


class RecordedSubscription(Subscription):
    client: RecordedClient

    async def get(self, timeout: float | None = None) -> Message | None:
        message = await super().get(timeout)
        if message is not None:
            self.client.took(self, [message])
        return message

    async def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        messages = await super().get_many(count, timeout)
        if messages:
            self.client.took(self, messages)
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for message in super().__aiter__():
            self.client.took(self, [message])
            yield message
