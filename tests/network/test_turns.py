"""Clients take turns on the loop, and their unsent bytes are limited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from oncecast.errors import OutOfPlace
from oncecast.network import turns as module
from oncecast.network.connection import READ_BYTES_MIN, Connection, Wires
from oncecast.network.framing import HEADER, MESSAGE, PREAMBLE, SCRATCH_BYTES, frame
from oncecast.network.options import Options, Stats
from oncecast.network.turns import (
    LIGHT_SECONDS,
    NOTED_BYTES,
    SAVED_SECONDS,
    SHARE_SECONDS,
    TURN_SECONDS,
    Account,
    Backlogs,
    Turns,
)
from tests.network.talk import drive
from tests.network.test_connection import FakeTransport, Listens


class Loop:
    """An event loop whose clock and turns are controlled by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Worker:
    """A client with `left` pieces of work, which take `cost` seconds each."""

    def __init__(self, loop: Loop, name: str, left: int, cost: float, log: list[str]) -> None:
        self.used, self.left, self.cost, self.name = 0.0, left, cost, name
        self.account = Account(0.0)
        self._loop, self._log = loop, log
        self.backlog = 0
        self.failed = ""

    @property
    def ready(self) -> bool:
        return self.left > 0

    def work(self, until: float) -> None:
        while self.left:
            self.left -= 1
            self._log.append(self.name)
            self._loop.now += self.cost
            if self._loop.now >= until:
                break

    def fail(self, incident: str, reason: str) -> None:
        self.failed = f"{incident}: {reason}"


def made() -> tuple[Loop, Turns]:
    loop = Loop()
    return loop, Turns(cast(Any, loop))


def test_work_beyond_the_turn_limit_waits_for_the_next_turn() -> None:
    """SEC-3"""
    loop, turns = made()
    log: list[str] = []
    turns.queue(Worker(loop, "a", 100, SHARE_SECONDS, log))
    loop.turn()
    worked = len(log)
    assert worked * SHARE_SECONDS <= TURN_SECONDS + SHARE_SECONDS
    loop.turn()
    assert worked < len(log) <= 2 * worked + 1


def test_client_with_little_work_is_served_first() -> None:
    """SEC-3: busy clients delay such a client by at most one turn."""
    loop, turns = made()
    log: list[str] = []
    honest = Worker(loop, "honest", 0, 0.0001, log)
    for name in "abcdefgh":
        turns.queue(Worker(loop, name, 1000, SHARE_SECONDS, log))
    for _ in range(50):
        loop.turn()
        log.clear()
        honest.left = 1
        turns.queue(honest)
    loop.turn()
    assert log[0] == "honest"


def test_new_connection_gets_no_more_time_than_older_connections() -> None:
    """SEC-3: a client must not gain time by reconnecting."""
    loop, turns = made()
    log: list[str] = []
    for name in "abcdefgh":
        turns.queue(Worker(loop, name, 1000, SHARE_SECONDS, log))
    for _ in range(50):
        loop.turn()
    log.clear()
    again = Worker(loop, "again", 1000, SHARE_SECONDS, log)
    turns.join(again, "again")
    turns.queue(again)
    for _ in range(30):
        loop.turn()
    assert 0 < log.count("again") <= log.count("a") + 1


def test_unused_client_time_accumulates_only_up_to_a_limit() -> None:
    """SEC-3: a client must not be able to block the loop after a long idle time."""
    loop, turns = made()
    log: list[str] = []
    idle = Worker(loop, "idle", 1000, SHARE_SECONDS, log)
    turns.queue(Worker(loop, "busy", 10_000, SHARE_SECONDS, log))
    for _ in range(1000):
        loop.turn()
    log.clear()
    turns.queue(idle)
    for _ in range(100):
        loop.turn()
    ahead = log.count("idle") - log.count("busy")
    assert ahead * SHARE_SECONDS <= SAVED_SECONDS + 2 * SHARE_SECONDS


