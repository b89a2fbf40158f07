"""Publishers and subscribers that check exactly-once delivery.

They are real sessions: they find and follow the leader, resend, and sometimes crash. The checks run
on every event and at the end of a run (SVC-2, SVC-3, SVC-10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.client.session.inbox import Inbox
from oncecast.client.session.records import Queued
from oncecast.kernel.protocol import Append, NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced

TOPIC = "topic"
HABITS = Habits()
PUTS = HABITS.puts  # number of puts per publisher


class Client:
    """A client with one session at a time, across crashes."""

    topic = TOPIC
    push = False  # whether ring nodes push messages to this client
    keeps = True  # whether a client that crashes has an outbox on disk
    producer: str | None = None  # producer name; None for `name`, "" for a new name at each start

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
        self.starts = 0
        sim.add(self.me, self._build, durable=self.durable)

    def return_as_another(self, away: float) -> None:
        """Crash, and return with the same disk under another node id, as a new process does.

        Messages from the earlier incarnation may still arrive, but messages to that incarnation do
        not.
        """
        self.sim.crash(self.me)
        self.sim.call(away, self.come_back)

    def come_back(self) -> None:
        disk = self.sim.nodes[self.me].disk
        self.me = NodeId(f"{CLIENT}{self.name}#{self.starts + 1}")
        self.sim.add(self.me, self._build, disk=disk)

    def _build(self, me: NodeId, rng: Random) -> Stack:
        self.starts += 1
        session = ClientSession(
            me,
            rng,
            node=self.nodes[0],
            others=tuple(self.nodes[1:]),
            producer=self._producer(),
            incarnation=f"{CLIENT}{self.name}#{self.starts}",
            durable=self.durable,
            read_ahead=self.habits.read_ahead,
            outbox_bytes=self.habits.outbox_bytes,
        )
        self.soon(0.0, self.begin)
        return Stack([session])

    def _producer(self) -> str:
        if self.producer is None:
            return self.name
        return self.producer or f"nameless-{self.name}-{self.starts}"

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` later, unless the client has crashed by then."""
        start = self.starts

        def act() -> None:
            if start == self.starts and self.sim.nodes[self.me].stack is not None:
                action()

        self.sim.call(seconds, act)

    def ask(self, request: Value) -> None:
        self.sim.ask(self.me, request)

    def begin(self) -> None: ...
    def make_last_request(self) -> None: ...
    def hear(self, event: Value) -> None: ...


