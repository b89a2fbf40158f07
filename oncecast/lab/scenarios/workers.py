"""Workers of a shared subscription in a storm: they crash, stall, fail and come back.

Each seed draws the group and its faults like the scenario `service`, and the settings of the
subscription. A reference model checks each decided command (WRK-1 to WRK-4). At the end, each
message is accepted once or is a dead letter once, and no message had too many deliveries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
from msgspec.structs import replace

from oncecast.broker.dispatching import BURY_MAX, Dispatcher
from oncecast.broker.gateway import Gateway
from oncecast.broker.governing import Governor
from oncecast.broker.guard import guard_of_replica
from oncecast.broker.service import DISPUTE_TICK_US, Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios import draw as drawing
from oncecast.lab.scenarios import service, service_draw
from oncecast.lab.scenarios.draw import Habits
from oncecast.lab.scenarios.intruders import Administrator
from oncecast.lab.scenarios.paxos import Campaign
from oncecast.lab.scenarios.paxos_clients import Client, Outboxes
from oncecast.lab.scenarios.paxos_history import CLIENT, GroupHistory
from oncecast.lab.scenarios.paxos_storm import GroupStorm
from oncecast.lab.scenarios.scenario import Figures, Scenario
from oncecast.lab.scenarios.service_draw import ServiceDraw
from oncecast.lab.scenarios.workers_apps import Feeder, WorkerApp
from oncecast.lab.scenarios.workers_operator import (
    COMMANDS,
    OF_WORKERS,
    TOPICS_MAX,
    Act,
    Operator,
    draw_settings,
    principal_of,
)
from oncecast.lab.scenarios.workers_reference import TOPIC, Reference
from oncecast.replication.paxos import Paxos
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.wire import errors, levels
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.sharing import DEFAULT_SHARED, Shared


class WorkersDraw(ServiceDraw, frozen=True):
    shared: Shared = Shared()
    workers: int = 3
    window: int = 4  # maximum messages that a worker holds
    slow: float = 0.1  # approximate mean duration of a job, in seconds
    stalls: int = 2  # number of stalls per worker
    window_bytes: int = 8 << 20
    # Mean seconds between changes to the workers' permissions, or 0 for none.
    withdraws: float = 0.0
    acts: tuple[Act, ...] = ()  # operator actions
    pause: float = 1.0  # mean seconds between operator actions

    @property
    def patience(self) -> float:
        """Return the seconds of calm within which all jobs must be done.

        A clock that was wrong by less than a step may have moved the deadlines by as much. The
        leader retries a refused dead-letter write at growing intervals. A subscription that is
        created again has the default settings, with longer leases and backoffs. While the time is
        disputed, an idle leader moves it once a minute.
        """
        letters = BURY_MAX if Act.LETTERS in self.acts else 0.0
        longest = DEFAULT_SHARED.lease_us + DEFAULT_SHARED.backoff_max_us
        default = longest / 1e6 if Act.REMOVE in self.acts else 0.0
        dispute = 2 * DISPUTE_TICK_US / 1e6
        return super().patience + 3 * self.habits.clock_step + letters + default + dispute

    @property
    def limits(self) -> Limits:
        topics = TOPICS_MAX if Act.LETTERS in self.acts else LIMITS.topics_max
        step = int(self.habits.clock_step * 1e6)
        return replace(LIMITS, topics_max=topics, clock_step_us=step)

    @property
    def ends(self) -> tuple[type, ...]:
        """Return the refusals that workers may get."""
        denied = (errors.Denied,) if self.withdraws else ()
        removed = (errors.NotSubscribed, errors.NoSuchTopic) if Act.REMOVE in self.acts else ()
        full = (errors.TooMany,) if Act.LETTERS in self.acts else ()
        changed = (errors.InvalidArgument,) if self.acts else ()  # by_key cannot change now
        return (*denied, *removed, *full, *changed)


def draw(seed: int, nodes: int) -> WorkersDraw:
    rng = Random(f"{seed}/{nodes}/workers")
    base = service_draw.draw(seed, nodes)
    lease = rng.choice((0.2, 0.5, 1.0, 3.0))
    habits = Habits(
        puts=rng.randint(5, 40),
        crashes=rng.randint(0, 3),
        away=rng.choice((0.0, 0.2, 1.5)),
        clock_step=rng.choice((base.habits.clock_step, 0.3, 1.0)),
        snapshot_bytes=base.habits.snapshot_bytes,
    )
    fields = msgspec.structs.asdict(base) | {"habits": habits}
    often = rng.choice((0.0, 0.0, 4.0, 10.0))
    return WorkersDraw(
        **fields,
        shared=draw_settings(rng, lease),
        workers=rng.randint(1, 5),
        window=rng.choice((1, 2, 5, 100)),
        slow=lease * rng.choice((0.05, 0.3, 1.0)),
        stalls=rng.randint(0, 3),
        window_bytes=rng.choice((8 << 20, 8 << 20, 100)),
        withdraws=drawing.rounded(base.seconds / often) if often else 0.0,
        acts=tuple(act for act in Act if rng.random() < 0.3),
        pause=drawing.rounded(base.seconds / rng.choice((3.0, 10.0, 20.0))),
    )


class Workshop(Checker):
    """The Top of a campaign that runs the service with workers."""

    def __init__(self, sim: Simulation, drawn: WorkersDraw) -> None:
        self.sim, self.drawn = sim, drawn
        self.outboxes = Outboxes()
        self.reference: Reference
        self.feeders: list[Feeder] = []
        self.workers: list[WorkerApp] = []
        self._clients: dict[NodeId, Client] = {}
        self.operator: Operator | None = None
        self.root: Administrator | None = None

    def watch(self, history: GroupHistory) -> None:
        self.reference = Reference(history)

    def layers(self, me: NodeId, rng: Random, group: Paxos) -> list[Protocol]:
        made = Service(
            me,
            rng,
            group=group,
            wall=lambda: self.sim.wall_us(me),
            limits=self.drawn.limits,
            snapshot_bytes=self.drawn.habits.snapshot_bytes,
        )
        group.attach(made)
        return [
            made,
            Gateway(me, rng, service=made, principal_of=principal_of),
            Dispatcher(
                me,
                rng,
                service=made,
                window_bytes=self.drawn.window_bytes,
                principal_of=principal_of,
            ),
            Governor(me, rng, group=group.status),
        ]

    def checkers(self) -> list[Checker]:
        return [self, self.outboxes, self.reference]

    # -- clients --

    def secure(self, storm: GroupStorm) -> None:
        """Add the users and their rules before the other clients start."""
        drawn = self.drawn
        self.root = Administrator(
            self.sim, storm.nodes, drawn.habits, commands=COMMANDS, rule=OF_WORKERS
        )
        self._clients[self.root.me] = self.root
        self.root.secure(storm, drawn.patience, drawn.seconds)

    def begin(self, sim: Simulation, leaders: Callable[[], list[NodeId]], until: float) -> None:
        nodes = [node for node in sim.nodes if not node.startswith(CLIENT)]
        drawn, habits = self.drawn, self.drawn.habits
        for crashes in (False, True):
            name = "mortal-feeder" if crashes else "feeder"
            pause = 0.8 * until / habits.puts
            self.feeders.append(
                Feeder(sim, name, nodes, crashes=crashes, readers=[], pause=pause, habits=habits)
            )
        for number in range(drawn.workers):
            sim.rng.shuffle(nodes)
            self.workers.append(
                WorkerApp(
                    sim,
                    f"worker-{number}",
                    nodes[:],
                    habits=habits,
                    reference=self.reference,
                    settings=drawn.shared,
                    window=drawn.window,
                    slow=drawn.slow,
                    ends=drawn.ends,
                )
            )
        if drawn.acts:
            self.operator = Operator(
                sim,
                nodes[:],
                habits=habits,
                acts=drawn.acts,
                pause=drawn.pause,
                settings=drawn.shared,
            )
            self._clients[self.operator.me] = self.operator
        if self.root is not None:
            self.root.withdraw_rules(drawn.withdraws)
        self._schedule_faults(sim, until)

    def _schedule_faults(self, sim: Simulation, until: float) -> None:
        for client in (*self.feeders, *self.workers):
            self._clients[client.me] = client
            for _ in range(self.drawn.habits.crashes if client.crashes else 0):
                sim.call(sim.rng.uniform(0.0, until), partial(self._bounce, client))
        for worker in self.workers:
            for _ in range(self.drawn.stalls):
                sim.call(sim.rng.uniform(0.0, until), partial(self._stall, worker))

    def _bounce(self, client: Client) -> None:
        if self.sim.nodes[client.me].stack is not None:
            self.sim.bounce(client.me, self.sim.rng.uniform(0.0, self.drawn.habits.away))

    def _stall(self, worker: WorkerApp) -> None:
        """Stop a worker for up to three leases, as a long garbage collection does."""
        node = self.sim.nodes[worker.me]
        if node.stack is None or node.paused:
            return
        self.sim.pause(worker.me)
        lease = self.drawn.shared.lease_us / 1e6
        self.sim.call(self.sim.rng.uniform(0.5, 3.0) * lease, lambda: self._go_on(worker.me))

    def _go_on(self, worker: NodeId) -> None:
        if self.sim.nodes[worker].paused:
            self.sim.resume(worker)

    def heard(self, sim: Simulation, node: NodeId, event: Value) -> None:
        client = self._clients.get(node)
        if client is not None:  # deferred, because the step that emits the event has not ended
            client.soon(0.0, lambda: client.hear(event))

    # -- the end --

    def stop(self) -> None:
        if self.operator is not None:
            self.operator.calm()
        if self.root is not None:
            self.root.end_withdrawals()
        for worker in self.workers:
            worker.calm()

    def end(self, stacks: dict[NodeId, list[Protocol]]) -> None:
        reference = self.reference
        if reference.unsettled:
            raise Violation(f"offsets {reference.unsettled} were never settled")
        if len(set(reference.values)) != len(reference.values):
            raise Violation("the topic contains duplicate messages")
        for feeder in self.feeders:
            feeder.check(reference.values)
        for value in self.outboxes.safe.get(TOPIC, ()):
            if value not in reference.values:
                raise Violation(f"{value!r} was in an outbox, but is not in the topic")
        self._check_deliveries()
        for node, (made, *_) in stacks.items():
            assert isinstance(made, Service)
            if made.machine.checksum() != reference.checksum:
                raise Violation(f"the state of {node} differs from the reference")

    def _check_deliveries(self) -> None:
        starts: dict[int, int] = {}
        for worker in self.workers:
            for _, offset in worker.started:
                starts[offset] = starts.get(offset, 0) + 1
        assert self.reference.model is not None
        most = self.reference.model.deliveries_max
        many = [offset for offset, count in starts.items() if 0 < most < count]
        if many:
            raise Violation(f"messages at offsets {many} were started more than {most} times")


class GuardedCampaign(Campaign):
    def build(self, me: NodeId, rng: Random) -> Stack:
        stack = super().build(me, rng)
        made = next(each for each in stack.protocols if isinstance(each, Service))
        stack.guard = guard_of_replica(made, principal_of)
        return stack


def play(sim: Simulation, nodes: int) -> Figures:
    return play_drawn(sim, draw(sim.seed, nodes))


def play_drawn(sim: Simulation, drawn: WorkersDraw) -> Figures:
    service.set_up(sim, drawn)
    workshop = Workshop(sim, drawn)
    campaign = GuardedCampaign(
        sim, drawn.nodes, workshop, drawn, spares=drawn.spares, rules=False, level=levels.KNOWN
    )
    workshop.watch(campaign.history)
    storm = service.begin(sim, drawn, campaign)
    if drawn.withdraws:
        workshop.secure(storm)
    service.run_storm(sim, drawn, workshop, storm)
    campaign.settle(storm)
    reference = workshop.reference
    return {
        "nodes": drawn.nodes,
        "strikes": storm.strikes,
        "slots": campaign.history.last,
        "messages": len(reference.values),
        "leases": reference.leases,
        "refused": reference.refused,
        "dead_letters": len(reference.letters),
        "corrections": reference.corrections,
    }


WORKERS = Scenario(
    "workers",
    "workers of a shared subscription that crash, stall and fail in a storm of faults",
    5,
    play,
    nodes_min=1,
    draw=draw,
)