def test_clients_with_cheap_and_costly_work_get_the_same_time() -> None:
    """SEC-3"""
    loop, turns = made()
    log: list[str] = []
    turns.queue(Worker(loop, "cheap", 10_000, SHARE_SECONDS / 4, log))
    turns.queue(Worker(loop, "dear", 10_000, 2 * SHARE_SECONDS, log))
    for _ in range(100):
        loop.turn()
    spent = {"cheap": SHARE_SECONDS / 4, "dear": 2 * SHARE_SECONDS}
    times = [log.count(name) * cost for name, cost in spent.items()]
    assert 0.9 < times[0] / times[1] < 1.1


def test_connection_is_served_at_once_if_no_other_connection_waits() -> None:
    loop, turns = made()
    one, two = Worker(loop, "a", 1, 0.0, []), Worker(loop, "b", 0, 0.0, [])
    assert turns.begin(one) == TURN_SECONDS
    loop.now = TURN_SECONDS
    assert turns.begin(one) == 0.0  # this turn's time is used up
    loop.turn()
    assert turns.begin(one) == 2 * TURN_SECONDS
    loop.turn()
    turns.queue(one)
    assert turns.begin(one) == 0.0
    assert turns.begin(two) == TURN_SECONDS + SHARE_SECONDS  # unused time adds at most one share
    loop.turn()
    loop.turn()
    assert loop.calls == []  # an idle node does nothing


def test_account_waits_once_it_has_used_its_share_of_a_turn() -> None:
    """SEC-3: only a light account may skip the queue."""
    loop, turns = made()
    light = Worker(loop, "light", 0, 0.0, [])
    turns.queue(Worker(loop, "a", 1, 0.0, []))
    assert turns.begin(light) == SHARE_SECONDS
    turns.count(light, SHARE_SECONDS / 2)
    assert turns.begin(light) == SHARE_SECONDS / 2
    turns.count(light, SHARE_SECONDS / 2)
    assert turns.begin(light) == 0.0
    loop.turn()
    turns.queue(Worker(loop, "b", 1, 0.0, []))
    assert turns.begin(light) == SHARE_SECONDS  # the account continues in the next turn
    loop.now += TURN_SECONDS + LIGHT_SECONDS
    assert turns.begin(light) == 0.0  # a turn is short for light accounts, too


def crowd(loop: Loop, turns: Turns, accounts: int, each: int, log: list[str]) -> None:
    """Queue more work than the node can do, on many connections."""
    for owner in range(accounts):
        for _ in range(each):
            worker = Worker(loop, f"crowd {owner}", 10_000, SHARE_SECONDS, log)
            turns.join(worker, f"owner {owner}")
            turns.queue(worker)


def test_light_account_above_its_equal_share_is_still_served_first() -> None:
    """SEC-3: otherwise 64 busy hosts would delay each request from another host by seconds."""
    loop, turns = made()
    log: list[str] = []
    crowd(loop, turns, 64, 16, log)
    honest = Worker(loop, "honest", 0, SHARE_SECONDS / 4, log)
    turns.join(honest, "honest")
    for _ in range(100):  # by now, all accounts of the crowd are busy
        loop.turn()
    for _ in range(1000):  # the light account uses an eighth of the time; an equal share is 1/65
        log.clear()
        honest.left = 1
        turns.queue(honest)
        loop.turn()
        assert log[0] == "honest"


def test_loop_time_is_shared_per_account_and_not_per_connection() -> None:
    """SEC-3: an account with many connections gets no more time than an account with few."""
    loop, turns = made()
    log: list[str] = []
    crowd(loop, turns, 1, 100, log)
    one = Worker(loop, "one", 10_000, SHARE_SECONDS, log)
    turns.join(one, "one")
    turns.queue(one)
    for _ in range(200):
        loop.turn()
    assert abs(log.count("one") - log.count("crowd 0")) <= 3


