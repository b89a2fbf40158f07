"""Streams between nodes: each may write to some and read others, with the qualities that it chose.

Needs NeighborUp and NeighborDown of all nodes that take part. Serves what events.py lists.

Every node tells its neighbours what it has opened; who offers what another requests is matched, and
both are told if not (DDS-1). A writer sends each value once to each matched reader, as long as not
too much is under way to it. Reliable ones are told now and then how far it is, and say what they
lack; so in the absence of failures nothing is sent twice. Of a writer that is suspected, the
readers of an agreed stream compare what they have (DDS-3).

Of a persistent stream nothing is sent to persistent readers: who runs this protocol writes to, and
feeds them from, a durable topic.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

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


class Turn(Value):
    """Timer."""


class Streams(Protocol):
    name = "streams"
    Request = StreamRequest
    Message = StreamMessage
    Observed = NeighborUp | NeighborDown
    Timer = Turn

    def __init__(self, me: NodeId, rng: Random, *, every: float = 0.1) -> None:
        super().__init__(me, rng)
        self._every = every
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self.peers: dict[NodeId, Endpoints] = {}
        self._unheard: dict[NodeId, None] = {}  # peers that have not said what they have opened
        self._suspected: dict[NodeId, None] = {}  # writers that some stream remembers
        self._told: dict[tuple[str, Side, NodeId], tuple[str, ...]] = {}  # (): that it matches
        self._turning = False

    # -- what the application asks for --

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
            why = f"stream {write.stream!r} has no writer here; open one first"
            self.emit(NotWritten(write.stream, write.ticket, why))

    def _endpoint(self, stream: str, qos: QoS) -> Endpoint:
        if not self._turning:
            self._turning = True
            self.later(self._every, Turn())
        return Endpoint(stream, self.rng.getrandbits(62) + 1, qos.checked())

    def _forget(self, stream: str, side: Side) -> None:
        for told in [each for each in self._told if each[:2] == (stream, side)]:
            del self._told[told]
        self._announce()

    # -- who is there, and what it has opened --

    def observe(self, event: NeighborUp | NeighborDown) -> None:
        if isinstance(event, NeighborUp):
            self.peers[event.peer] = Endpoints((), ())
            self._unheard[event.peer] = None
            self._suspected.pop(event.peer, None)
            # What it has said before we knew of it was not heard.
            self.send(event.peer, self._endpoints(answer=True))
        else:
            self.peers.pop(event.peer, None)
            self._unheard.pop(event.peer, None)
            self._match_all()
            if any(each.remembers(event.peer) for each in self.readers.values()):
                self._suspected[event.peer] = None
                self._tell_known(event.peer)

    def _endpoints(self, *, answer: bool = False) -> Endpoints:
        writers = tuple(each.endpoint for each in self.writers.values())
        return Endpoints(writers, tuple(each.endpoint for each in self.readers.values()), answer)

    def _announce(self) -> None:
        mine = self._endpoints()
        for peer in self.peers:
            self.send(peer, mine)
        self._match_all()

    def _match_all(self) -> None:
        peers = {**self.peers, self.me: self._endpoints()}
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
            if less:
                self._unmatch(end, side, peer)
                if self._told.get((stream, side, peer)) != less:
                    self._told[stream, side, peer] = less
                    self.emit(Mismatched(stream, side, peer, less))
            elif known is None or known.life != endpoint.life:
                end.match(peer, endpoint)
                if self._told.get((stream, side, peer)) != ():
                    self._told[stream, side, peer] = ()
                    self.emit(Matched(stream, side, peer))
        for peer in [each for each in matched if each not in there]:
            self._unmatch(end, side, peer)
        for told in [each for each in self._told if each[:2] == (stream, side)]:
            if told[2] not in there:
                del self._told[told]  # it was incompatible, and is gone

    def _unmatch(self, end: Writer | Reader, side: Side, peer: NodeId) -> None:
        end.unmatch(peer, suspected=peer not in self.peers)
        stream = end.endpoint.stream
        if self._told.get((stream, side, peer)) == ():
            del self._told[stream, side, peer]
            self.emit(Unmatched(stream, side, peer))

    # -- what peers say --

    def receive(self, sender: NodeId, message: StreamMessage) -> None:
        match message:
            case Data(stream):
                if stream in self.readers:
                    self.readers[stream].data(sender, message)
            case Acks(stream, life):
                writer = self.writers.get(stream)
                if writer is not None and writer.endpoint.life == life:
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

    def timeout(self, timer: Turn) -> None:
        self._turning = bool(self.writers or self.readers)
        if self._turning:
            self.later(self._every, timer)
        for writer in self.writers.values():
            writer.tick()
            writer.beat()
            writer.look_at_deadlines()
        for reader in self.readers.values():
            reader.tick()
        for peer in self._suspected:
            self._tell_known(peer)
        for peer in self._unheard:
            self.send(peer, self._endpoints(answer=True))

    def _tell_known(self, writer: NodeId) -> None:
        for stream, reader in self.readers.items():
            others = [
                peer
                for peer, theirs in self.peers.items()
                if any(each.stream == stream for each in theirs.readers)
            ]
            reader.tell_known(writer, others)
