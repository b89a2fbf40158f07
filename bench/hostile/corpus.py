"""Record real messages to mutate: from clients to a node, and between nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import oncecast
from bench.hostile.targets import Kind, Target
from oncecast.kernel.codec import ENCODER
from oncecast.network.links import Link

EACH_MOST = 60  # maximum number of messages per type
BYTES_MOST = 4096  # maximum size of a message in bytes


class Recorder:
    """Appends messages to a file, a few of each type."""

    def __init__(self, file: str) -> None:
        self._file = Path(file).open("ab", buffering=0)  # noqa: SIM115  # open until the end
        self._seen: Counter[bytes] = Counter()

    def note(self, message: bytes) -> None:
        tag = bytes(message[:12])
        if len(message) <= BYTES_MOST and self._seen[tag] < EACH_MOST:
            self._seen[tag] += 1
            self._file.write(len(message).to_bytes(4) + message)

    def close(self) -> None:
        self._file.close()


def recorded(file: Path) -> list[bytes]:
    """Return the messages in a file. A killed process may have cut off the last one."""
    data, found, at = file.read_bytes(), [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4])
        if end <= len(data):
            found.append(data[at + 4 : end])
        at = end
    return found


@dataclass(frozen=True)
class Corpus:
    clients: tuple[bytes, ...]
    peers: tuple[bytes, ...]

    def of(self, *, peer: bool) -> tuple[bytes, ...]:
        return self.peers if peer else self.clients

    def save(self, file: Path) -> None:
        file.write_bytes(ENCODER.encode((self.clients, self.peers)))

    @classmethod
    def load(cls, file: Path) -> Corpus:
        clients, peers = msgspec.msgpack.decode(file.read_bytes(), type=Sessions)
        return cls(tuple(clients), tuple(peers))


Sessions = tuple[list[bytes], list[bytes]]


def record(root: Path) -> Corpus:
    """Run a group with an ordinary client for a short time, and return all their messages."""
    file, sent = root / "recorded", Recorder(str(root / "client.recorded"))
    target = Target(Kind("recorded group", nodes=3, secret=True), root / "recorded-group")
    send = Link.send

    def recording(self: Any, message: bytes) -> None:
        sent.note(message)
        send(self, message)

    with target.recorded(file):
        Link.send = recording  # type: ignore[method-assign]
        try:
            asyncio.run(everyday(target.address))
        finally:
            Link.send = send  # type: ignore[method-assign]
            sent.close()
    peers = [each for made in root.glob("recorded.*") for each in recorded(made)]
    return Corpus(tuple(recorded(root / "client.recorded")), tuple(peers))


async def everyday(address: str) -> None:
    """Make most kinds of client calls, so that their frames are recorded."""
    async with oncecast.connect(address, name="recorded") as client:
        for topic in ("recorded", "mallory.recorded"):
            await client.create_topic(topic, oncecast.Policy(keep_all=True))
            reading = await client.subscribe(topic, "mallory.reader")
            for number in range(20):
                await client.put(topic, b"value %d" % number)
            got = 0
            while got < 20:
                got += len(await reading.get_many(20))
            await reading.close()
            async for _ in client.scan(topic):
                pass
        async for _ in client.topics():
            pass
        await client.group()
        await client.delete_topic("recorded")
