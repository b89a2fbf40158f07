"""Applications of the scenario `ring-transactions`: they copy messages in transactions.

Each transaction acknowledges messages of one topic, and puts a copy of each to every output. The
topics belong to several groups. Each copy names its attempt, so a check can tell which transactions
became visible.
"""

from __future__ import annotations

from collections import deque

from oncecast.client.session import local
from oncecast.client.session.inbox import Inbox
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import Fenced, Refusal
from oncecast.wire.frames import ClientCommand
from oncecast.wire.message import Message
from oncecast.wire.results import Staged, TransactionEnded
from oncecast.wire.sharing import Shared, runs_of
from oncecast.wire.transactions import Accepted, Consumed, EndTransaction, Output

SUBSCRIBED = 1
SUBSCRIPTION = "copies"
PAUSE = 0.1  # seconds after a refusal
LEASE_US = 2_000_000
SETTINGS = Shared(lease_us=LEASE_US, deliveries_max=0, backoff_min_us=0, backoff_max_us=200_000)


class Attempts:
    """The outcomes of transactions, as far as the copiers know them."""

    def __init__(self) -> None:
        self.made = 0
        self.committed: dict[str, None] = {}
        self.aborted: dict[str, None] = {}
        self.subscribed: dict[str, None] = {}  # inputs whose subscription exists

    def new(self, name: str) -> str:
        self.made += 1
        return f"{name}.{self.made}"


class Attempt:
    """A transaction of a copier, and the requests that it waits for."""

    def __init__(self, name: str, messages: list[Message]) -> None:
        self.name, self.messages = name, messages
        self.begun: dict[str, local.Begun] = {}  # by topic
        self.waiting: dict[int, str] = {}  # topics of the requests without an answer, by ticket
        self.staged: dict[str, tuple[str, ...]] = {}


class Copier(Client):
    """Reads a topic alone. Copies some messages at a time, and goes on once they are copied."""

    keeps = False

    def __init__(
        self,
        sim: Simulation,
        name: str,
        nodes: list[NodeId],
        *,
        habits: Habits,
        source: str,
        outputs: list[str],
        attempts: Attempts,
    ) -> None:
        self.source, self.outputs, self.attempts = source, outputs, attempts
        self.stopped = False  # whether another copier with the same names continues
        self._tickets = SUBSCRIBED
        self._reset()
        super().__init__(sim, name, nodes, crashes=True, habits=habits)

    def _reset(self) -> None:
        self.inbox = Inbox(auto_ack=False)
        self.epoch = 0
        self.attempt: Attempt | None = None

    def begin(self) -> None:
        self._reset()
        if not self.stopped:
            self.ask(local.Do(SUBSCRIBED, self._subscribe()))

    @property
    def subscribed(self) -> bool:
        return self.topic in self.attempts.subscribed

    def _subscribe(self) -> ClientCommand:
        return do.Subscribe(self.topic, SUBSCRIPTION, do.FromEarliest(), 0)

    def _join(self) -> None:
        self.ask(local.Read(self.topic, SUBSCRIPTION, -1))

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    # -- events --

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(ticket) if ticket == SUBSCRIBED:
                self.attempts.subscribed[self.topic] = None
                self._join()
            case local.Positioned(_, _, offset):
                self.epoch = event.epoch
                self.inbox.position(offset)
            case local.Arrived(_, _, messages):
                self.inbox.arrive(messages)
                self.take_soon()
            case local.Skipped() | local.Ended():
                self.soon(PAUSE, self._restart)
            case local.Begun():
                self._begun(event)
            case local.Finished(ticket, outcome):
                self._heard(ticket, outcome)
            case _:
                pass

    def take_soon(self) -> None:
        self.soon(self.sim.rng.uniform(0.0, 0.05), self.take)

    def take(self) -> None:
        """Start a transaction with some of the messages that have arrived."""
        if self.attempt is not None:
            return
        messages = self._some(self.sim.rng.randint(1, 3))
        if not messages:
            return
        attempt = self.attempt = Attempt(self.attempts.new(self.me), messages)
        topics = [self.topic, *self.outputs]
        self.sim.rng.shuffle(topics)  # so each of them decides in some transactions
        for topic in topics:
            attempt.waiting[ticket := self._ticket()] = topic
            self.ask(local.Begin(ticket, self.source, topic))

    def _some(self, count: int) -> list[Message]:
        return self.inbox.take_many(count)

    # -- a transaction --

    def _begun(self, begun: local.Begun) -> None:
        attempt = self.attempt
        topic = None if attempt is None else attempt.waiting.pop(begun.ticket, None)
        if attempt is None or topic is None:
            return
        attempt.begun[topic] = begun
        if topic in self.outputs and self.sim.rng.random() < 0.3:
            self._stage(attempt, topic, begun)
        self._end_if_ready(attempt)

    def _stage(self, attempt: Attempt, topic: str, begun: local.Begun) -> None:
        data = self._copies(attempt)
        facts = (self.source, begun.number, "part", topic, len(attempt.messages), len(data), 0)
        attempt.staged[topic] = ("part",)
        attempt.waiting[ticket := self._ticket()] = topic
        self.ask(local.Do(ticket, do.Stage(*facts, data, epoch=begun.epoch)))

    def _copies(self, attempt: Attempt) -> bytes:
        values = [copy_of(self.topic, each.offset, attempt.name) for each in attempt.messages]
        return batch.encode(values, timestamps=1)

    def _end_if_ready(self, attempt: Attempt) -> None:
        if not attempt.waiting:
            shares = tuple([self._share(attempt, topic) for topic in attempt.begun])
            attempt.waiting[ticket := self._ticket()] = ""
            self.ask(local.EndAll(ticket, shares))

    def _share(self, attempt: Attempt, topic: str) -> EndTransaction:
        begun = attempt.begun[topic]
        facts = (self.source, begun.topic, begun.epoch, begun.number, 0, 0)
        if topic == self.topic:
            return self._acknowledging(EndTransaction(*facts), attempt)
        parts = attempt.staged.get(topic, ())
        if parts:
            return EndTransaction(*facts, parts=parts)
        data = self._copies(attempt)
        output = Output(topic, len(attempt.messages), len(data), data)
        return EndTransaction(*facts, outputs=(output,))

    def _acknowledging(self, share: EndTransaction, attempt: Attempt) -> EndTransaction:
        first, upto = attempt.messages[0].offset, attempt.messages[-1].offset + 1
        consumed = (Consumed(self.topic, SUBSCRIPTION, self.epoch, first, upto),)
        facts = (share.source, share.topic, share.epoch, share.number, 0, 0)
        return EndTransaction(*facts, consumed=consumed)

    def _heard(self, ticket: int, outcome: local.Outcome) -> None:
        attempt = self.attempt
        topic = None if attempt is None else attempt.waiting.pop(ticket, None)
        if attempt is None or topic is None:
            return
        if topic and isinstance(outcome, Staged):
            self._end_if_ready(attempt)
            return
        self.attempt = None
        if topic:
            self._drop(attempt)
        if isinstance(outcome, TransactionEnded) and outcome.committed:
            self.attempts.committed[attempt.name] = None
            self._keep(attempt)
            self.take_soon()
            return
        # A refusal before the end is final too, because the shares are never sent.
        if isinstance(outcome, Refusal):
            self.attempts.aborted[attempt.name] = None
        self._give_back(attempt)
        again = self._restart if isinstance(outcome, Fenced) else self.take
        self.soon(PAUSE, again)

    def _drop(self, attempt: Attempt) -> None:
        """Abort a transaction whose shares were not sent."""
        for begun in attempt.begun.values():
            facts = (self.source, begun.topic, begun.epoch, begun.number, 0, 0)
            command = EndTransaction(*facts, commit=False)
            self.ask(local.End(self._ticket(), command))

    def _restart(self) -> None:
        """Continue as a new process, because another one has taken over."""
        self.return_as_another(self.sim.rng.uniform(0.0, 1.0))

    def _keep(self, attempt: Attempt) -> None:
        inbox = self.inbox
        inbox.acknowledge(attempt.messages[-1].offset)
        self.ask(local.Want(self.topic, SUBSCRIPTION, inbox.delivered, inbox.ack))

    def _give_back(self, attempt: Attempt) -> None:
        first = attempt.messages[0].offset
        delivered = self.inbox.back(first)
        self.ask(local.Again(self.topic, SUBSCRIPTION, first, delivered))


