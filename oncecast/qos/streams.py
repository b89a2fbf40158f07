"""Streams between nodes: each may write to some and read others, with the qualities that it chose.

Needs NeighborUp and NeighborDown of all nodes that take part. Serves what events.py lists.

Every node tells its neighbours what it has opened; who offers what another requests is matched, and
both are told if not (DDS-1). A writer sends each value once to each matched reader. Reliable ones
are told now and then how far it is, and say what they lack; so in the absence of failures nothing
is sent twice. Of a writer that is suspected, the readers of an agreed stream compare what they have
(DDS-3).
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.qos.events import (
    STREAMS_MAX,
    Acks,
    Beat,
    CloseReader,
    CloseWriter,
    Data,
    Endpoint,
    Endpoints,
    Gaps,
    Known,
    Matched,
    Mismatched,
    NotWritten,
    OpenReader,
    OpenWriter,
    Side,
    StreamMessage,
    Unmatched,
    Write,
)
from oncecast.qos.policies import mismatches
from oncecast.qos.reading import Reader
from oncecast.qos.writing import Writer


class Turn(Value):
    """Timer."""


class Streams(Protocol):
    name = "streams"
    Request = OpenWriter | OpenReader | Write | CloseWriter | CloseReader
    Message = StreamMessage
    Observed = NeighborUp | NeighborDown
    Timer = Turn

    def __init__(self, me: NodeId, rng: Random, *, every: float = 0.1) -> None:
        super().__init__(me, rng)
        self._every = every
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self._peers: dict[NodeId, Endpoints] = {}
        self._suspected: dict[NodeId, None] = {}  # writers that some stream remembers
        self._told: dict[tuple[str, Side, NodeId], tuple[str, ...] | None] = {}

    def start(self) -> None:
        self.later(self._every, Turn())

    # -- what the application asks for --

    def request(self, request: OpenWriter | OpenReader | Write | CloseWriter | CloseReader) -> None:
        match request:
            case OpenWriter(stream, qos):
                if stream not in self.writers and len(self.writers) < STREAMS_MAX:
                    life = self.rng.getrandbits(62) + 1
                    self.writers[stream] = Writer(self, Endpoint(stream, life, qos.checked()))
                    self._announce()
            case OpenReader(stream, qos):
                if stream not in self.readers and len(self.readers) < STREAMS_MAX:
                    life = self.rng.getrandbits(62) + 1
                    self.readers[stream] = Reader(self, Endpoint(stream, life, qos.checked()))
                    self._announce()
            case Write(stream, ticket):
                writer = self.writers.get(stream)
                if writer is None:
                    why = f"stream {stream!r} has no writer here; open one first"
                    self.emit(NotWritten(stream, ticket, why))
                else:
                    writer.write(request)
            case CloseWriter(stream):
                if self.writers.pop(stream, None) is not None:
                    self._announce()
            case CloseReader(stream):
                if self.readers.pop(stream, None) is not None:
                    self._announce()
            case _:
                assert_never(request)

    # -- who is there, and what it has opened --

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        if isinstance(event, NeighborUp):
            self._peers[event.peer] = Endpoints((), ())
            self._suspected.pop(event.peer, None)
            self.send(event.peer, self._endpoints())
        else:
            self._peers.pop(event.peer, None)
            self._suspected[event.peer] = None
            self._match_all()
            self._tell_known(event.peer)

    def _endpoints(self) -> Endpoints:
        writers = tuple(each.endpoint for each in self.writers.values())
        return Endpoints(writers, tuple(each.endpoint for each in self.readers.values()))

    def _announce(self) -> None:
        for peer in self._peers:
            self.send(peer, self._endpoints())
        self._match_all()

    def _match_all(self) -> None:
        mine = self._endpoints()
        peers = {**self._peers, self.me: mine}
        for stream, writer in self.writers.items():
            there = {
                peer: endpoint
                for peer, theirs in peers.items()
                for endpoint in theirs.readers
                if endpoint.stream == stream
            }
            self._match(writer, "writer", there)
        for stream, reader in self.readers.items():
            there = {
                peer: endpoint
                for peer, theirs in peers.items()
                for endpoint in theirs.writers
                if endpoint.stream == stream
            }
            self._match(reader, "reader", there)

    def _match(self, end: Writer | Reader, side: Side, there: dict[NodeId, Endpoint]) -> None:
        stream = end.endpoint.stream
        matched = end.readers if isinstance(end, Writer) else end.sources
        for peer, endpoint in there.items():
            pair = (end.endpoint, endpoint) if side == "writer" else (endpoint, end.endpoint)
            less = mismatches(pair[0].qos, pair[1].qos)
            known = matched.get(peer)
            life = known.life if known is not None else 0
            if less:
                if self._told.get((stream, side, peer)) != less:
                    self._told[stream, side, peer] = less
                    self.emit(Mismatched(stream, side, peer, less))
            elif known is None or life != endpoint.life:
                end.match(peer, endpoint)
                if self._told.get((stream, side, peer)) != ():
                    self._told[stream, side, peer] = ()
                    self.emit(Matched(stream, side, peer))
        for peer in [each for each in matched if each not in there]:
            end.unmatch(peer)
            if self._told.pop((stream, side, peer), None) == ():
                self.emit(Unmatched(stream, side, peer))

    # -- what peers say --

    def receive(self, sender: NodeId, message: StreamMessage) -> None:
        match message:
            case Endpoints():
                if sender in self._peers:
                    self._peers[sender] = message
                    self._match_all()
            case Acks(stream, life):
                writer = self.writers.get(stream)
                if writer is not None and writer.endpoint.life == life:
                    writer.acked(sender, message)
            case Data(stream):
                if stream in self.readers:
                    self.readers[stream].data(sender, message)
            case Gaps(stream):
                if stream in self.readers:
                    self.readers[stream].gaps(message)
            case Beat(stream):
                if stream in self.readers:
                    self.readers[stream].beat(sender, message)
            case Known(stream):
                if stream in self.readers:
                    self.readers[stream].known(sender, message)
            case _:
                assert_never(message)

    # -- time --

    def timeout(self, timer: Turn) -> None:
        self.later(self._every, timer)
        for writer in self.writers.values():
            writer.tick()
            writer.beat()
            writer.look_at_deadlines()
        for reader in self.readers.values():
            reader.tick()
        for peer in self._suspected:
            self._tell_known(peer)

    def _tell_known(self, writer: NodeId) -> None:
        for stream, reader in self.readers.items():
            others = [
                peer
                for peer, theirs in self._peers.items()
                if any(each.stream == stream for each in theirs.readers)
            ]
            reader.tell_known(writer, others)