class Publisher(Client):
    """Puts numbered messages, a few at a time, and never the same number twice.

    Other clients with the same producer name may fence a publisher, which then puts nothing until
    its restart.
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
        self.contested = bool(shared_name)  # whether other processes use the same producer name
        self.put = 0
        self.promised: list[int] = []
        self.fenced = False  # whether this publisher was ever fenced
        self._fenced_start = 0
        self._tickets = 0
        self._batches: dict[int, range] = {}
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self._batches.clear()
        if all(reader.subscribed for reader in self.readers):
            self.go_on()
        else:  # a message that all current subscribers have read is not kept for later subscribers
            self.soon(0.1, self.begin)

    def go_on(self) -> None:
        """Put the remaining messages."""
        count = min(self.sim.rng.choice((1, 1, 2, 5)), self.puts - self.put)
        if not count or self._fenced_start == self.starts:
            return
        numbers = range(self.put, self.put + count)
        self.put += count
        self._tickets += 1
        self._batches[self._tickets] = numbers
        self.ask(local.Produce(self._tickets, self.topic, count, self.packed(numbers)))
        self.soon(self.sim.rng.uniform(0.0, 2 * count * self.pause), self.go_on)

    def packed(self, numbers: range) -> bytes:
        return batch.encode([self.value(number) for number in numbers], timestamps=1)

    def value(self, number: int) -> bytes:
        return f"{self.name}/{number}".encode()

    def hear(self, event: Value) -> None:
        match event:
            case local.Stored(ticket) if ticket:
                self.promised += self._batches.pop(ticket)
            case local.NotStored(_, Fenced()) if self.contested:
                self.fenced, self._fenced_start = True, self.starts
            case local.NotStored():
                raise Violation(f"{self.me}: {event}")
            case _:
                pass

    def check(self, log: list[bytes]) -> None:
        """Check that acknowledged messages, or all without a crash, are stored in order."""
        offsets = {value: offset for offset, value in enumerate(log)}
        found = {number: offsets.get(self.value(number), -1) for number in range(self.puts)}
        lost = [number for number in self.promised if found[number] < 0]
        there = [offset for offset in found.values() if offset >= 0]
        if lost or len(set(self.promised)) != len(self.promised) or there != sorted(there):
            raise Violation(
                f"{self.me}: messages are out of order or repeated, or acknowledged messages are "
                f"lost: {lost}"
            )
        if self.starts == 1 and not self.fenced and len(self.promised) < self.puts:
            raise Violation(
                f"{self.me}: only {len(self.promised)} of {self.puts} puts were acknowledged"
            )


class Subscriber(Client):
    """Reads from the beginning, acknowledges as it goes, and checks redelivered messages.

    With `stores_offset`, a subscriber stores its offset with its results, acknowledges stored
    messages, and resumes from the stored offset (E3). Other readers of the subscription may fence
    it.
    """

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        crashes: bool,
        habits: Habits = HABITS,
        stores_offset: bool = False,
        shared_name: str = "",
    ) -> None:
        self.subscription, self.shares = shared_name or name, bool(shared_name)
        self.stores_offset = stores_offset
        self.effects: list[bytes] = []  # the stored results by offset, if `stores_offset`
        self.seen: list[bytes] = []  # the messages that it has read, by offset
        self.subscribed = self.positioned = False
        # Why another client ended the subscriber's reading, if it did.
        self.ended: Value | None = None
        self.inbox = Inbox(auto_ack=not stores_offset)
        self._expected = self._redelivered_below = -1
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def begin(self) -> None:
        self.inbox = Inbox(auto_ack=not self.stores_offset)
        self._expected = self._redelivered_below = -1
        self.ask(local.Do(1, do.Subscribe(self.topic, self.subscription, do.FromEarliest(), 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                self.subscribed = True
                start = len(self.effects) if self.stores_offset and self.effects else -1
                self.ask(local.Read(self.topic, self.subscription, start, push=self.push))
            case local.Positioned(_, _, offset):
                if self._expected < 0 and offset > len(self.seen):
                    raise Violation(
                        f"{self.me} starts at {offset}, but has read only to {len(self.seen) - 1}"
                    )
                self.positioned = True
                self._expected = offset
                self.inbox.position(offset)
            case local.Arrived(_, _, messages):
                # If the reader has since moved to an earlier offset, the inbox drops these
                # messages.
                self.inbox.arrive(messages)
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
        """Process some of the messages that have arrived."""
        inbox = self.inbox
        for message in inbox.take_many(self.sim.rng.randrange(1, 5)):
            self.check(message)
            if self.stores_offset and message.offset == len(self.effects):
                self.effects.append(message.value)
        if self._hand_back():
            return
        if self.stores_offset and inbox.delivered > inbox.ack:
            inbox.acknowledge(inbox.delivered - 1)
        self.want_more()
        if inbox.queue:
            self._take_soon()

    def _hand_back(self) -> bool:
        """Reject some messages at random to have them redelivered. Return whether any were."""
        inbox, rng = self.inbox, self.sim.rng
        if (
            inbox.ack == inbox.delivered
            or not self.habits.nacks
            or rng.random() > self.habits.nacks
        ):
            return False
        offset = rng.randrange(inbox.ack, inbox.delivered)
        delivered = inbox.back(offset)
        self._expected, self._redelivered_below = offset, delivered
        self.ask(local.Again(self.topic, self.subscription, offset, delivered))
        return True

    def want_more(self) -> None:
        inbox = self.inbox
        if len(inbox.queue) <= inbox.mark:
            inbox.mark //= 2
            self.ask(local.Want(self.topic, self.subscription, inbox.delivered, inbox.ack))

    def check(self, message: batch.Message) -> None:
        """Check that offsets arrive in order and that redelivered messages are marked (E4)."""
        offset = message.offset
        if offset != self._expected:
            raise Violation(f"{self.me} got offset {offset}, expected {self._expected}")
        self._expected += 1
        if offset < self._redelivered_below and not message.redelivered:
            raise Violation(
                f"{self.me}: offset {offset} was rejected, but is not marked as redelivered"
            )
        if offset == len(self.seen):
            self.seen.append(message.value)
        elif offset > len(self.seen) or self.seen[offset] != message.value:
            raise Violation(
                f"{self.me} has read {len(self.seen)} messages, but {message} is not the next one"
            )
        elif not message.redelivered:
            raise Violation(
                f"{self.me}: offset {offset} arrived again, but is not marked as redelivered"
            )


class Outboxes(Checker):
    """Records the outboxes of durable clients. All their messages must be stored eventually."""

    def __init__(self) -> None:
        self.safe: dict[str, dict[bytes, None]] = {}  # messages that are stored, by topic
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
    """Return the topic's messages, or raise Violation if a reader missed or repeated one.

    All clients use one topic. `outbox` has the messages that durable clients wrote to disk.
    """
    readers = [reader for reader in subscribers if reader.ended is None]
    log = max((reader.seen for reader in readers), key=len)
    if len(set(log)) != len(log):
        raise Violation("the topic contains duplicate messages")
    for reader in readers:
        if reader.seen != log:
            raise Violation(
                f"{reader.me} read {len(reader.seen)} of {len(log)} messages, "
                "or read different messages"
            )
        if reader.stores_offset and reader.effects != log:
            raise Violation(f"the results of {reader.me} differ from the topic's messages")
    for publisher in publishers:
        publisher.check(log)
    there = set(log)
    for value in outbox:
        if value not in there:
            raise Violation(f"{value!r} was in an outbox, but is not in the topic")
    return log
