"""Send hostile HTTP requests to `oncecast web`, and check each answer and the process's memory.

Each kind of request has the statuses that it may get; a malformed request may also just be
disconnected. Meanwhile, other connections send their requests slowly or do not read the answers. At
the end, the topics hold exactly the messages that honest requests have put, and the process has not
grown.

    python -m bench.hostile.web [--requests 1000000] [--slow 80] [--seed 1] [--json FILE]

The node, the web process and all clients use loopback addresses, and are stopped at the end. The
exit status is 1 if an answer was wrong, a message was changed, or the process has grown. After
SIGINT or SIGTERM, the run ends early and reports what it has found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

import oncecast
from oncecast import Policy

REQUESTS, SLOW = 1_000_000, 80
CONNECTIONS = 16  # concurrent connections that send requests
PIPELINED = 8  # maximum requests in one batch
GROWN_MAX_MB = 60.0
WARM = 0.05  # share of the requests after which the memory is measured for the first time
ANSWER = 60.0  # seconds to wait for an answer
SLOW_CLOSED = 45.0  # seconds after which a slow connection must be closed

OWN = b"Host: 127.0.0.1\r\nOncecast-Request: 1\r\n"
API = b"/api/v1"
CLOSED = 0  # the status of a connection that was closed without an answer
# Answers to requests whose form is right and whose content is random.
ANY = frozenset({200, 201, 204, 400, 403, 404, 405, 409, 413, 415, 416, 422})


class Request(NamedTuple):
    """A request, and the statuses that it may get. `last` ends the connection."""

    data: bytes
    statuses: frozenset[int]
    last: bool = False
    bare: bool = False  # whether the answer has no body
    ended: bool = False  # whether the client sends nothing after it


def request(
    method: bytes, path: bytes, statuses: set[int], head: bytes = OWN, body: bytes = b""
) -> Request:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    data = method + b" " + path + b" HTTP/1.1\r\n" + head + length + b"\r\n" + body
    return Request(data, frozenset(statuses), bare=method == b"HEAD")


JSON_HEAD = OWN + b"Content-Type: application/json\r\n"
WORDS = (b"orders", b"%2e%2e", b"..", b"%00", b"%ff", b"a%2Fb", b"{x}", b"-1", b"9" * 30, b"*")
VALUES = (b"0", b"-1", b"1e9", b"99999999999999999999", b"null", b"true", b"%00", b"a" * 300, b"")
NAMES = (b"limit", b"from", b"search", b"after", b"wait", b"epoch", b"timestamp", b"value_bytes")
METHODS = (b"GET", b"PUT", b"POST", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS", b"TRACE", b"BREW")
JSONS = (b"0", b"null", b"[]", b'"x"', b"true", b"1e400", b"{}", b'{"a":{}}', b"[" * 500, b"\xff")
FIELDS = (b"messages", b"offset", b"start", b"shared", b"keep_all", b"age", b"token", b"all", b"to")


class Generator:
    """Makes requests of all kinds from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.kinds: dict[str, Callable[[], Request]] = {
            "honest": self.honest,
            "wrong host": self.wrong_host,
            "cross-site": self.cross_site,
            "traversal": self.traversal,
            "parameters": self.parameters,
            "bodies": self.bodies,
            "methods": self.methods,
            "malformed": self.malformed,
            "smuggling": self.smuggling,
            "large head": self.large_head,
            "large body": self.large_body,
            "chunks": self.chunks,
        }
        self._names = list(self.kinds)

    def make(self) -> tuple[str, Request]:
        name = self.rng.choice(self._names)
        return name, self.kinds[name]()

    def honest(self) -> Request:
        path = self.rng.choice((b"/topics", b"/topics/orders", b"/overview", b"/openapi.json"))
        return request(b"GET", API + path, {200}, b"Host: localhost:8400\r\n")

    def wrong_host(self) -> Request:
        host = self.rng.choice((b"evil.example", b"127.0.0.1.evil.example", b"[::2]", b"10.1.1.1"))
        head = b"Host: " + host + b"\r\nOncecast-Request: 1\r\n"
        return request(self.rng.choice((b"GET", b"DELETE")), API + b"/topics/orders", {421}, head)

    def cross_site(self) -> Request:
        kinds = (
            b"Content-Type: text/plain\r\n",
            b"Content-Type: application/x-www-form-urlencoded\r\n",
            b"Oncecast-Request: 1\r\nOrigin: http://evil.example\r\n",
            b"Oncecast-Request: 1\r\nOrigin: null\r\n",
            b"Oncecast-Request: 1\r\nSec-Fetch-Site: cross-site\r\n",
        )
        head = b"Host: 127.0.0.1\r\n" + self.rng.choice(kinds)
        method = self.rng.choice((b"POST", b"PUT", b"DELETE"))
        return request(method, API + b"/topics/orders/messages", {403}, head, b"hello")

    def traversal(self) -> Request:
        parts = (b"..", b"%2e%2e", b"..%2f", b"%252e", b"....//", b"console", b"app.py", b"\\")
        path = b"/" + b"/".join(self.rng.choices(parts, k=self.rng.randint(1, 8)))
        return request(b"GET", path + b"/etc/passwd", {404})

    def parameters(self) -> Request:
        rng = self.rng
        path = API + rng.choice((b"/topics", b"/topics/none", b"/subscriptions"))
        path += b"/" + rng.choice(WORDS) if rng.random() < 0.7 else b""
        path += rng.choice((b"", b"/messages", b"/messages/7", b"/subscriptions/s/dead"))
        names = rng.choices(NAMES, k=rng.randint(0, 3))
        query = b"&".join(name + b"=" + rng.choice(VALUES) for name in names)
        return request(b"GET", path + b"?" + query, set(ANY))

    def bodies(self) -> Request:
        rng = self.rng
        pairs = b",".join(
            b'"' + rng.choice(FIELDS) + b'":' + rng.choice(JSONS) for _ in range(rng.randint(0, 4))
        )
        body = b"{" + pairs + b"}" if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 200))
        path = rng.choice(
            (b"messages", b"subscriptions/s", b"subscriptions/s/seek", b"subscriptions/s/settle")
        )
        method = rng.choice((b"POST", b"PUT", b"PATCH"))
        return request(method, API + b"/topics/none/" + path, set(ANY), JSON_HEAD, body)

    def methods(self) -> Request:
        method = self.rng.choice(METHODS)
        path = self.rng.choice((b"/", API + b"/overview", API + b"/nothing"))
        return request(method, path, set(ANY))

    def malformed(self) -> Request:
        whole = bytearray(self.honest().data)
        for _ in range(self.rng.randint(1, 6)):
            whole[self.rng.randrange(len(whole))] = self.rng.randrange(256)
        return Request(bytes(whole) + b"\r\n\r\n", ANY | {CLOSED, 421}, last=True, ended=True)

    def smuggling(self) -> Request:
        inner = b"DELETE /api/v1/topics/orders HTTP/1.1\r\n" + OWN + b"\r\n"
        heads = (
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
            b"Content-Length: 0\r\nContent-Length: 80\r\n\r\n",
            b"Content-Length: +1\r\n\r\n",
            b"Content-Length: 0, 0\r\nTransfer-Encoding: identity\r\n\r\n",
            b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
            b"Content-Length: 5\n\n",
        )
        begin = b"POST /api/v1/topics/none/messages HTTP/1.1\r\n" + JSON_HEAD
        # The inner request must not be executed: the connection ends at the outer one.
        return Request(begin + self.rng.choice(heads) + inner, frozenset({400, CLOSED}), last=True)

    def large_head(self) -> Request:
        name = b"X-" + b"a" * self.rng.randint(1, 50)
        size = self.rng.randint(17_000, 40_000)
        data = b"GET / HTTP/1.1\r\n" + OWN + name + b": " + b"a" * size + b"\r\n\r\n"
        return Request(data, frozenset({400, 431, CLOSED}), last=True)

    def large_body(self) -> Request:
        size = self.rng.choice((17 << 20, 10**12, 10**18))
        data = b"POST /api/v1/topics/none/messages HTTP/1.1\r\n" + JSON_HEAD
        data += b"Content-Length: %d\r\n\r\n" % size + b"x" * self.rng.choice((0, 100))
        return Request(data, frozenset({413, CLOSED}), last=True)

    def chunks(self) -> Request:
        sizes = (b"FFFFFFFFFFFFFFFFF", b"-1", b"zz", b"5;" + b"a" * 200, b" 5", b"5")
        data = b"POST /api/v1/topics/none/messages HTTP/1.1\r\n" + JSON_HEAD
        data += b"Transfer-Encoding: chunked\r\n\r\n" + self.rng.choice(sizes) + b"\r\nhello\r\n"
        data += self.rng.choice((b"0\r\n\r\n", b"x", b"1\r\n"))
        return Request(data, frozenset({400, CLOSED}), last=True, ended=True)


