"""Random clients use the real state machine: calls overlap, are repeated, lost and abandoned.

Commands are executed one by one, so everything that the clients record is linearizable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from oncecast.broker.delivery import Flows, readable_subscription
from oncecast.broker.gateway import topic_view
from oncecast.broker.machine import Machine
from oncecast.broker.subscription import Subscription
from oncecast.client.session import local
from oncecast.client.session.identity import Identity
from oncecast.history.operation import History
from oncecast.history.recorder import Recorder, Sink
from oncecast.history.session import SessionHistory
from oncecast.kernel.protocol import Value
from oncecast.wire import batch, errors
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.frames import Chunk, Scan, Scanned, View
from oncecast.wire.limits import LIMITS
from oncecast.wire.message import Message
from oncecast.wire.retention import DEFAULT, Policy

TOPICS = ("red", "blue")
POLICIES = (
    DEFAULT,
    DEFAULT,
    Policy(keep_all=True),
    Policy(bytes_max=300),
    Policy(age_us=50),
    Policy(bytes_max=200, drop_unread=True),
)


class Node:
    """The state machine, and the messages of its topics."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.slot = self.clock = 0
        self.logs: dict[int, list[bytes]] = {}  # topic epoch -> messages
        self._staged: dict[tuple[str, int, str], bytes] = {}
        self.machine.apply(0, do.SetLimits(LIMITS, do.SEEK_LEVEL))

    def apply(self, command: Any) -> Any:
        self.slot += 1
        self.clock += 7
        if "at" in command.__struct_fields__:
            command = type(command)(
                *(
                    self.clock if name == "at" else getattr(command, name)
                    for name in fields(command)
                )
            )
        result = self.machine.apply(self.slot, command)
        if isinstance(result, done.Appended):
            self._append(command.topic, batch.values(command.batch)[-result.count :])
        elif isinstance(command, do.Stage) and result == done.Staged(already=False):
            self._staged[command.source, command.number, command.part] = command.batch
        elif isinstance(result, done.Published) and not result.already:
            for part in command.parts:
                packed = self._staged[command.source, command.number, part]
                self._append(command.topic, batch.values(packed))
        return result

    def _append(self, topic: str, values: list[bytes]) -> None:
        self.logs.setdefault(self.machine.registry.topics[topic].id, []).extend(values)

    def look(self, show: local.Show) -> View:
        topic = self.machine.registry.topics.get(show.topic)
        views = () if topic is None else (topic_view(topic, show.subscriptions, Flows()),)
        return View(1, views, False, "node", "")

    def scan(self, scan: Scan) -> Scanned | errors.NoSuchTopic:
        topic = self.machine.registry.topics.get(scan.topic)
        if topic is None:
            return errors.NoSuchTopic(scan.topic)
        offset = topic.nearest_offset(scan.start)
        values = self.logs.get(topic.id, [])[offset : offset + 3]
        chunks = (
            (Chunk(offset, 0, len(values), "", 0, batch.encode(values, timestamps=1)),)
            if values
            else ()
        )
        return Scanned(1, topic.id, topic.index.first, topic.index.next, offset, chunks)


