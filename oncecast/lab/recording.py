"""A client that records the operations of its application and their results.

    with open("ann.jsonl", "ab", buffering=0) as file:
        recorder = Recorder(time.monotonic, Writer(file))
        async with RecordedClient(recorder, "127.0.0.1:7400", name="ann") as client:
            ...

`oncecast history check ann.jsonl bob.jsonl` then checks the files of all clients together. See
docs/history.md for the checks and for what the clients must share.

Each put is recorded as part of the batch that the client sends. Each message is recorded when the
application gets it. Calls about the group or the ring are not recorded.
"""

# ruff: noqa: ASYNC109  # a timeout is part of the interface

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from oncecast.client.client import Client
from oncecast.client.subscription import Subscription
from oncecast.history.recorder import Recorder
from oncecast.history.session import SessionHistory
from oncecast.kernel.protocol import Value
from oncecast.wire.batch import Message

TOGETHER = 256  # single messages that share one recorded operation
SHORTLY = 0.05  # seconds that they may be apart


class RecordedClient(Client):
    """A Client that gives its operations to `recorder`. The other arguments are those of Client.

    Clients of one process may share a recorder.
    """

    def __init__(self, recorder: Recorder, address: str, **options: Any) -> None:
        super().__init__(address, **options)
        self.subscription_type = RecordedSubscription
        self._recorder = recorder
        self._history: SessionHistory | None = None
        self._got: list[Message] = []  # from one subscription, not recorded yet
        self._got_by: Subscription | None = None
        self._got_since = 0.0

    def _ask(self, request: Value) -> None:
        self._recorded().asked(request)
        super()._ask(request)

    def _hear(self, event: Value) -> None:
        self._recorded().heard(event)
        super()._hear(event)

    async def close(self, *, ack: bool = True, timeout: float | None = None) -> None:
        await super().close(ack=ack, timeout=timeout)
        if self._history is not None:
            self._recorded().settle()

    def took(self, subscription: Subscription, messages: list[Message]) -> None:
        """Record messages that the application got.

        Messages got one by one share an operation, unless something else is recorded in between.
        """
        now = self.loop.time()
        if self._got_by is not subscription or now > self._got_since + SHORTLY:
            self._recorded()
        if not self._got:
            self._got_by, self._got_since = subscription, now
        self._got += messages
        if len(self._got) >= TOGETHER:
            self._recorded()

    def _recorded(self) -> SessionHistory:
        if self._history is None:
            session = self._session
            name = f"{session.producer}~{(session.books or session.life)[:8]}"
            self._history = SessionHistory(self._recorder, name, session, deliveries=False)
        if self._got and self._got_by is not None:
            got, self._got = self._got, []
            self._history.took(self._got_by.topic, self._got_by.name, got)
        return self._history


class RecordedSubscription(Subscription):
    async def get(self, timeout: float | None = None) -> Message | None:
        message = await super().get(timeout)
        if message is not None:
            self._took_note([message])
        return message

    async def get_many(self, count: int, timeout: float | None = None) -> list[Message]:
        messages = await super().get_many(count, timeout)
        if messages:
            self._took_note(messages)
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for message in super().__aiter__():
            self._took_note([message])
            yield message

    def _took_note(self, messages: list[Message]) -> None:
        assert isinstance(self._client, RecordedClient)
        self._client.took(self, messages)
