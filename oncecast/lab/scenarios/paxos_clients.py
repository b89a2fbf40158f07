"""Publishers and subscribers of the service: exactly once, in any storm.

They are real sessions: they look for the leader, follow it, send again, and crash now and then
themselves. What they were promised is looked at as it happens and in the end (SVC-2, SVC-3,
SVC-10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.client.session.inbox import Inbox
from oncecast.client.session.outbox import Queued
from oncecast.kernel.protocol import Append, NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_books import CLIENT
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Step
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced

TOPIC = "topic"
HABITS = Habits()
PUTS = HABITS.puts  # of each publisher


class Client:
    """Somebody who uses a session, over all its lives."""

    topic = TOPIC
    push = False  # on a ring
    keeps = True  # if it crashes, an outbox on disk
    producer: str | None = None  # the name under which it puts, if not its own; "": a new one

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        habits: Habits = HABITS,
    ) -> None:
        self.sim, self.name, self.nodes, self.crashes = sim, name, nodes, crashes
        self.habits, self.durable = habits, crashes and self.keeps
        self.me = NodeId(CLIENT + name)
        self.life = 0
        sim.add(self.me, self._build, durable=self.durable)

    def return_as_another(self, away: float) -> None:
        """Crash, and come back with the same disk under another id, as a new process does.

        What the earlier life has sent may still arrive, and what is sent to it does not.
        """
        self.sim.crash(self.me)
        self.sim.call(away, self.come_back)

    def come_back(self) -> None:
        disk = self.sim.nodes[self.me].disk
        self.me = NodeId(f"{CLIENT}{self.name}#{self.life + 1}")
        self.sim.add(self.me, self._build, disk=disk)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        self.life += 1
        session = ClientSession(
            me,
            rng,
            node=self.nodes[0],
            others=tuple(self.nodes[1:]),
            producer=self._producer(),
            life=f"{CLIENT}{self.name}#{self.life}",
            durable=self.durable,
            read_ahead=self.habits.read_ahead,
            outbox_bytes=self.habits.outbox_bytes,
        )
        self.soon(0.0, self.begin)
        return Stack([session])

    def _producer(self) -> str:
        if self.producer is None:
            return self.name
        return self.producer or f"nameless-{self.name}-{self.life}"

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """What this life wants to do later is void once it has crashed."""
        life = self.life

        def act() -> None:
            if life == self.life and self.sim.nodes[self.me].stack is not None:
                action()

        self.sim.call(seconds, act)

    def ask(self, request: Value) -> None:
        self.sim.ask(self.me, request)

    def begin(self) -> None: ...
    def hear(self, event: Value) -> None: ...


class Publisher(Client):
    """Puts numbered messages, a few at a time, and never the same number twice.

    If other clients put under its name, they may fence it. Then it puts no more in this life.
    """

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        readers: list[Subscriber],
        pause: float,
        habits: Habits = HABITS,
        shared_name: str = "",
    ) -> None:
        self.readers, self.pause, self.puts = readers, pause, habits.puts
        self.producer = shared_name or None
        self.contested = bool(shared_name)  # other processes that run put under its name
        self.put = 0
        self.promised: list[int] = []
        self.fenced = False  # in any of its lives
        self._fenced_life = 0
        self._tickets = 0
        self._batches: dict[int, range] = {}
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self._batches.clear()
        if all(reader.subscribed for reader in self.readers):
            self.go_on()
        else:  # what all who subscribe have read is not kept for who comes later
            self.soon(0.1, self.begin)

    def go_on(self) -> None:
        """Put until all is put."""
        count = min(self.sim.rng.choice((1, 1, 2, 5)), self.puts - self.put)
        if not count or self._fenced_life == self.life:
            return
        numbers = range(self.put, self.put + count)
        self.put += count
        self._tickets += 1
        self._batches[self._tickets] = numbers
        packed = batch.encode([self.value(number) for number in numbers], timestamps=1)
        self.ask(local.Produce(self._tickets, self.topic, count, packed))
        self.soon(self.sim.rng.uniform(0.0, 2 * count * self.pause), self.go_on)

    def value(self, number: int) -> bytes:
        return f"{self.name}/{number}".encode()

    def hear(self, event: Value) -> None:
        match event:
            case local.Stored(ticket) if ticket:
                self.promised += self._batches.pop(ticket)
            case local.NotStored(_, Fenced()) if self.contested:
                self.fenced, self._fenced_life = True, self.life
            case local.NotStored():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def check(self, log: list[bytes]) -> None:
        """What was promised is there, in order; and what was not lost in a crash of its own."""
        places = {value: place for place, value in enumerate(log)}
        found = {number: places.get(self.value(number), -1) for number in range(self.puts)}
        lost = [number for number in self.promised if found[number] < 0]
        there = [place for place in found.values() if place >= 0]
        if lost or len(set(self.promised)) != len(self.promised) or there != sorted(there):
            raise Violation(f"{self.me}: {lost} were promised and are lost, or out of order")
        if self.life == 1 and not self.fenced and len(self.promised) < self.puts:
            raise Violation(f"{self.me} was promised {len(self.promised)} of {self.puts}")


class Subscriber(Client):
    """Reads from the beginning, acknowledges as it goes, and is told what comes again.

    With `books` it stores its offset with its results, acknowledges what is stored, and reads on
    from there (E3). If other clients use its subscription, they may end its reading.
    """

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        habits: Habits = HABITS,
        books: bool = False,
        shared_name: str = "",
    ) -> None:
        self.subscription, self.shares = shared_name or name, bool(shared_name)
        self.books = books
        self.effects: list[bytes] = []  # by offset, with books
        self.seen: list[bytes] = []  # by offset
        self.subscribed = self.positioned = False
        self.ended: Value | None = None  # why, if another client ended its reading
        self.inbox = Inbox(auto_ack=not books)
        self._expected = self._handed_back = -1
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self.inbox = Inbox(auto_ack=not self.books)
        self._expected = self._handed_back = -1
        self.ask(local.Do(1, do.Subscribe(self.topic, self.subscription, do.FromEarliest(), 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                self.subscribed = True
                start = len(self.effects) if self.books and self.effects else -1
                self.ask(local.Read(self.topic, self.subscription, start, push=self.push))
            case local.Positioned(_, _, offset):
                if self._expected < 0 and offset > len(self.seen):
                    raise Violation(f"{self.me} begins at {offset}, after {len(self.seen) - 1}")
                self.positioned = True
                self._expected = offset
                self.inbox.position(offset)
            case local.Arrived(_, _, messages):
                self.inbox.arrive(messages)  # or drop them, if we have gone back meanwhile
                self._take_soon()
            case local.Ended(_, _, why) if self.shares:
                self.ended = why
            case local.Skipped() | local.Ended():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def _take_soon(self) -> None:
        self.soon(self.sim.rng.uniform(0.0, 0.02), self.take)

    def take(self) -> None:
        """Handle some of the messages that have arrived."""
        inbox = self.inbox
        for message in inbox.take_many(self.sim.rng.randrange(1, 5)):
            self.check(message)
            if self.books and message.offset == len(self.effects):
                self.effects.append(message.value)
        if self._hand_back():
            return
        if self.books and inbox.handed > inbox.ack:
            inbox.acknowledge(inbox.handed - 1)
        self.want_more()
        if inbox.queue:
            self._take_soon()

    def _hand_back(self) -> bool:
        """Ask for some messages again, now and then."""
        inbox, rng = self.inbox, self.sim.rng
        if inbox.ack == inbox.handed or not self.habits.nacks or rng.random() > self.habits.nacks:
            return False
        offset = rng.randrange(inbox.ack, inbox.handed)
        handed = inbox.back(offset)
        self._expected, self._handed_back = offset, handed
        self.ask(local.Again(self.topic, self.subscription, offset, handed))
        return True

    def want_more(self) -> None:
        inbox = self.inbox
        if len(inbox.queue) <= inbox.mark:
            inbox.mark //= 2
            self.ask(local.Want(self.topic, self.subscription, inbox.handed, inbox.ack))

    def check(self, message: batch.Message) -> None:
        """Each offset comes in order, and what comes again is marked (E4)."""
        offset = message.offset
        if offset != self._expected:
            raise Violation(f"{self.me} was handed {offset} where {self._expected} was due")
        self._expected += 1
        if offset < self._handed_back and not message.redelivered:
            raise Violation(f"{self.me}: {offset} was handed back and is not marked")
        if offset == len(self.seen):
            self.seen.append(message.value)
        elif offset > len(self.seen) or self.seen[offset] != message.value:
            raise Violation(f"{self.me} had {len(self.seen)}; {message} is not what comes there")
        elif not message.redelivered:
            raise Violation(f"{self.me}: {offset} comes again and is not marked")


class Outboxes(Checker):
    """Remembers what durable clients have on disk: all of it is stored in the end, whatever
    crashes."""

    def __init__(self) -> None:
        self.safe: dict[str, dict[bytes, None]] = {}  # by topic
        self._written: dict[NodeId, list[tuple[int, Queued]]] = {}

    def after(self, sim: Simulation, step: Step) -> None:
        if step.kind == "start":
            self._written[step.node] = []
        elif step.kind == "synced":
            written = self._written.get(step.node)
            while written and written[0][0] <= step.subject:
                queued = written.pop(0)[1]
                values = dict.fromkeys(batch.values(queued.batch))
                self.safe.setdefault(queued.topic, {}).update(values)
        for effect in step.effects:
            if type(effect) is Append and isinstance(effect.record, Queued):
                self._written[step.node].append((effect.number, effect.record))


def check_topic(
    publishers: list[Publisher], subscribers: list[Subscriber], outbox: Iterable[bytes] = ()
) -> list[bytes]:
    """Raise a Violation unless all has come once, in order, to all; return the topic.

    All clients are of one topic. `outbox` has messages that durable ones have written down.
    """
    readers = [reader for reader in subscribers if reader.ended is None]
    log = max((reader.seen for reader in readers), key=len)
    if len(set(log)) != len(log):
        raise Violation("something is in the topic twice")
    for reader in readers:
        if reader.seen != log:
            raise Violation(f"{reader.me} read {len(reader.seen)} of {len(log)}, or others")
        if reader.books and reader.effects != log:
            raise Violation(f"{reader.me} has other results than the topic has messages")
    for publisher in publishers:
        publisher.check(log)
    there = set(log)
    for value in outbox:
        if value not in there:
            raise Violation(f"{value!r} was in an outbox and is lost")
    return log
