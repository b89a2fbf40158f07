"""Clients of the scenario `workers` that change things while jobs are in flight.

An operator changes the settings of the subscription, and removes the subscription with its jobs. It
deletes the dead-letter topic, and creates other topics up to the limit. An
administrator withdraws the permissions of workers, and adds them again.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random

from msgspec.structs import replace

from oncecast.client.session import local
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.intruder_rules import KEYS, ROOT
from oncecast.lab.scenarios.paxos_clients import Client
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.lab.scenarios.workers_reference import LETTERS, OTHER_LETTERS, SUBSCRIPTION, TOPIC
from oncecast.security.values import Rule
from oncecast.simulator.simulated import Simulation
from oncecast.wire import commands as do
from oncecast.wire.sharing import Shared

WHERE = (TOPIC, SUBSCRIPTION)
CLUTTER = ("clutter-0", "clutter-1")
TOPICS_MAX = 3  # the topic, its dead-letter topic and another one
WORKER, FEEDER = "worker", "feeder"
OF_WORKERS = Rule(WORKER, ("read", "ack"), TOPIC)

RULES = (
    OF_WORKERS,
    Rule(WORKER, (), name="*"),
    Rule(FEEDER, ("put", "read", "ack", "manage"), "*"),
    Rule(FEEDER, (), name="*"),
)
COMMANDS: tuple[do.AccessCommand, ...] = (
    do.AddUser(ROOT, KEYS, admin=True),
    do.AddUser(WORKER, KEYS),
    do.AddUser(FEEDER, KEYS),
    *map(do.Allow, RULES),
)


def principal_of(client: NodeId) -> str:
    for name in (ROOT, WORKER):
        if client.startswith(CLIENT + name):
            return name
    return FEEDER if client.startswith(CLIENT) else ""


class Act(StrEnum):
    """An action that the operator repeats from time to time."""

    SETTINGS = "settings"  # change the settings of the subscription
    REMOVE = "remove"  # remove the subscription, which the workers create again
    LETTERS = "letters"  # delete dead-letter topics, and create other topics up to the limit


def draw_settings(rng: Random, lease: float) -> Shared:
    return Shared(
        lease_us=int(lease * 1e6),
        deliveries_max=rng.choice((0, 1, 2, 3, 10)),
        backoff_min_us=rng.choice((0, 50_000, 300_000)),
        backoff_max_us=rng.choice((300_000, 2_000_000)),
        in_flight_max=rng.choice((1, 5, 1000)),
        by_key=rng.random() < 0.4,
    )


class Operator(Client):
    keeps = False

    def __init__(
        self,
        sim: Simulation,
        nodes: list[NodeId],
        *,
        habits: Habits,
        acts: tuple[Act, ...],
        pause: float,
        settings: Shared,
    ) -> None:
        self._rng = Random(f"{sim.seed}/operator")
        self._acts, self._pause, self._settings = acts, pause, settings
        self._calm = False
        self._ticket = 0
        self._unanswered: set[int] = set()  # tickets of commands without an answer
        super().__init__(sim, "operator", nodes, crashes=False, habits=habits)

    def begin(self) -> None:
        self.soon(self._rng.expovariate(1 / self._pause), self._act)

    def _act(self) -> None:
        if self._calm:
            return
        match self._rng.choice(self._acts):
            case Act.SETTINGS:
                self._execute(do.SubscribeShared(*WHERE, do.FromEarliest(), 0, self._draw()))
            case Act.REMOVE:
                self._execute(do.Unsubscribe(*WHERE, 0))
            case Act.LETTERS:
                name = self._rng.choice((LETTERS, OTHER_LETTERS, *CLUTTER))
                if self._rng.random() < 0.5 and name in CLUTTER:
                    self._execute(do.CreateTopic(name, 0))
                else:
                    self._execute(do.DeleteTopic(name, 0))
        self.begin()

    def _draw(self) -> Shared:
        """Return settings of which about half have changed."""
        rng = self._rng
        drawn = draw_settings(rng, rng.choice((0.2, 0.5, 1.0, 3.0)))
        new = {
            name: getattr(drawn, name)
            for name in ("lease_us", "deliveries_max", "in_flight_max", "by_key")
            if rng.random() < 0.5
        }
        name = rng.choice(("", OTHER_LETTERS))
        self._settings = replace(self._settings, dead_letters=name, **new)
        return self._settings

    def _execute(self, command: Value) -> None:
        self._ticket += 1
        self._unanswered.add(self._ticket)
        self.ask(local.Do(self._ticket, command))  # type: ignore[arg-type]

    def hear(self, event: Value) -> None:
        if isinstance(event, local.Finished) and event.ticket in self._unanswered:
            self._unanswered.remove(event.ticket)
            if self._calm and not self._unanswered:
                self._make_space()

    def calm(self) -> None:
        """Change nothing any more, and make space for dead-letter topics.

        Wait for the answers to all earlier commands, because commands in flight have no order. One
        of them could create a topic again.
        """
        self._calm = True
        if not self._unanswered:
            self._make_space()

    def _make_space(self) -> None:
        if Act.LETTERS in self._acts:
            self._acts = ()
            for name in CLUTTER:
                self._execute(do.DeleteTopic(name, 0))