class WorkingCopier(Copier):
    """Copies jobs of a shared subscription, beside other workers."""

    def _reset(self) -> None:
        super()._reset()
        self.worker = ""
        self.jobs: deque[tuple[int, Message]] = deque()  # each with its token

    def _subscribe(self) -> ClientCommand:
        return do.SubscribeShared(self.topic, SUBSCRIPTION, do.FromEarliest(), 0, SETTINGS)

    def _join(self) -> None:
        self.ask(local.Join(self.topic, SUBSCRIPTION, 4))

    def hear(self, event: Value) -> None:
        match event:
            case local.Given():
                self.worker = event.worker
                self.jobs += [(event.token, message) for message in event.messages]
                self.take_soon()
            case local.Expired() | local.Lost():
                leases = set(event.leases)
                left = [each for each in self.jobs if (each[0], each[1].offset) not in leases]
                self.jobs = deque(left)
                if isinstance(event, local.Expired):
                    self._hand_back(list(leases))
            case _:
                super().hear(event)

    def _some(self, count: int) -> list[Message]:
        some = [self.jobs.popleft() for _ in range(min(count, len(self.jobs)))]
        self._tokens = {message.offset: token for token, message in some}
        return [message for _, message in some]

    def _leases(self, attempt: Attempt) -> list[tuple[int, int]]:
        return sorted((self._tokens[each.offset], each.offset) for each in attempt.messages)

    def _acknowledging(self, share: EndTransaction, attempt: Attempt) -> EndTransaction:
        runs = tuple(runs_of(self._leases(attempt)))
        accepted = (Accepted(self.topic, SUBSCRIPTION, self.worker, runs),)
        facts = (share.source, share.topic, share.epoch, share.number, 0, 0)
        return EndTransaction(*facts, accepted=accepted)

    def _keep(self, attempt: Attempt) -> None:
        leases = tuple(self._leases(attempt))
        self.ask(local.Handle(self.topic, SUBSCRIPTION, transacted=leases))

    def _give_back(self, attempt: Attempt) -> None:
        self._hand_back(self._leases(attempt))

    def _hand_back(self, leases: list[tuple[int, int]]) -> None:
        release = tuple([(token, offset, 0, "") for token, offset in leases])
        self.ask(local.Handle(self.topic, SUBSCRIPTION, release=release))


def copy_of(topic: str, offset: int, attempt: str) -> bytes:
    return f"{topic}|{offset}|{attempt}".encode()


def parts_of(value: bytes) -> tuple[str, int, str]:
    """Return the topic, the offset and the attempt of a copy."""
    topic, offset, attempt = value.decode().split("|")
    return topic, int(offset), attempt
