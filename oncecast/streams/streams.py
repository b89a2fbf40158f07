"""The streams of a node: open its writers and readers, and pass events to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import TYPE_CHECKING

from oncecast.errors import NotOpen, Stopped
from oncecast.kernel.protocol import Value
from oncecast.streams.persistent import PersistentReader, PersistentWriter
from oncecast.streams.protocols import streams
from oncecast.streams.protocols.events import (
    STREAMS_MAX,
    DeadlineMissed,
    LimitReached,
    Liveliness,
    Matched,
    Mismatched,
    NotWritten,
    OpenReader,
    OpenWriter,
    SamplesLost,
    SamplesRejected,
    Side,
    Stable,
    Unmatched,
    Written,
)
from oncecast.streams.protocols.policies import Durability, QoS
from oncecast.streams.reader import Reader
from oncecast.streams.writer import Writer

if TYPE_CHECKING:
    from oncecast.streams.host import Host


class Stream:
    """A stream name with a QoS. A node has at most one writer and one reader of a stream."""

    def __init__(self, streams: Streams, name: str, qos: QoS) -> None:
        self._streams, self.name, self.qos = streams, name, qos

    def writer(self) -> Writer:
        """Open the writer. Raise NotOpen if this node already has a writer of the stream."""
        return self._streams.open_writer(self.name, self.qos)

    def reader(self) -> Reader:
        """Open the reader. Raise NotOpen if this node already has a reader of the stream."""
        return self._streams.open_reader(self.name, self.qos)


class Streams:
    """The writers and readers of a node, by stream name."""

    def __init__(self, node: Host, pure: streams.Streams) -> None:
        self._node, self._pure = node, pure
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}

    def open_writer(self, name: str, qos: QoS) -> Writer:
        self._check(name, "writer", self.writers)
        if qos.durability == Durability.PERSISTENT:
            writer: Writer = PersistentWriter(self._node, name, qos, self._node.client_for(name))
        else:
            writer = Writer(self._node, name, qos)
        self.writers[name] = writer
        self._node.request(OpenWriter(name, qos))
        writer.opened(self._pure.writers[name])
        return writer

    def open_reader(self, name: str, qos: QoS) -> Reader:
        self._check(name, "reader", self.readers)
        if qos.durability == Durability.PERSISTENT:
            reader: Reader = PersistentReader(self._node, name, qos, self._node.client_for(name))
        else:
            reader = Reader(self._node, name, qos)
        self.readers[name] = reader
        self._node.request(OpenReader(name, qos))
        reader.opened(self._pure.readers[name])
        return reader

    def _check(self, name: str, side: Side, opened: Sized) -> None:
        if self._node.stopping:
            raise Stopped
        if name in (self.writers if side == "writer" else self.readers):
            raise NotOpen(
                name, f"this process already has a {side}", f"use that {side}, or close it first"
            )
        if len(opened) >= STREAMS_MAX:
            raise NotOpen(
                name, f"too many {side}s are open (limit {STREAMS_MAX:,})", "close one first"
            )

    def forget(self, endpoint: Writer | Reader) -> None:
        endpoints = self.writers if isinstance(endpoint, Writer) else self.readers
        endpoints.pop(endpoint.name, None)

    def remote_streams(self) -> list[str]:
        """Return the streams that other nodes have opened, as far as this node knows."""
        peers = self._pure.peers.values()
        return sorted({each.stream for peer in peers for each in peer.writers + peer.readers})

    async def close(self, linger: float) -> None:
        """Close all readers and writers. Wait up to `linger` seconds for all values to arrive."""
        readers, writers = list(self.readers.values()), list(self.writers.values())
        for reader in readers:
            reader.close()
        endpoints = [*(each.ended() for each in readers), *(each.close(linger) for each in writers)]
        await asyncio.gather(*endpoints, return_exceptions=True)

    def stopped(self) -> None:
        for reader in self.readers.values():
            reader.arrived()

    def arrived(self, stream: str) -> None:
        if stream in self.readers:
            self.readers[stream].arrived()

    def on_event(self, event: Value) -> None:
        match event:
            case Written() | NotWritten() | Stable():
                if event.stream in self.writers:
                    self.writers[event.stream].answered(event)
            case Liveliness() | SamplesLost() | SamplesRejected():
                if event.stream in self.readers:
                    self.readers[event.stream].on_event(event)
            case Matched() | Mismatched() | Unmatched() | DeadlineMissed() | LimitReached():
                endpoints = self.writers if event.side == "writer" else self.readers
                if event.stream in endpoints:
                    endpoints[event.stream].on_event(event)
            case _:
                pass  # an event of another layer