def test_light_accounts_do_not_starve_busy_accounts() -> None:
    """SEC-3: many hosts that send one request at a time get only part of each turn."""
    loop, turns = made()
    log: list[str] = []
    busy = Worker(loop, "busy", 10_000, SHARE_SECONDS, log)
    busy.account.turn, busy.account.spent = 0, SHARE_SECONDS
    turns.queue(busy)
    light = [Worker(loop, "light", 0, SHARE_SECONDS / 2, log) for _ in range(100)]
    for _ in range(100):
        for each in light:
            each.left = 1
            turns.queue(each)
        loop.turn()
    assert log.count("busy") * SHARE_SECONDS >= 100 * TURN_SECONDS
    assert log.count("light") > 0


def test_client_with_the_most_unsent_bytes_is_reset_if_the_total_exceeds_its_limit() -> None:
    """SEC-3: otherwise eight clients that do not read their scans would use a gigabyte."""
    loop, log = Loop(), list[str]()
    backlogs = Backlogs(10 * NOTED_BYTES)
    small, large, read = (Worker(loop, name, 0, 0.0, log) for name in ("s", "l", "r"))
    for client, size in ((small, 3), (read, 2), (large, 5)):
        client.backlog = size * NOTED_BYTES
        backlogs.note(client, client.backlog)
    assert backlogs.total == 10 * NOTED_BYTES
    read.backlog = 0  # it was sent in the meantime
    small.backlog = 4 * NOTED_BYTES
    backlogs.note(small, small.backlog)
    assert not any(each.failed for each in (small, large, read))
    assert backlogs.total == 9 * NOTED_BYTES
    small.backlog = 6 * NOTED_BYTES
    backlogs.note(small, small.backlog)
    assert small.failed.startswith("slow: 393216 bytes unsent")
    assert backlogs.total == 5 * NOTED_BYTES
    backlogs.note(large, 0)
    assert (backlogs.total, backlogs._noted) == (0, {})


class Client:
    """A client connection. If `slow`, each frame takes a whole turn."""

    def __init__(self, wires: Wires, slow: bool = True, owner: str = "owner") -> None:
        self.transport = FakeTransport()
        self.session = Listens()
        if slow:
            self.session.frame = self._slow  # type: ignore[method-assign]
        self.connection = Connection(wires, self.session, "client")
        self.connection.connection_made(self.transport)
        self.feed(PREAMBLE)
        self.connection.take_turns(owner)

    def _slow(self, kind: int, body: Any) -> None:
        Listens.frame(self.session, kind, body)
        Clock.now += TURN_SECONDS

    def feed(self, data: bytes) -> None:
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    @property
    def got(self) -> list[bytes]:
        return [body for _, body in self.session.frames]


class Clock:
    now = 0.0


class Wired(Wires):
    """Client connections, with a clock that the test controls."""

    def __init__(self) -> None:
        super().__init__(Options(), Stats())
        self._turns = self.loop
        self.loop = cast(Any, self)
        self.turns = Turns(self.loop)

    def time(self) -> float:
        return Clock.now

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self._turns.call_soon(call, *arguments)

    def create_future(self) -> asyncio.Future[Any]:
        return self._turns.create_future()


FRAMES = [frame(MESSAGE, b"%d" % number) for number in range(4)]
BODIES = [b"%d" % number for number in range(4)]


def test_frames_from_one_read_are_handled_in_several_turns() -> None:
    """SEC-3"""

    async def test() -> None:
        wires = Wired()
        greedy, other = Client(wires), Client(wires, slow=False)
        greedy.feed(b"".join(FRAMES))
        assert (greedy.got, greedy.transport.paused) == (BODIES[:1], True)
        other.feed(FRAMES[0])  # this read overwrites the shared buffer
        assert other.got == []  # this turn is over
        await asyncio.sleep(0)
        assert other.got == BODIES[:1]
        for _ in range(5):
            await asyncio.sleep(0)
        assert greedy.got == BODIES
        assert not greedy.transport.paused
        assert not other.transport.paused

    drive(test())