@dataclass
class Outcome:
    requests: int = 0
    seconds: float = 0.0
    answers: dict[str, Counter[int]] = field(default_factory=dict)
    slow_closed: int = 0
    memory_mb: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    stopped: bool = False

    def count(self, kind: str, each: Request, status: int) -> None:
        self.requests += 1
        self.answers.setdefault(kind, Counter())[status] += 1
        if status not in each.statuses and len(self.faults) < 20:
            self.faults.append(f"{kind}: status {status} for {each.data[:200]!r}")


class Client:
    """Sends batches of requests on one connection after another."""

    def __init__(self, port: int, generator: Generator, outcome: Outcome, limit: int) -> None:
        self._port, self._generator = port, generator
        self._outcome, self._limit = outcome, limit
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        while self._outcome.requests < self._limit and not self._outcome.stopped:
            batch = self._batch()
            try:
                async with asyncio.timeout(ANSWER):
                    await self._send(batch)
            except TimeoutError:
                kinds = ", ".join(kind for kind, _ in batch)
                self._outcome.faults.append(f"no answer within {ANSWER:g} s: {kinds}")
                self._close()
        self._close()

    def _batch(self) -> list[tuple[str, Request]]:
        found: list[tuple[str, Request]] = []
        while len(found) < PIPELINED:
            made = self._generator.make()
            if made[1].ended:
                return [made]
            found.append(made)
            if made[1].last:
                break
        return found

    async def _send(self, batch: list[tuple[str, Request]]) -> None:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"".join(each.data for _, each in batch))
        if batch[-1][1].ended:
            self._writer.write_eof()
        for number, (kind, each) in enumerate(batch):
            status = await self._status(each)
            self._outcome.count(kind, each, status)
            if self._writer is None:  # closed; the rest of the batch was not answered
                self._outcome.requests += len(batch) - number - 1
                return
        if batch[-1][1].last:
            self._close()

    async def _status(self, each: Request) -> int:
        """Return the status of the next answer, or CLOSED."""
        assert self._reader is not None
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            status = int(lines[0].split(b" ")[1])
            length = next((int(line[15:]) for line in lines if line[:15] == b"content-length:"), 0)
            if length and not each.bare:
                await self._reader.readexactly(length)
            if b"connection: close" in lines:
                self._close()
        except (OSError, asyncio.IncompleteReadError):
            self._close()
            return CLOSED
        return status

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def slow(port: int, number: int, outcome: Outcome) -> None:
    """Send the head of a request one byte at a time, or leave an answer unread, until closed."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        async with asyncio.timeout(SLOW_CLOSED):
            if number % 2:
                writer.write(b"GET /api/v1/topics/large/tail?from=0 HTTP/1.1\r\n" + OWN + b"\r\n")
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.sleep(SLOW_CLOSED - 5)
                writer.transport.resume_reading()  # type: ignore[attr-defined]
                while await reader.read(1 << 20):
                    pass
            else:
                head = iter(b"GET / HTTP/1.1\r\nX: " + b"y" * 1000)
                while not reader.at_eof() and reader.exception() is None:
                    writer.write(bytes((next(head),)))
                    await asyncio.sleep(0.5)
        outcome.slow_closed += 1
    except OSError:
        outcome.slow_closed += 1
    except TimeoutError:
        outcome.faults.append(f"slow connection {number} was not closed")
    finally:
        writer.transport.abort()


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def attack(port: int, pid: int, requests: int, slow_count: int, seed: int) -> Outcome:
    outcome, began = Outcome(), perf_counter()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, setattr, outcome, "stopped", True)
    dragging = [asyncio.create_task(slow(port, each, outcome)) for each in range(slow_count)]
    for share in (WARM, 1.0):
        clients = [
            Client(port, Generator(seed * 1000 + each), outcome, int(requests * share))
            for each in range(CONNECTIONS)
        ]
        await asyncio.gather(*(each.run() for each in clients))
        outcome.memory_mb.append(memory_mb(pid))
        seed += 1
    outcome.seconds = perf_counter() - began
    await asyncio.gather(*dragging)
    outcome.memory_mb.append(memory_mb(pid))
    return outcome


class Process:
    """A command of oncecast that prints its address."""

    def __init__(self, *words: str, pattern: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oncecast", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                self.port = int(found[1])
                break
        else:
            raise RuntimeError(f"oncecast {words[0]} did not start")
        self._draining = threading.Thread(target=self._drain, daemon=True)
        self._draining.start()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for _ in lines:
                pass

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(20)
        self._draining.join()
        return status


async def prepared(node: str) -> int:
    """Create the topics. Return the number of messages in them."""
    async with oncecast.connect(node) as client:
        for name in ("orders", "large"):
            await client.create_topic(name, Policy(keep_all=True))
        await client.put("orders", b"an honest message")
        await client.put_many("large", [bytes(100_000)] * 150)
    return 151


async def counted(node: str) -> int:
    async with oncecast.connect(node) as client:
        names = ("orders", "large")
        views = [await client.describe(name) for name in names]
        return sum(each.next - each.first for each in views)


def run(requests: int, slow_count: int, seed: int, root: Path) -> Outcome:
    node = Process(
        *("serve", "--listen", "127.0.0.1:0", "--data", str(root / "data")),
        pattern=r"listening at=127\.0\.0\.1:(\d+)",
    )
    try:
        at = f"127.0.0.1:{node.port}"
        before = asyncio.run(prepared(at))
        web = Process(
            *("web", "--server", at, "--listen", "127.0.0.1:0"),
            pattern=r"http://127\.0\.0\.1:(\d+)",
        )
        try:
            outcome = asyncio.run(attack(web.port, web.pid, requests, slow_count, seed))
            if not web.running:
                outcome.faults.append("the web process has ended")
        finally:
            status = web.end()
        if status:
            outcome.faults.append(f"the web process ended with status {status}")
        after = asyncio.run(counted(at))
    finally:
        node.end()
    if after != before:
        outcome.faults.append(f"the topics have {after} messages instead of {before}")
    grown = outcome.memory_mb[-1] - outcome.memory_mb[0]
    if grown > GROWN_MAX_MB:
        outcome.faults.append(f"the web process has grown by {grown:.0f} MB")
    return outcome


def show(outcome: Outcome) -> None:
    for kind, statuses in sorted(outcome.answers.items()):
        found = ", ".join(
            f"{status or 'closed'}: {count:,}" for status, count in sorted(statuses.items())
        )
        print(f"{kind:<12} {found}")
    memory = " -> ".join(f"{each:.0f}" for each in outcome.memory_mb)
    rate = outcome.requests / outcome.seconds
    print(f"{outcome.requests:,} requests in {outcome.seconds:.0f} s ({rate:,.0f}/s)")
    print(f"slow connections closed: {outcome.slow_closed}; memory: {memory} MB")
    for fault in outcome.faults:
        print(f"FAULT {fault}")


def figures_of(outcome: Outcome) -> dict[str, Any]:
    answers = {kind: dict(statuses) for kind, statuses in outcome.answers.items()}
    return {**vars(outcome), "answers": answers}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile.web",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    number = "(default: %(default)s)"
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"requests {number}")
    parser.add_argument("--slow", type=int, default=SLOW, help=f"slow connections {number}")
    parser.add_argument("--seed", type=int, default=1, help=f"seed of the requests {number}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="oncecast-hostile-") as root:
        outcome = run(arguments.requests, arguments.slow, arguments.seed, Path(root))
    show(outcome)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures_of(outcome), indent=1) + "\n")
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