def fields(command: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = command.__struct_fields__
    return found


class Call:
    """A call in flight: executed any number of times, answered with the last result."""

    def __init__(self, client: Client, ticket: int, execute: Callable[[], Any]) -> None:
        self.client, self.ticket, self.execute = client, ticket, execute
        self.result: Any = None

    def attempt(self) -> None:
        result = self.execute()
        if result is not None:
            self.result = result

    def answer(self) -> None:
        shown = isinstance(self.result, View | Scanned)
        kind = local.Shown if shown else local.Finished
        self.client.hear(kind(self.ticket, self.result))


class Flow:
    """A client's puts to one topic until it restarts, in order."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic = client, topic
        self.topic_id = self.epoch = self.number = self._shift = 0
        self.unsettled: dict[int, tuple[int, int, bytes]] = {}
        self._answers: dict[int, local.Stored] = {}

    def put(self, ticket: int, count: int, packed: bytes) -> None:
        self.unsettled[self.number] = (ticket, count, packed)
        self.number += count

    def execute(self) -> None:
        client = self.client
        if not self.epoch:
            opened = client.node.apply(
                do.OpenProducer(self.topic, client.name, client.incarnation, 0)
            )
            assert isinstance(opened, done.Opened)
            self.epoch = opened.epoch
            if opened.topic_id != self.topic_id:
                self.topic_id = opened.topic_id
                self._shift = opened.next_sequence - next(iter(self.unsettled), self.number)
            return
        number = client.rng.choice([*self.unsettled][:3])
        ticket = self.unsettled[number][0]
        match client.node.apply(self.command(number)):
            case done.Appended(offset, _, kept):
                self._answers[number] = local.Stored(ticket, offset, kept)
            case done.Already(offset):
                self._answers[number] = local.Stored(ticket, offset, None)
            case errors.Unopened():
                self.epoch = 0
                self._answers.clear()
            case errors.Fenced() | errors.Gap():
                pass
            case other:
                raise AssertionError(other)

    def command(self, number: int) -> do.Put:
        _, count, packed = self.unsettled[number]
        sequence = number + self._shift
        where = (self.topic, self.client.name, self.epoch, sequence)
        return do.Put(*where, count, len(packed), 0, packed)

    def answer(self) -> None:
        first = next(iter(self.unsettled), -1)
        stored = self._answers.pop(first, None)
        if stored is not None:
            del self.unsettled[first]
            self.client.hear(stored)


class Reader:
    """A reader. Messages sent to it arrive later, unless a seek moves it first."""

    confirmed = -1  # each ack is answered by the node

    def __init__(
        self, client: Client, topic: str, name: str, incarnation: str, start_at: int
    ) -> None:
        self.client, self.topic, self.name, self.incarnation = client, topic, name, incarnation
        self.start_at = start_at
        self.epoch = self.topic_id = 0
        self.expected = self.delivered = self.acked = self.sent = 0
        self.back = 0  # messages below this offset were rejected
        self.coming: list[local.Arrived] = []

    def execute(self) -> None:
        node = self.client.node
        if not self.epoch:
            self._attach()
            return
        found = readable_subscription(node.machine, self.topic, self.name, self.epoch)
        if isinstance(found, errors.Repositioned):
            self.epoch = found.epoch
            self._position(found.cursor, 0)
        elif isinstance(found, errors.Refusal):
            self._end(found)
        elif isinstance(found, Subscription):
            self._send(found)

    def _attach(self) -> None:
        node = self.client.node
        result = node.apply(do.Attach(self.topic, self.name, self.incarnation))
        if self.client.rng.random() < 0.2:
            return  # the answer gets lost
        if not isinstance(result, done.Attached):
            self._end(result)
            return
        start = self.start_at
        if start > result.next:
            self._end(errors.OutOfRange(result.next))
            return
        self.epoch, self.topic_id = result.epoch, result.topic_id
        if 0 <= start < result.cursor:
            seek = do.Seek(
                self.topic, self.name, do.FromOffset(start), 0, self.incarnation, self.epoch
            )
            sought = node.apply(seek)
            self.epoch = sought.epoch
            self._position(sought.cursor, result.next)
            if sought.cursor > start:
                skipped = local.Skipped(self.topic, self.name, start, sought.cursor)
                self.client.hear(skipped)
        else:
            self._position(max(start, result.cursor), result.next)

    def _position(self, offset: int, end: int) -> None:
        self.coming.clear()
        self.back = 0
        self.expected = self.delivered = self.acked = self.sent = offset
        self.client.hear(local.Positioned(self.topic, self.name, offset, max(offset, end)))

    def _end(self, why: Any) -> None:
        self.client.readers.pop((self.topic, self.name), None)
        self.client.hear(local.Ended(self.topic, self.name, why))

    def _send(self, subscription: Subscription) -> None:
        node, rng = self.client.node, self.client.rng
        first, end = node.machine.bounds(self.topic)
        if self.sent < first:
            if self.sent == self.delivered == self.expected:
                self.client.hear(local.Skipped(self.topic, self.name, self.expected, first))
                self.expected = self.delivered = self.sent = first
            return
        values = node.logs.get(self.topic_id, [])[self.sent : end][: rng.randrange(1, 4)]
        if not values:
            return
        below = max(subscription.suspect_below, self.back)
        messages = [
            Message(self.topic, offset, None, value, {}, 1, "", 0, offset < below)
            for offset, value in enumerate(values, self.sent)
        ]
        self.sent += len(values)
        self.coming.append(local.Arrived(self.topic, self.name, messages, end, False))

    def arrive(self) -> None:
        arrived = self.coming.pop(0)
        self.expected = arrived.messages[-1].offset + 1
        self.client.hear(arrived)


class Client:
    """A client that survives restarts. SessionHistory sees it as a session."""

    def __init__(self, play: Play, name: str) -> None:
        self.play, self.node, self.rng, self.name = play, play.node, play.rng, name
        self.starts = self.tickets = 0
        self.begin()

    def begin(self) -> None:
        self.starts += 1
        self.incarnation = f"{self.name}#{self.starts}"
        self.identity = Identity(self.name, self.incarnation, durable=False)
        self.flows: dict[str, Flow] = {}
        self.readers: dict[tuple[str, str], Reader] = {}
        self.calls: list[Call] = []
        self.history = SessionHistory(self.play.recorder, self.name, self)  # type: ignore[arg-type]

    def hear(self, event: Value) -> None:
        self.play.time += 1
        self.history.heard(event)

    def ask(self, request: Value) -> None:
        self.play.time += 1
        self.history.asked(request)

    # -- actions --

    def crash(self) -> None:
        """Restart. Calls in flight may still be executed."""
        ghosts = self.play.ghosts
        for flow in self.flows.values():
            if flow.epoch:
                puts = [flow.command(number) for number in flow.unsettled]
                ghosts += [partial(self.node.apply, put) for put in puts]
        ghosts += [call.execute for call in self.calls]
        self.rng.shuffle(ghosts)
        del ghosts[4:]
        self.begin()

    def put(self, topic: str) -> None:
        self.tickets += 1
        values = [
            f"{self.name}/{self.rng.choice((self.tickets, 0))}/{number}".encode()
            for number in range(self.rng.choice((1, 1, 2, 3)))
        ]
        packed = batch.encode(values, timestamps=1)
        self.ask(local.Produce(self.tickets, topic, len(values), packed))
        self.flows.setdefault(topic, Flow(self, topic)).put(self.tickets, len(values), packed)

    def command(self, command: Any) -> None:
        self.tickets += 1
        if isinstance(command, do.Once):
            command = replace(command, token=f"{self.incarnation}.{self.tickets}")
        self.ask(local.Do(self.tickets, command))
        self.calls.append(Call(self, self.tickets, lambda: self.node.apply(command)))

    def seek(self, topic: str, name: str) -> None:
        self.tickets += 1
        seek = do.Seek(topic, name, self.play.start(), 0, f"{self.incarnation}.{self.tickets}")
        self.ask(local.Do(self.tickets, seek))
        self.calls.append(Call(self, self.tickets, self._attempts(replace(seek, expected=0))))

    def _attempts(self, seek: do.Seek) -> Callable[[], Any]:
        """Return a function that executes a copy of any attempt so far.

        If the node names another epoch, the next attempt has that epoch, as in a client session.
        """
        attempts = [seek]

        def execute() -> Any:
            asked = self.rng.choice(attempts)
            result = self.node.apply(asked)
            if not isinstance(result, errors.Fenced | errors.Repositioned):
                return result
            if isinstance(result, errors.Repositioned):
                seek = replace(asked, epoch=result.epoch)
            elif asked.epoch:
                return result
            else:
                seek = replace(asked, expected=result.epoch)
            if seek not in attempts:
                attempts.append(seek)
            return None

        return execute

    def look(self, topic: str) -> None:
        self.tickets += 1
        show = local.Show(self.tickets, topic, subscriptions=self.rng.random() < 0.7)
        self.ask(show)
        self.calls.append(Call(self, self.tickets, lambda: self.node.look(show)))

    def scan(self, topic: str) -> None:
        self.tickets += 1
        scan = Scan(0, topic, self.play.start())
        self.ask(local.Survey(self.tickets, scan))
        self.calls.append(Call(self, self.tickets, lambda: self.node.scan(scan)))

    def read(self, topic: str, name: str) -> None:
        if (topic, name) in self.readers:
            return
        start = self.rng.choice((-1, -1, -1, self.rng.randrange(6)))
        self.ask(local.Read(topic, name, start))
        self.tickets += 1
        incarnation = f"{self.incarnation}.{self.tickets}"
        self.readers[topic, name] = Reader(self, topic, name, incarnation, start)

    # -- actions of readers --

    def take(self, reader: Reader) -> None:
        if not reader.epoch:
            return
        reader.delivered = self.rng.randint(reader.delivered, reader.expected)
        reader.acked = self.rng.randint(reader.acked, reader.delivered)
        where = (reader.topic, reader.name)
        offsets = (reader.delivered, reader.acked)
        ack = do.Ack(*where, reader.epoch, reader.acked)
        kind = self.rng.random()
        if kind < 0.6:
            self.ask(local.Want(*where, *offsets))
            self.play.ghosts.append(lambda: self.node.apply(ack))
        elif kind < 0.8:
            self.tickets += 1
            self.ask(local.Settle(self.tickets, *where, *offsets))
            self.calls.append(Call(self, self.tickets, lambda: self.node.apply(ack)))
        elif kind < 0.9 and reader.acked < reader.expected:
            offset = self.rng.randrange(reader.acked, reader.expected)
            self.ask(local.Again(*where, offset, reader.delivered))
            reader.back = max(reader.back, reader.delivered)
            reader.expected = reader.delivered = reader.sent = offset
            reader.coming.clear()
        elif kind < 0.95:
            self.leave(reader, ack)
        else:
            self.move(reader)

    def leave(self, reader: Reader, ack: do.Ack) -> None:
        self.tickets += 1
        where = (reader.topic, reader.name)
        self.ask(local.Leave(self.tickets, *where, reader.delivered, reader.acked))
        del self.readers[where]
        detach = do.Detach(*where, reader.epoch, max(reader.delivered, reader.back))

        def execute() -> Any:
            self.node.apply(ack)
            return self.node.apply(detach)

        self.calls.append(Call(self, self.tickets, execute))

    def move(self, reader: Reader) -> None:
        self.tickets += 1
        where = (reader.topic, reader.name)
        start = self.play.start()
        self.ask(local.Move(self.tickets, *where, start))
        seek = do.Seek(*where, start, 0, f"{self.incarnation}.{self.tickets}", reader.epoch)
        self.calls.append(Call(self, self.tickets, self._attempts(seek)))


class Play:
    def __init__(
        self, seed: int | str, *, topics: int = 2, clients: int = 3, sink: Sink | None = None
    ) -> None:
        self.rng = Random(seed)
        self.time = 0.0
        self.node = Node()
        self.recorder = Recorder(lambda: self.time, sink)
        self.ghosts: list[Callable[[], Any]] = []  # calls that are executed once or never
        self._topics = TOPICS[:topics]
        self.clients = [Client(self, name) for name in ("ann", "bob", "eve")[:clients]]
        self._numbers = 0
        self._parts: dict[tuple[str, int], list[str]] = {}

    def start(self) -> do.Start:
        rng = self.rng
        return rng.choice(
            (do.FromNew(), do.FromEarliest(), do.FromOffset(rng.randrange(8)), do.FromTime(100))
        )

    def run(self, steps: int) -> History:
        acts = (self._begin, self._execute, self._execute, self._answer, self._answer)
        for _ in range(steps):
            self.time += 1
            self.rng.choice(acts)()
        for client in self.clients:
            client.history.settle()
        return self.recorder.history

    def _begin(self) -> None:
        rng = self.rng
        client, topic = rng.choice(self.clients), rng.choice(self._topics)
        name = rng.choice(("one", "two"))
        do_ = client.command
        acts: list[tuple[int, Callable[[], None]]] = [
            (10, lambda: client.put(topic)),
            (4, lambda: client.look(topic)),
            (3, lambda: client.scan(topic)),
            (4, lambda: client.read(topic, name)),
            (3, lambda: do_(do.Subscribe(topic, name, self.start(), 0))),
            (1, lambda: do_(do.Unsubscribe(topic, name, 0))),
            (1, lambda: do_(do.CreateTopic(topic, 0, rng.choice(POLICIES)))),
            (1, lambda: do_(do.SetPolicy(topic, 0, rng.choice(POLICIES)))),
            (1, lambda: do_(do.DeleteTopic(topic, 0))),
            (2, lambda: client.seek(topic, name)),
            (2, lambda: self._stage(client, topic)),
            (1, client.crash),
        ]
        weights, found = zip(*acts, strict=True)
        (act,) = rng.choices(found, weights)
        act()

    def _stage(self, client: Client, topic: str) -> None:
        """Stage messages. Each source has one topic."""
        rng, source = self.rng, f"source of {topic}"
        self._numbers += rng.random() < 0.3
        number = self._numbers
        parts = self._parts.setdefault((topic, number), [])
        if len(parts) < 2:
            parts.append(f"part {len(parts)}")
            packed = batch.encode([f"{topic}/{number}/{parts[-1]}".encode()], timestamps=1)
            client.command(do.Stage(source, number, parts[-1], topic, 1, len(packed), 0, packed))
        else:
            client.command(do.PublishStaged(source, number, tuple(parts), 0, topic))

    def _execute(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients)
        flows = [flow for flow in client.flows.values() if flow.unsettled]
        execute: list[Callable[[], Any]] = [
            *(flow.execute for flow in flows),
            *(reader.execute for reader in client.readers.values()),
        ]
        execute += [call.attempt for call in client.calls]
        if self.ghosts and rng.random() < 0.3:
            ghost = self.ghosts.pop(rng.randrange(len(self.ghosts)))
            if rng.random() < 0.7:
                ghost()
        elif execute:
            rng.choice(execute)()

    def _answer(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients)
        flows = [flow for flow in client.flows.values() if flow.unsettled]
        answers: list[Callable[[], None]] = [flow.answer for flow in flows]
        for reader in client.readers.values():
            answers.append(partial(client.take, reader))
            if reader.coming:
                answers.append(reader.arrive)
        answers += [
            partial(self._answer_call, client, call)
            for call in client.calls
            if call.result is not None
        ]
        if answers:
            rng.choice(answers)()

    def _answer_call(self, client: Client, call: Call) -> None:
        client.calls.remove(call)
        if self.rng.random() < 0.3:
            self.ghosts.append(call.execute)  # a late copy may be executed
        if self.rng.random() < 0.9:
            call.answer()
