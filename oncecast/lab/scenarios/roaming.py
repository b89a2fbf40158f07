"""Clients that perform random operations on a few topics, some under shared names.

They check nothing themselves. Their requests and answers form a history, which is checked for
linearizability after the run (`scenarios.histories`). Requests without a timeout must be answered
eventually.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from msgspec.structs import replace

from oncecast.client.session import local
from oncecast.client.session.inbox import Inbox
from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.paxos_clients import TOPIC, Client
from oncecast.simulator.checkers import Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import OtherContent
from oncecast.wire.frames import Scan
from oncecast.wire.results import Published, StagedDropped
from oncecast.wire.retention import DEFAULT, Policy

SUBSCRIPTIONS = ("shared", "other")
BYTES = 1 << 16  # maximum bytes per scan; no topic holds more
RETRY = 0.1  # seconds before a source tries again after a refusal
# Checking a history is a search, which takes a long time if many requests overlap.
REQUESTS_MAX = 100  # maximum number of requests per client
WAITING_MAX = 40  # number of requests in flight at which a client stops making requests

Action = Callable[[], None]


class Roamer(Client):
    """A client with operations and frequencies drawn from the seed."""

    def __init__(
        self, sim: Simulation, name: str, nodes: list[NodeId], *, crashes: bool, habits: Habits
    ) -> None:
        self.rng = Random(f"{sim.seed}/{name}")
        # A client resends its outbox, which would put a message twice if a topic was deleted.
        self.deletes, self.keeps = habits.deletes, not habits.deletes
        self.topics = self._draw_topics(habits)
        self.stopped = False
        self.waiting: dict[int, Value] = {}  # requests that must be answered, by ticket
        # The last ticket, and the number of values that were put so far.
        self._ticket = self.number = 0
        self._asked_to_read: dict[tuple[str, str], None] = {}
        self._inboxes: dict[tuple[str, str], Inbox] = {}  # inboxes of the readers that have started
        self._leaving: dict[int, tuple[str, str]] = {}
        self._source = Source(self, f"source-{name}", reuses=habits.reuses)
        self._closes = habits.closes
        self._actions, self._weights = self._draw_actions()
        # Some clients share a producer name and take it over from each other.
        self.producer = self.rng.choice((name, name, "", "shared-producer"))
        super().__init__(sim, name, nodes, crashes=crashes, habits=habits)

    def _draw_topics(self, habits: Habits) -> list[str]:
        return [f"roaming-{number}" for number in range(habits.topics)]

    def _draw_actions(self) -> tuple[list[Action], list[float]]:
        looking = {self._look: 4.0, self._scan: 4.0, self._list: 0.5, self._show_group: 0.3}
        source = self._source
        often = 4.0 if source.reuses else 2.0
        putting = {self._put: 8.0, source.stage: often, source.publish: often, source.drop: 0.3}
        if self._closes:
            putting[source.close] = 0.5
        reading = {
            self._subscribe: 1.5,
            self._read: 3.0,
            self._move: 1.0,
            self._again: 1.0,
            self._settle: 2.0,
            self._leave: 1.0,
            self._seek: 0.5,
        }
        managing = {
            self._create: 1.0,
            self._set_policy: 0.7,
            self._unsubscribe: 0.4,
        }
        if self.deletes:
            managing.update({self._delete: 0.3, self._finish: 0.1})
        everything = {**looking, **putting, **reading, **managing}
        writer = {**putting, **reading, self._look: 1.0}
        watcher = {**looking, self._put: 0.5}
        kinds = (everything, everything, writer, watcher, watcher)
        chosen = self.rng.choice(kinds)
        return list(chosen), list(chosen.values())

    # -- start and stop --

    def begin(self) -> None:
        self.waiting.clear()  # a restarted client gets no answers to old requests
        self._inboxes.clear()
        self._asked_to_read.clear()
        self._leaving.clear()
        self._source.begin()
        self._act()

    def _act(self) -> None:
        if not self.stopped and self._ticket < REQUESTS_MAX:
            if len(self.waiting) < WAITING_MAX:
                self.rng.choices(self._actions, self._weights)[0]()
            self.soon(self.rng.expovariate(self.habits.rate), self._act)

    def make_last_request(self) -> None:
        """Publish what is staged, because the client is about to crash."""
        if not self._source.pending:
            self._source.publish()

    def stop(self) -> None:
        """Stop making requests, except for a last look at every topic."""
        self.stopped = True
        if self.sim.nodes[self.me].stack is not None:
            for topic in self.topics:
                self._ask_call(partial(self._show, topic))
                self._ask_call(partial(self._survey, topic, do.FromEarliest()))

    def check(self) -> None:
        """Raise Violation if a request got no answer.

        Under low limits a topic may stay refused. A put from an earlier process then waits in the
        outbox, and later puts wait behind it.
        """
        waiting = [each for each in self.waiting.values() if not self._may_wait(each)]
        if waiting:
            raise Violation(
                f"{self.me} got no answer to {len(waiting)} requests, including {waiting[:3]}"
            )

    def _may_wait(self, request: Value) -> bool:
        return bool(self.habits.limits) and isinstance(request, local.Produce)

    # -- requests --

    def any_topic(self) -> str:
        return self.rng.choice(self.topics)

    def _subscription(self) -> str:
        return self.rng.choice(SUBSCRIPTIONS)

    def _ask_call(self, make: Callable[[int, float], Value]) -> int:
        """Send a request, and return its ticket. Some requests time out and need no answer."""
        self._ticket += 1
        hurried = not self.stopped and self.rng.random() < 0.3
        request = make(self._ticket, self.rng.uniform(0.05, 2.0) if hurried else local.NEVER)
        if not hurried:
            self.waiting[self._ticket] = request
        self.ask(request)
        return self._ticket

    def ask_and_wait(self, make: Callable[[int], Value]) -> int:
        """Send a request that must be answered, and return its ticket."""
        self._ticket += 1
        request = self.waiting[self._ticket] = make(self._ticket)
        self.ask(request)
        return self._ticket

    def execute(self, command: Value) -> int:
        return self._ask_call(lambda ticket, timeout: local.Do(ticket, command, timeout))  # type: ignore[arg-type]

    def batch(self) -> tuple[int, bytes]:
        count = self.rng.choice((1, 1, 2, 3))
        values = [f"{self.name}/{self.number + each}".encode() for each in range(count)]
        self.number += count
        return count, batch.encode(values, timestamps=1)

    def _put(self) -> None:
        count, packed = self.batch()
        self.ask_and_wait(lambda ticket: local.Produce(ticket, self.any_topic(), count, packed))

    def _create(self) -> None:
        self.execute(do.CreateTopic(self.any_topic(), 0, self._policy()))

    def _set_policy(self) -> None:
        self.execute(do.SetPolicy(self.any_topic(), 0, self._policy()))

    def _policy(self) -> Policy:
        age, size = self.rng.randint(1, 3_000_000), self.rng.randint(1, 1000)
        policies = (
            DEFAULT,
            Policy(keep_all=True),
            Policy(age_us=age),
            Policy(bytes_max=size),
            Policy(age_us=age, bytes_max=size),
            Policy(age_us=age, drop_unread=True),
            Policy(bytes_max=size, drop_unread=True),
        )
        gossip = self.push and self.rng.random() < 0.3
        return replace(self.rng.choice(policies), gossip=gossip)

    def _delete(self) -> None:
        self.execute(do.DeleteTopic(self.any_topic(), 0))

    def _subscribe(self) -> None:
        self.execute(do.Subscribe(self.any_topic(), self._subscription(), self._start(), 0))

    def _unsubscribe(self) -> None:
        self.execute(do.Unsubscribe(self.any_topic(), self._subscription(), 0))

    def _seek(self) -> None:
        token = f"{self.me}/{self._ticket}"
        self.execute(do.Seek(self.any_topic(), self._subscription(), self._start(), 0, token))

    def _start(self) -> do.Start:
        offset = do.FromOffset(self.rng.randrange(30))
        ago = do.FromTime(self.sim.wall_us() - self.rng.randrange(5_000_000))
        return self.rng.choice((do.FromNew(), do.FromEarliest(), offset, ago))

    def _look(self) -> None:
        self._ask_call(partial(self._show, self.any_topic()))

    def _show(self, topic: str, ticket: int, timeout: float) -> local.Show:
        views = self.stopped or self.rng.random() < 0.7
        return local.Show(ticket, topic=topic, subscriptions=views, timeout=timeout)

    def _list(self) -> None:
        self._ask_call(
            lambda ticket, timeout: local.Show(ticket, prefix="roaming", timeout=timeout)
        )

    def _show_group(self) -> None:
        self._ask_call(lambda ticket, timeout: local.Group(ticket, timeout=timeout))

    def _scan(self) -> None:
        self._ask_call(partial(self._survey, self.any_topic(), self._start()))

    def _survey(self, topic: str, start: do.Start, ticket: int, timeout: float) -> local.Survey:
        return local.Survey(ticket, Scan(0, topic, start, bytes=BYTES), timeout)

    def _finish(self) -> None:
        """Close the producer and give up its name. The next put reopens the producer."""
        self._ticket += 1
        self.ask(local.Finish(self._ticket, forget=True, timeout=1.0))

    # -- reading --

    def _read(self) -> None:
        where = (self.any_topic(), self._subscription())
        if where not in self._asked_to_read:
            self._asked_to_read[where] = None
            self.ask(local.Read(*where, push=self.push and self.rng.random() < 0.5))

    def _reading(self) -> tuple[tuple[str, str], Inbox] | None:
        return self.rng.choice(list(self._inboxes.items())) if self._inboxes else None

    def _move(self) -> None:
        if reading := self._reading():
            where, start = reading[0], self._start()
            self._ask_call(lambda ticket, timeout: local.Move(ticket, *where, start, timeout))

    def _again(self) -> None:
        if reading := self._reading():
            where, inbox = reading
            if inbox.ack < inbox.delivered:
                offset = self.rng.randrange(inbox.ack, inbox.delivered)
                self.ask(local.Again(*where, offset, inbox.back(offset)))

    def _settle(self) -> None:
        if reading := self._reading():
            where, inbox = reading
            if self.rng.random() < 0.5:
                inbox.acknowledge_all()
            self._ask_call(
                lambda ticket, _: local.Settle(ticket, *where, inbox.delivered, inbox.ack)
            )

    def _leave(self) -> None:
        if reading := self._reading():
            where, inbox = reading
            del self._inboxes[where]
            self._ask_call(
                lambda ticket, timeout: local.Leave(
                    ticket, *where, inbox.delivered, inbox.ack, timeout
                )
            )
            self._leaving[self._ticket] = where

    def _take(self, where: tuple[str, str], inbox: Inbox) -> None:
        if self._inboxes.get(where) is not inbox:
            return
        inbox.take_many(self.rng.randint(1, 5))
        if not inbox.auto_ack and inbox.delivered > inbox.ack and self.rng.random() < 0.5:
            inbox.acknowledge(inbox.delivered - 1)
        if len(inbox.queue) <= inbox.mark:
            inbox.mark //= 2
            self.ask(local.Want(*where, inbox.delivered, inbox.ack))
        if inbox.queue:
            self.soon(self.rng.uniform(0.0, 0.02), lambda: self._take(where, inbox))

    def hear(self, event: Value) -> None:
        match event:
            case local.Stored(ticket) | local.NotStored(ticket):
                self.waiting.pop(ticket, None)
            case local.Finished(ticket) | local.Shown(ticket):
                self.waiting.pop(ticket, None)
                if left := self._leaving.pop(ticket, None):
                    self._asked_to_read.pop(left, None)
                if isinstance(event, local.Finished):
                    self._source.finished(ticket, event.outcome)
            case local.Positioned() | local.Arrived() | local.Skipped() | local.Ended():
                self._hear_reading(event)
            case _:
                pass

    def _hear_reading(
        self, event: local.Positioned | local.Arrived | local.Skipped | local.Ended
    ) -> None:
        where = (event.topic, event.subscription)
        if isinstance(event, local.Positioned) and where not in self._leaving.values():
            self._inboxes.setdefault(where, Inbox(auto_ack=self.rng.random() < 0.7))
        elif isinstance(event, local.Ended):
            self._asked_to_read.pop(where, None)
        inbox = self._inboxes.get(where)
        if inbox is None:
            return
        match event:
            case local.Positioned(_, _, offset):
                inbox.position(offset)
            case local.Arrived(_, _, messages):
                inbox.arrive(messages)
                self.soon(self.rng.uniform(0.0, 0.02), lambda: self._take(where, inbox))
            case local.Skipped(_, _, _, after):
                inbox.position(after)
            case local.Ended():
                del self._inboxes[where]


class Source:
    """The source of a roaming client. It publishes its numbers in order, each to one topic.

    If `reuses` is true, it drops a number whose publish was refused, timed out or was interrupted
    by a crash. Then it stages other messages under the same number and names. First it waits for
    its own calls, because the session would repeat them after the drop. If a crash interrupted a
    stage, it uses the next number: a late copy of a stage would take the name of a new part.
    """

    def __init__(self, client: Roamer, name: str, *, reuses: bool) -> None:
        self.client, self.name, self.reuses = client, name, reuses
        self.number = self.drops = 0
        self.ticket = 0  # ticket of the pending publish or drop, or 0 if there is none
        self.topic = ""
        self.parts: list[str] = []
        self._staging: dict[int, None] = {}  # tickets of the pending stages
        self._ends = False  # whether to drop the number once no stage is pending

    @property
    def pending(self) -> bool:
        """Return whether a stage, publish or drop is in flight."""
        return bool(self.ticket or self._staging)

    def begin(self) -> None:
        """Resume publishing after the client has started or restarted."""
        self.ticket = 0
        if self.reuses and self.number and not self._staging:
            self.drop()
        else:
            self._staging.clear()
            self.begin_next()

    def begin_next(self) -> None:
        self.number, self.ticket, self.drops = self.number + 1, 0, 0
        self.parts, self.topic, self._ends = [], self.client.any_topic(), False

    def stage(self) -> None:
        if self.ticket or self._ends:
            return
        count, packed = self.client.batch()
        part = f"part-{len(self.parts) if self.reuses else self.client.number}"
        self.parts.append(part)
        where = (self.name, self.number, part, self.topic)
        stage = do.Stage(*where, count, len(packed), 0, packed)
        if self.reuses:
            ticket = self.client.ask_and_wait(partial(local.Do, command=stage))
            self._staging[ticket] = None
        else:
            self.client.execute(stage)

    def publish(self) -> None:
        if not self.parts or self.ticket or self._ends:
            return
        parts = tuple(self.parts)
        if not self.reuses:
            publish = do.PublishStaged(self.name, self.number, parts, 0, self.topic)
            self.ticket = self.client.ask_and_wait(partial(local.Do, command=publish))
            return
        digest = f"{self.drops}".encode()  # so that it cannot be taken for an earlier publish
        publish = do.PublishStaged(self.name, self.number, parts, 0, self.topic, digest=digest)
        self.ticket = self.client.execute(publish)

    def drop(self) -> None:
        if self.ticket:
            return
        drop = do.DropStaged(self.name, self.number, self.topic, renew=True)
        if not self.reuses:
            self.client.execute(drop)
            self.begin_next()
            return
        self._ends = bool(self._staging)
        if not self._ends:
            self.ticket = self.client.ask_and_wait(partial(local.Do, command=drop))

    def close(self) -> None:
        """Close the source. It will not return, so the next number uses another source name."""
        if not self.ticket and not self._ends:
            self.client.execute(do.CloseSource(self.name, 0, self.topic, renew=True))
            self.name = f"{self.name}'"
            self.begin_next()

    def finished(self, ticket: int, outcome: object) -> None:
        self._staging.pop(ticket, None)
        if self._ends and not self._staging:
            self.drop()
        if ticket != self.ticket:
            return
        self.ticket = 0
        if isinstance(outcome, StagedDropped) and self.reuses:
            self.drops += 1
            dropped, self.parts = self.parts, []
            for _ in dropped:
                self.stage()
        elif self.reuses and not isinstance(outcome, Published | OtherContent):
            self.client.soon(RETRY, self.drop)  # the permission to put may have been withdrawn
        else:
            self.begin_next()


class Watcher(Roamer):
    """A client that only reads state, including the topic that publishers and subscribers check.

    It stays with a node that answers, even if that node is no longer the leader.
    """

    def _draw_topics(self, habits: Habits) -> list[str]:
        return [TOPIC, *super()._draw_topics(habits)[:1]]

    def _draw_actions(self) -> tuple[list[Action], list[float]]:
        return [self._look, self._scan], [1.0, 1.0]
