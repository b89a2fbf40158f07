"""Put messages of named producers exactly once.

The name and the sequence numbers of a producer come from the request, and the topic keeps the
record of the producer. So a repeated request is stored once, also through another web process. The
incarnation is the same in every process. A producer of another kind with this name is not taken
over.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from oncecast.errors import Fenced, Unopened
from oncecast.web.backend import Backend
from oncecast.wire import commands as do
from oncecast.wire.results import Already, Appended, Opened
from oncecast.wire.timing import Timing

INCARNATION = "http"
KNOWN_MAX = 10_000  # maximum producers whose epoch is remembered; others are opened again


class Stored(NamedTuple):
    offset: int  # -1 if it is unknown
    messages: int
    new: bool
    kept: bool | None


class Producers:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._epochs: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def put(
        self,
        topic: str,
        producer: str,
        sequence: int,
        count: int,
        batch: bytes,
        timing: Timing | None,
    ) -> Stored:
        key = (topic, producer)
        known = self._epochs.get(key)
        epoch = known or await self._open(key)
        try:
            return await self._put(key, epoch, sequence, count, batch, timing)
        except (Unopened, Fenced):
            # The topic was recreated, the record was idle for too long, or another client had the
            # name for a while.
            self._epochs.pop(key, None)
            if known is None:
                raise
        return await self._put(key, await self._open(key), sequence, count, batch, timing)

    async def _open(self, key: tuple[str, str]) -> int:
        topic, producer = key
        opened: Opened = await self._backend.call(
            do.OpenProducer(topic, producer, INCARNATION, 0, directory_id=INCARNATION, expected=0)
        )
        self._epochs[key] = opened.epoch
        if len(self._epochs) > KNOWN_MAX:
            self._epochs.popitem(last=False)
        return opened.epoch

    async def _put(
        self,
        key: tuple[str, str],
        epoch: int,
        sequence: int,
        count: int,
        batch: bytes,
        timing: Timing | None,
    ) -> Stored:
        names = (*key, epoch, sequence, count, len(batch), 0, batch)
        put = do.Put(*names) if timing is None else do.TimedPut(*names, timing)
        result: Appended | Already = await self._backend.call(put)
        if isinstance(result, Appended):
            return Stored(result.offset, count, True, result.kept)
        return Stored(result.offset, count, False, None)
