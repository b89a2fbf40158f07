"""NET-1: test the effects of each fault in the simulator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from oncecast.errors import Corrupt, SyncFailed
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.kernel.stack import Stack
from oncecast.lab.scenarios import shuffle
from oncecast.simulator.buckets import Event
from oncecast.simulator.faults import Storm
from oncecast.simulator.latency import Exponential, Fixed, LogNormal, Uniform
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.trace import Trace
from oncecast.simulator.weather import Kind
from tests.network.echo import AlarmIn, Call, Echo, Gone, Heard, Rang, Shout, Watchful, build

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


class World:
    """Three nodes with a latency of 0.1 s, and the events of their applications."""

    def __init__(self, *, durable: bool = False, seed: int = 1) -> None:
        self.heard: list[tuple[float, NodeId, Value]] = []
        self.sim = Simulation(
            seed,
            latency=Fixed(0.1),
            sync_latency=Fixed(0.01),
            listener=lambda node, event: self.heard.append((round(self.sim.now, 6), node, event)),
        )
        for node in (A, B, C):
            self.sim.add(node, build, durable=durable)

    def shout(self, sender: NodeId, to: NodeId, text: str) -> None:
        self.sim.ask(sender, Shout(to, text))

    def run(self, seconds: float) -> list[tuple[float, NodeId, Value]]:
        """Run for this many seconds and return the events."""
        self.heard.clear()
        self.sim.run(until=self.sim.now + seconds)
        return self.heard

    def written(self, node: NodeId) -> list[str]:
        stack = self.sim.nodes[node].stack
        assert stack is not None
        (echo,) = stack.protocols
        assert isinstance(echo, Echo)
        return echo.written


def test_message_arrives_after_its_latency() -> None:
    world = World()
    world.shout(A, B, "hello")
    assert world.run(1.0) == [(0.1, B, Heard("hello")), (0.2, A, Heard("hello"))]


def test_reply_waits_for_the_records_it_depends_on() -> None:
    """SVC-10: records are written before messages and events are sent."""
    world = World(durable=True)
    world.shout(A, B, "hello")
    assert world.run(1.0) == [(0.11, B, Heard("hello")), (0.21, A, Heard("hello"))]


def test_waiting_records_share_one_sync() -> None:
    world = World(durable=True)
    for index in range(10):
        world.shout(A, B, f"{index}")
        world.shout(C, B, f"{index}")
    world.run(0.1105)
    assert len(world.written(B)) == 20
    journal = world.sim.nodes[B].journal
    assert journal is not None
    assert journal.synced == 1  # the first record is synced alone, the rest together
    world.run(0.0105)
    assert journal.synced == 20


def test_partition_drops_only_messages_that_cross_it() -> None:
    world = World()
    fronts = world.sim.partition([A], [B])
    world.shout(A, B, "lost")
    world.shout(A, C, "kept")
    assert [event for _, _, event in world.run(1.0)] == [Heard("kept")] * 2
    world.sim.repair(fronts)
    world.shout(A, B, "again")
    assert [event for _, _, event in world.run(1.0)] == [Heard("again")] * 2


def test_one_way_partition_keeps_the_other_direction() -> None:
    world = World()
    world.sim.partition([B], [A], one_way=True)
    world.shout(A, B, "hello")
    assert world.run(1.0) == [(0.1, B, Heard("hello"))]


def test_isolated_node_cannot_reach_other_nodes() -> None:
    world = World()
    world.sim.isolate(C)
    for one, other in ((A, C), (C, A), (A, B)):
        world.shout(one, other, f"{one}{other}")
    assert {event for _, _, event in world.run(1.0)} == {Heard("ab")}


def test_held_messages_are_delayed_until_release() -> None:
    world = World()
    fronts = world.sim.hold([A], [B])
    world.shout(A, B, "first")
    world.shout(A, B, "second")
    assert world.run(1.0) == []
    world.sim.repair(fronts)
    assert world.run(0.15) == [(1.1, B, Heard("first")), (1.1, B, Heard("second"))]


def test_slow_link_adds_its_delay() -> None:
    world = World()
    world.sim.slow([A], [B], extra=0.5, one_way=True)
    world.shout(A, B, "hello")
    assert world.run(1.0) == [(0.6, B, Heard("hello")), (0.7, A, Heard("hello"))]


def test_loss_and_duplication_occur_with_the_given_probability() -> None:
    world = World()
    world.sim.weather.set(loss=0.5)
    for _ in range(1000):
        world.shout(A, B, "x")
    arrived = sum(node == B for _, node, _ in world.run(1.0))
    assert 400 < arrived < 600
    world.sim.weather.set(loss=0.0, duplication=0.5)
    for _ in range(1000):
        world.shout(A, C, "x")
    assert 1400 < sum(node == C for _, node, _ in world.run(1.0)) < 1600


@pytest.mark.parametrize("fifo", [True, False])
def test_messages_overtake_each_other_unless_links_are_fifo(fifo: bool) -> None:
    world = World()
    world.sim.weather.set(latency=Uniform(0.0, 1.0), fifo=fifo)
    for index in range(100):
        world.shout(A, B, f"{index:03}")
    texts = [event.text for _, node, event in world.run(5.0) if node == B]  # type: ignore[attr-defined]
    assert len(texts) == 100
    assert (texts == sorted(texts)) is fifo


def test_latency_distributions_have_the_expected_mean() -> None:
    sim = Simulation(1)
    for latency, mean in (
        (Uniform(0.0, 2.0), 1.0),
        (Exponential(1.0), 1.0),
        (Exponential(1.0, floor=1.0), 2.0),
        (LogNormal(1.0, 0.5), 1.133),
        (Fixed(3.0), 3.0),
    ):
        draw = latency.bind(sim.rng)
        assert sum(draw() for _ in range(20_000)) / 20_000 == pytest.approx(mean, rel=0.05)


def test_crashed_node_loses_messages_and_timers() -> None:
    world = World()
    world.sim.ask(B, AlarmIn(0.5))
    world.shout(A, B, "too late")
    world.run(0.0)
    world.sim.crash(B)
    world.sim.restart(B)
    world.sim.crash(B)
    assert world.run(1.0) == []
    assert world.sim.alive() == [A, C]


def test_crash_keeps_exactly_the_synced_records() -> None:
    """SVC-10."""
    for seed in range(20):
        world = World(durable=True, seed=seed)
        world.shout(A, B, "synced")
        world.run(0.5)
        world.shout(A, B, "unsynced")
        assert world.run(0.105) == []  # the message has arrived, and its sync is in progress
        assert world.written(B) == ["synced", "unsynced"]
        world.sim.bounce(B, away=0.1)
        world.run(0.2)
        # The record may or may not survive, but no message about it may have left.
        assert world.written(B) in (["synced"], ["synced", "unsynced"])
        assert (A, Heard("unsynced")) not in [(node, event) for _, node, event in world.heard]


def test_paused_node_does_nothing_but_loses_no_input() -> None:
    world = World()
    world.sim.ask(B, AlarmIn(0.5))
    world.run(0.0)
    world.sim.pause(B)
    world.shout(A, B, "hello")
    assert world.run(1.0) == []
    world.sim.resume(B)
    assert world.heard == [(1.0, B, Heard("hello")), (1.0, B, Rang(1.0))]
    assert world.run(1.0) == [(1.1, A, Heard("hello"))]


def test_timers_on_a_skewed_clock_fire_early_or_late() -> None:
    world = World()
    world.sim.skew(B, rate=2.0)
    world.sim.skew(C, rate=0.5, ahead=10.0)
    for node in (A, B, C):
        world.sim.ask(node, AlarmIn(1.0))
    rang = {
        node: (time, event.at) for time, node, event in world.run(3.0) if isinstance(event, Rang)
    }
    assert rang[A] == (1.0, 1.0)
    assert rang[B] == pytest.approx((0.5, 1.0))
    assert rang[C] == pytest.approx((2.0, 11.0))


def test_timers_fire_after_a_clock_slows_down() -> None:
    world = World()
    world.sim.ask(A, AlarmIn(1.0))
    world.run(0.5)
    world.sim.skew(A, rate=0.5)
    ((time, _, _),) = world.run(3.0)
    assert time == pytest.approx(1.5)


def test_watched_node_crash_is_reported_once() -> None:
    world = World()
    world.sim.ask(A, Watchful(B))
    world.run(1.0)
    world.sim.crash(B)
    assert world.run(5.0) == [(1.1, A, Gone(B))]
    world.sim.restart(B)
    world.sim.crash(B)
    assert world.run(5.0) == []


def test_missing_node_is_reported_down_at_once() -> None:
    world = World()
    world.sim.crash(B)
    world.sim.ask(A, Watchful(B))
    world.sim.ask(A, Watchful(NodeId("nobody")))
    assert {event for _, _, event in world.run(1.0)} == {Gone(B), Gone(NodeId("nobody"))}


@pytest.mark.parametrize("fault", ["pause", "partition", "one way"])
def test_silent_node_is_reported_down_after_the_keepalive(fault: str) -> None:
    world = World()
    world.sim.ask(A, Watchful(B))
    world.run(1.0)
    if fault == "pause":
        world.sim.pause(B)
    else:
        world.sim.partition([A], [B], one_way=fault == "one way")
    assert world.run(2.9) == []
    assert world.run(0.2) == [(4.0, A, Gone(B))]


def test_briefly_silent_node_is_not_reported() -> None:
    world = World()
    world.sim.ask(A, Watchful(B))
    fronts = world.sim.partition([A], [B])
    world.run(2.0)
    world.sim.repair(fronts)
    assert world.run(5.0) == []


def test_failed_fsync_halts_the_node_and_drops_held_messages() -> None:
    """SVC-10: the node stops with an error."""
    world = World(durable=True)
    node = world.sim.nodes[B]
    assert node.disk is not None
    node.disk.fail_sync()
    world.shout(A, B, "hello")
    assert world.run(1.0) == []
    assert isinstance(node.halted, SyncFailed)
    assert "stop the node" in str(node.halted)
    world.sim.restart(B)
    world.shout(A, B, "again")
    assert [who for _, who, _ in world.run(1.0)] == [B, A]


def test_flipped_bit_is_reported_at_the_next_start_and_never_served() -> None:
    """SVC-10."""
    world = World(durable=True)
    for index in range(20):
        world.shout(A, B, f"message {index}")
        world.run(0.5)
    node = world.sim.nodes[B]
    assert node.disk is not None
    world.sim.crash(B)
    name = next(name for name in node.disk.names() if name.endswith(".log"))
    content = node.disk.open(name).read(0, 16384)
    node.disk.flip(name, content.index(b"message 7"), 3)
    world.sim.restart(B)
    assert isinstance(node.halted, Corrupt)
    assert node.halted.first <= 8 <= node.halted.last


@pytest.mark.parametrize("then", ["stays away", "comes back"])
def test_node_crashed_by_a_listener_sends_no_further_outputs(then: str) -> None:
    """SVC-10: the node crashes at the answer, before it sends the other outputs of the step."""
    world = World(durable=True)

    def crash(node: NodeId, event: Value) -> None:
        world.heard.append((world.sim.now, node, event))
        if node == B:
            world.sim.crash(B)
            if then == "comes back":
                world.sim.restart(B)

    world.sim.listener = crash
    for index in range(5):
        world.shout(A, B, f"{index}")
    world.run(1.0)
    assert [node for _, node, _ in world.heard].count(B) == 1
    assert world.sim.nodes[B].halted is None
    if then == "comes back":
        said = {event for _, node, event in world.heard if node == A}
        assert said <= {Heard(text) for text in world.written(B)}


@pytest.mark.pure
def test_request_from_a_listener_waits_until_the_step_ends() -> None:
    """B sends its answer before the request that its application makes in the same step."""
    world = World()
    sent: list[NodeId] = []
    carry = world.sim.carry

    def note(sender: NodeId, to: NodeId, message: Value) -> None:
        sent.append(to)
        carry(sender, to, message)

    world.sim.carry = note  # type: ignore[method-assign]
    world.sim.listener = lambda node, event: world.shout(B, C, "news") if node == B else None
    world.sim.nodes[B].receive(A, Call("x"))
    world.run(0.05)
    assert sent == [A, C]


N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")
DISTURBANCES: dict[str, Callable[[Simulation], object]] = {
    "none": lambda sim: None,
    "loss": lambda sim: sim.weather.set(loss=0.2),
    "partition": lambda sim: sim.partition([N1, N2, N3]),
    "crash": lambda sim: sim.crash(N1),
    "bounce": lambda sim: sim.bounce(N1, away=0.01),
    "pause": lambda sim: sim.pause(N2),
    "skew": lambda sim: sim.skew(N3, rate=1.5),
    "look": lambda sim: sim.check(shuffle.Views()),
}


def repair_all(sim: Simulation) -> None:
    sim.weather.set(loss=0.0)
    sim.repair()
    for node in sim.nodes.values():
        if node.paused:
            sim.resume(node.me)
        if node.stack is None:
            sim.restart(node.me)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_observing_a_run_does_not_change_it(name: str) -> None:
    """The fast path changes only the speed, whatever faults occur."""

    def views(looked_at: bool) -> list[list[NodeId]]:
        sim = Simulation(5, trace=Trace() if looked_at else None)
        shuffle.populate(sim, 60)
        assert (sim.handlers == {}) is looked_at
        sim.run(until=4.0)
        DISTURBANCES[name](sim)
        sim.run(until=5.0)
        repair_all(sim)
        sim.run(until=8.0)
        return [shuffle.view_of(sim, node) for node in sim.nodes]

    assert views(True) == views(False)


@pytest.mark.pure
def test_future_events_are_revised_once_for_many_crashes() -> None:
    sim = Simulation(5)
    shuffle.populate(sim, 200)
    sim.run(until=4.0)
    looked_at = 0
    revise = sim.revise

    def count(bucket: list[Event]) -> None:
        nonlocal looked_at
        looked_at += len(bucket)
        revise(bucket)

    sim.revise = count  # type: ignore[method-assign]
    to_come = len(sim)
    for node in list(sim.nodes)[:20]:
        sim.crash(node)
    assert looked_at < to_come
    sim.run(until=6.0)
    late, looked_at = looked_at, 0
    sim.run(until=8.0)
    assert (late >= to_come, looked_at) == (True, 0)  # later buckets are not revised


def test_listener_gets_events_on_the_fast_path() -> None:
    """Compare events, links, timers and self-sent messages with those of the slow path."""

    def heard(looked_at: bool) -> list[tuple[float, NodeId, Value]]:
        reported: list[tuple[float, NodeId, Value]] = []
        sim = Simulation(
            3,
            trace=Trace() if looked_at else None,
            listener=lambda node, event: reported.append((sim.now, node, event)),
        )
        for node in (A, B, C):
            sim.add(node, build)
            sim.ask(node, AlarmIn(0.3))
            for other in (A, B, C):
                sim.ask(node, Shout(other, f"{node}{other}"))
        sim.ask(A, Watchful(B))
        sim.run(until=0.2)
        sim.crash(B)
        sim.ask(C, Shout(B, "too late"))
        sim.ask(C, Shout(NodeId("nobody"), "who?"))
        sim.run(until=1.0)
        return reported

    assert heard(True) == heard(False)
    assert {type(event) for _, _, event in heard(False)} == {Heard, Rang, Gone}


class Counter(Protocol):
    """A layer above the echo that counts its timers."""

    name = "counter"
    Observed = Rang

    def __init__(self, me: NodeId, rng: Random) -> None:
        super().__init__(me, rng)
        self.rang = 0

    def observe(self, event: Rang) -> None:
        self.rang += 1


def test_internal_step_runs_once_on_the_fast_path() -> None:
    sim = Simulation(1)
    counter = Counter(A, sim.dice)
    sim.add(A, lambda me, rng: Stack([Echo(me, rng), counter]))
    sim.ask(A, AlarmIn(0.3))
    sim.run(until=1.0)
    assert counter.rang == 1


def test_unknown_message_is_counted_on_the_fast_path() -> None:
    sim = Simulation(1)
    for node in (A, B):
        sim.add(node, build)
    stack = sim.nodes[A].stack
    assert stack is not None
    stack.protocols[0].send(B, Heard("not a message"))
    sim.run(until=1.0)
    receiver = sim.nodes[B].stack
    assert receiver is not None
    assert receiver.ignored == 1


@pytest.mark.parametrize("away_max", [1, 2])
def test_storm_never_disturbs_more_nodes_than_its_budget_allows(away_max: int) -> None:
    names = [NodeId(f"n{index}") for index in range(5)]
    for seed in range(20):
        sim = Simulation(seed)
        for name in names:
            sim.add(name, build, durable=True)
        storm = Storm(sim, names, away_max=away_max, every=0.2)
        storm.begin()
        for _ in range(200):
            sim.run(until=sim.now + 0.1)
            disturbed = [name for name in names if is_disturbed(sim, name)]
            assert len(disturbed) <= away_max, f"seed {seed}: {disturbed}"
        storm.calm()
        sim.run(until=sim.now + 5.0)
        assert not any(is_disturbed(sim, name) for name in names)


def is_disturbed(sim: Simulation, name: NodeId) -> bool:
    node = sim.nodes[name]
    cut = any(
        front.kind is not Kind.SLOW and name in front.senders | front.receivers
        for front in sim.weather.fronts
    )
    return node.stack is None or node.paused or cut


def test_time_cannot_go_backwards() -> None:
    world = World()
    world.run(1.0)
    with pytest.raises(AssertionError, match="backwards"):
        world.sim.run(until=0.5)
