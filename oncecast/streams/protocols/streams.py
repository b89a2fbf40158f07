"""Connect the writers and readers of different nodes, matched by quality of service.

Needs NeighborUp and NeighborDown of all nodes that take part. Serves the requests in events.py.

Every node announces its writers and readers to its neighbors. A compatible writer and reader are
matched. For an incompatible pair, both sides get an event (DDS-1). A writer sends each value once
to each matched reader, within a window. It sends heartbeats with its progress, and reliable readers
answer with the numbers that they lack. Without failures, no value is sent twice. If a writer is
suspected, the readers of an agreed stream exchange their values (DDS-3).

Persistent readers receive nothing from writers. The layer above writes the values to a durable
topic, and feeds the readers from that topic.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, assert_never

from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.streams.protocols.events import (
    STREAMS_MAX,
    Acks,
    Beat,
    CloseReader,
    CloseWriter,
    Data,
    Endpoint,
    Endpoints,
    Feed,
    Known,
    Matched,
    Mismatched,
    NotWritten,
    OpenReader,
    OpenWriter,
    Side,
    StreamMessage,
    StreamRequest,
    Took,
    Unmatched,
    Write,
)
from oncecast.streams.protocols.policies import QoS, mismatches
from oncecast.streams.protocols.reading import Reader
from oncecast.streams.protocols.writing import Writer


class Tick(Value):
    """Timer: send heartbeats, and check deadlines and lifespans."""


class Streams(Protocol):
    name = "streams"
    Request = StreamRequest
    Message = StreamMessage
    Observed: ClassVar = NeighborUp | NeighborDown
    Timer = Tick

    def __init__(self, me: NodeId, rng: Random, *, every: float = 0.1) -> None:
        super().__init__(me, rng)
        self._every = every
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self.peers: dict[NodeId, Endpoints] = {}
        self._unheard: dict[NodeId, None] = {}  # peers that have not sent Endpoints
        self._suspected: dict[NodeId, None] = {}  # writers of agreed streams
        # The mismatched qualities that were reported last, or () if the pair is matched.
        self._reported: dict[tuple[str, Side, NodeId], tuple[str, ...]] = {}
        self._timer_set = False

    # -- requests --

    def request(self, request: StreamRequest) -> None:
        match request:
            case Write():
                self._write(request)
            case Took(stream):
                if stream in self.readers:
                    self.readers[stream].took()
            case Feed(stream, samples):
                if stream in self.readers:
                    self.readers[stream].feed(samples)
            case OpenWriter(stream, qos):
                if stream not in self.writers and len(self.writers) < STREAMS_MAX:
                    self.writers[stream] = Writer(self, self._endpoint(stream, qos))
                    self._announce()
            case OpenReader(stream, qos):
                if stream not in self.readers and len(self.readers) < STREAMS_MAX:
                    self.readers[stream] = Reader(self, self._endpoint(stream, qos))
                    self._announce()
            case CloseWriter(stream):
                if self.writers.pop(stream, None) is not None:
                    self._forget(stream, "writer")
            case CloseReader(stream):
                if self.readers.pop(stream, None) is not None:
                    self._forget(stream, "reader")
            case _:
                assert_never(request)

    def _write(self, write: Write) -> None:
        writer = self.writers.get(write.stream)
        if writer is not None:
            writer.write(write)
        else:
            reason = "this process has no writer for the stream; open one first"
            self.emit(NotWritten(write.stream, write.ticket, reason))

    def _endpoint(self, stream: str, qos: QoS) -> Endpoint:
        if not self._timer_set:
            self._timer_set = True
            self.later(self._every, Tick())
        return Endpoint(stream, self.rng.getrandbits(62) + 1, qos.checked())

    def _forget(self, stream: str, side: Side) -> None:
        for key in [each for each in self._reported if each[:2] == (stream, side)]:
            del self._reported[key]
        self._announce()

    # -- matching --

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        if isinstance(event, NeighborUp):
            self.peers[event.peer] = Endpoints((), ())
            self._unheard[event.peer] = None
            self._suspected.pop(event.peer, None)
            # Earlier messages from this peer were ignored, so ask for its endpoints again.
            self.send(event.peer, self._endpoints(answer=True))
        else:
            self.peers.pop(event.peer, None)
            self._unheard.pop(event.peer, None)
            self._match_all()
            if any(each.remembers(event.peer) for each in self.readers.values()):
                self._suspected[event.peer] = None
                self._send_known(event.peer)

    def _endpoints(self, *, answer: bool = False) -> Endpoints:
        writers = tuple(each.endpoint for each in self.writers.values())
        return Endpoints(writers, tuple(each.endpoint for each in self.readers.values()), answer)

    def _announce(self) -> None:
        opened = self._endpoints()
        for peer in self.peers:
            self.send(peer, opened)
        self._match_all()

    def _match_all(self) -> None:
        peers = {**self.peers, self.me: self._endpoints()}
        readers = {peer: opened.readers for peer, opened in peers.items()}
        for writer in self.writers.values():
            self._match(writer, "writer", readers)
        writers = {peer: opened.writers for peer, opened in peers.items()}
        for reader in self.readers.values():
            self._match(reader, "reader", writers)

    def _match(
        self, local: Writer | Reader, side: Side, remote: dict[NodeId, tuple[Endpoint, ...]]
    ) -> None:
        stream = local.endpoint.stream
        endpoints = {
            peer: each
            for peer, opened in remote.items()
            for each in opened
            if each.stream == stream
        }
        matched = local.readers if isinstance(local, Writer) else local.sources
        for peer, endpoint in endpoints.items():
            pair = (local.endpoint, endpoint) if side == "writer" else (endpoint, local.endpoint)
            less = mismatches(pair[0].qos, pair[1].qos)
            known = matched.get(peer)
            if less:
                self._unmatch(local, side, peer)
                if self._reported.get((stream, side, peer)) != less:
                    self._reported[stream, side, peer] = less
                    self.emit(Mismatched(stream, side, peer, less))
            elif known is None or known.incarnation != endpoint.incarnation:
                local.match(peer, endpoint)
                if self._reported.get((stream, side, peer)) != ():
                    self._reported[stream, side, peer] = ()
                    self.emit(Matched(stream, side, peer))
        for peer in [each for each in matched if each not in endpoints]:
            self._unmatch(local, side, peer)
        for key in [each for each in self._reported if each[:2] == (stream, side)]:
            if key[2] not in endpoints:
                del self._reported[key]  # the incompatible peer is gone

    def _unmatch(self, local: Writer | Reader, side: Side, peer: NodeId) -> None:
        local.unmatch(peer, suspected=peer not in self.peers)
        stream = local.endpoint.stream
        if self._reported.get((stream, side, peer)) == ():
            del self._reported[stream, side, peer]
            self.emit(Unmatched(stream, side, peer))

    # -- messages --

    def receive(self, sender: NodeId, message: StreamMessage) -> None:
        match message:
            case Data(stream):
                if stream in self.readers:
                    self.readers[stream].data(sender, message)
            case Acks(stream, incarnation):
                writer = self.writers.get(stream)
                if writer is not None and writer.endpoint.incarnation == incarnation:
                    writer.acked(sender, message)
            case Beat(stream):
                if stream in self.readers:
                    self.readers[stream].beat(sender, message)
            case Known(stream):
                if stream in self.readers:
                    self.readers[stream].known(sender, message)
            case Endpoints():
                if message.answer:
                    self.send(sender, self._endpoints())
                if sender in self.peers:
                    self._unheard.pop(sender, None)
                    self.peers[sender] = message
                    self._match_all()
            case _:
                assert_never(message)

    # -- time --

    def timeout(self, timer: Tick) -> None:
        self._timer_set = bool(self.writers or self.readers)
        if self._timer_set:
            self.later(self._every, timer)
        for writer in self.writers.values():
            writer.tick()
            writer.beat()
            writer.check_deadlines()
        for reader in self.readers.values():
            reader.tick()
        for peer in self._suspected:
            self._send_known(peer)
        for peer in self._unheard:
            self.send(peer, self._endpoints(answer=True))

    def _send_known(self, writer: NodeId) -> None:
        for stream, reader in self.readers.items():
            others = [
                peer
                for peer, opened in self.peers.items()
                if any(each.stream == stream for each in opened.readers)
            ]
            reader.send_known_to(writer, others)
