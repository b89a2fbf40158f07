"""A topic that keeps messages up to a maximum age, while some nodes' wall clocks are wrong.

No message is removed more than one clock step before it reaches the age limit. At the end, every
message is removed (SVC-9).
"""

from __future__ import annotations

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.retention import Policy

CREATE, LOOK = -1, -2  # tickets of requests that are not puts
LOOK_EVERY = 0.2
# Maximum number of puts in flight; even a slow group must store them before the run ends.
AHEAD = 20
FASTEST = 1.25  # the fastest rate of any clock in a storm; nodes measure ages by their own clocks


class Ager(Client):
    """Puts messages, and checks the first offset that the topic keeps. It never crashes."""

    topic = "aging"

    def __init__(self, sim: Simulation, name: str, nodes: list[NodeId], habits: Habits) -> None:
        self.stopped = self.empty = False
        self._asked: dict[int, float] = {}  # time of each put, by ticket
        self._put: dict[int, float] = {}  # the earliest time of the put, by offset
        self._first = 0
        super().__init__(sim, name, nodes, crashes=False, habits=habits)

    @property
    def stores(self) -> bool:
        """Return whether any message was stored."""
        return bool(self._put)

    def begin(self) -> None:
        policy = Policy(age_us=int(self.habits.age * 1e6))
        self.ask(local.Do(CREATE, do.CreateTopic(self.topic, 0, policy)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(ticket) if ticket == CREATE:
                self._produce()
                self._look()
            case local.Stored(ticket, offset):
                self._put[offset] = self._asked.pop(ticket)
            case local.Shown(ticket, view) if ticket == LOOK:
                self._seen(view.topics[0].first, view.topics[0].next)  # type: ignore[union-attr]
                self.soon(LOOK_EVERY, self._look)
            case _:
                pass

    def _produce(self) -> None:
        if self.stopped:
            return
        if len(self._asked) < AHEAD:
            ticket = len(self._asked) + len(self._put) + 1
            self._asked[ticket] = self.sim.now
            self.ask(local.Produce(ticket, self.topic, 1, batch.encode([b"x"], timestamps=1)))
        self.soon(self.sim.rng.uniform(0.0, 0.5), self._produce)

    def _look(self) -> None:
        self.ask(local.Show(LOOK, topic=self.topic, subscriptions=False))

    def _seen(self, first: int, end: int) -> None:
        habits = self.habits
        for offset in range(self._first, first):
            age = self.sim.now - self._put.get(offset, 0.0)
            if FASTEST * age < habits.age - habits.clock_step:
                raise Violation(
                    f"{self.topic}: offset {offset} was removed after only {age:.2f} s; the habits "
                    f"are {habits}"
                )
        self._first = max(self._first, first)
        self.empty = self.stopped and not self._asked and first == end

    def check(self) -> None:
        if not self.empty:
            raise Violation(f"{self.topic} still has messages, starting at offset {self._first}")