def test_bytes_are_split_into_frames_only_when_their_client_has_its_turn() -> None:
    """SEC-3: otherwise reads of many small frames would block the loop outside any turn."""

    async def test() -> None:
        wires = Wired()
        greedy, other, broken = Client(wires), Client(wires, slow=False), Client(wires)
        greedy.feed(b"".join(FRAMES))
        broken.feed(HEADER.pack(2**32 - 1, MESSAGE))
        whole = b"".join(FRAMES)
        other.feed(whole[:3])
        other.feed(whole[3:9])  # bytes that had been read already
        assert (broken.transport.aborted, other.transport.paused) == (False, True)
        for _ in range(5):
            await asyncio.sleep(0)
        assert broken.transport.aborted
        other.feed(whole[9:])
        for _ in range(8):
            await asyncio.sleep(0)
        assert (other.got, other.transport.paused) == (BODIES, False)

    drive(test())


def test_client_that_sends_small_frames_is_read_in_small_pieces() -> None:
    """SEC-3"""

    async def test() -> None:
        client = Client(Wired(), slow=False)
        client.connection.framer.trust(4 * SCRATCH_BYTES)
        client.feed(HEADER.pack(4 * SCRATCH_BYTES, MESSAGE))  # a few bytes do not count
        sizes = []
        for _ in range(3):
            buffer = client.connection.get_buffer(-1)
            sizes.append(len(buffer))
            client.connection.buffer_updated(len(buffer))
        assert sizes[0] == READ_BYTES_MIN
        assert sizes[-1] >= 2 * READ_BYTES_MIN

        small = Client(Wired(), slow=False)
        for _ in range(10):
            small.feed(FRAMES[0])
            assert len(small.connection.get_buffer(-1)) == READ_BYTES_MIN

    drive(test())


def test_client_that_does_not_read_is_not_served() -> None:
    """SEC-3"""

    async def test() -> None:
        wires = Wired()
        client = Client(wires, slow=False)
        client.connection.pause_writing()
        assert client.transport.paused
        client.feed(b"".join(FRAMES))  # bytes that had been read already
        for _ in range(3):
            await asyncio.sleep(0)
        assert client.got == []
        client.connection.resume_writing()
        for _ in range(3):
            await asyncio.sleep(0)
        assert (client.got, client.transport.paused) == (BODIES, False)

    drive(test())


def test_frames_wait_while_their_connection_is_paused() -> None:
    async def test() -> None:
        client = Client(Wired())
        client.feed(b"".join(FRAMES))
        client.connection.pause()
        for _ in range(3):
            await asyncio.sleep(0)
        assert client.got == BODIES[:1]
        client.connection.resume()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (client.got, client.transport.paused) == (BODIES, False)

    drive(test())


def test_invalid_frame_in_a_later_turn_ends_the_connection() -> None:
    async def test() -> None:
        client = Client(Wired())
        client.feed(FRAMES[0] + frame(99) + FRAMES[1])
        for _ in range(3):
            await asyncio.sleep(0)
        assert (client.got, client.session.reasons) == (BODIES[:1], [str(OutOfPlace("not here"))])
        assert client.transport.aborted

    drive(test())


def test_frames_from_a_closed_connection_are_dropped() -> None:
    async def test() -> None:
        client = Client(Wired())
        client.feed(b"".join(FRAMES))
        client.connection.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert client.got == BODIES[:1]

    drive(test())


def test_stalled_client_counts_as_silent() -> None:
    """SEC-3: a client that reads nothing does not stay connected forever."""

    async def test() -> None:
        client = Client(Wired(), slow=False)
        client.connection.pause_writing()
        client.connection.overdue(Clock.now + 6.1)
        assert client.session.reasons == ["no data received for 6.1 s"]

    drive(test())


def test_peer_does_not_take_turns() -> None:
    """Heartbeats from other nodes must not wait behind clients."""

    async def test() -> None:
        wires = Wired()
        Client(wires).feed(b"".join(FRAMES))
        peer = Client(wires)
        peer.connection._takes_turns = False
        peer.feed(b"".join(FRAMES))
        assert peer.got == BODIES

    drive(test())


def test_turn_is_limited_to_five_milliseconds() -> None:
    """SEC-3: no input blocks the loop for more than a few milliseconds."""
    assert module.TURN_SECONDS <= 0.005
