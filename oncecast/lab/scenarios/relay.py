"""Publishers that follow each other under one producer name, each with its own state directory.

Each publisher is killed, and the next one starts immediately with the same name, while the dead
publisher's messages are still in flight. Sometimes the older one is not killed, and both put until
one of them is fenced. At the end, each directory is used once more. Everything in its outbox must
be stored once and in order (SVC-2, SVC-8).
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from oncecast.client.session.client import ClientSession
from oncecast.kernel.protocol import NodeId
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_clients import Client, Publisher, Subscriber
from oncecast.simulator.simulated import Simulation

NAME = "shared-directories"
LOOK_EVERY = 0.1
SOON = 0.03  # seconds; about the time that an answer takes


class Relay:
    def __init__(
        self,
        sim: Simulation,
        nodes: list[NodeId],
        readers: list[Subscriber],
        habits: Habits,
        until: float,
    ) -> None:
        self.sim, self.until, self.done = sim, until, False
        self._over, self._hasty = False, habits.hasty
        self._rng = Random(f"{sim.seed}/relay")
        self._turns = habits.directories * (1 + habits.crashes)
        each = replace(habits, puts=max(2, habits.puts // habits.directories))
        self.publishers = [
            Publisher(
                sim,
                f"directory-{number}",
                nodes,
                crashes=True,
                readers=readers,
                pause=until / self._turns / each.puts,
                habits=each,
                shared_name=NAME,
            )
            for number in range(habits.directories)
        ]

    def __str__(self) -> str:
        return f"{len(self.publishers)} state directories that share the producer name {NAME!r}"

    def begin(self, clients: dict[NodeId, Client]) -> None:
        for publisher in self.publishers:
            clients[publisher.me] = publisher
            self._kill(publisher)
        for _ in range(self._turns):
            when = self._rng.uniform(0.0, self.until)
            self.sim.call(when, self._take_over)
            if self._rng.random() < self._hasty:
                self.sim.call(when + self._rng.uniform(0.0, SOON), self._take_over)

    def _take_over(self) -> None:
        if self._over:
            return
        publisher = self._rng.choice(self.publishers)
        if self._rng.random() < 0.8:
            self._kill_all()
        self._start(publisher)
        running = [each for each in self.publishers if self._runs(each)]
        for each in running:
            # A process that runs alone is never fenced, even by messages from dead processes.
            each.contested = len(running) > 1

    def _start(self, publisher: Publisher) -> None:
        """Start a new process that uses the directory of this publisher."""
        self._kill(publisher)
        publisher.come_back()

    def _runs(self, publisher: Publisher) -> bool:
        return self.sim.nodes[publisher.me].stack is not None

    def _kill(self, publisher: Publisher) -> None:
        if self._runs(publisher):
            self.sim.crash(publisher.me)

    def _kill_all(self) -> None:
        for each in self.publishers:
            self._kill(each)

    def finish(self) -> None:
        """Use the directories once more, one by one, until each outbox is empty."""
        self._over = True
        self._kill_all()
        self._finish_next(list(self.publishers))

    def _finish_next(self, left: list[Publisher]) -> None:
        if not left:
            self.done = True
            return
        publisher = left.pop()
        self._start(publisher)
        publisher.contested = False

        def look() -> None:
            if self._idle(publisher):
                self._kill(publisher)
                self._finish_next(left)
            else:
                self.sim.call(LOOK_EVERY, look)

        self.sim.call(LOOK_EVERY, look)

    def _idle(self, publisher: Publisher) -> bool:
        if not self._runs(publisher) or publisher.put < publisher.puts:
            return False
        return not self.sim.protocol(publisher.me, ClientSession).unsettled
