"""A client resends every lost frame on each code path, even if the link stays up.

Each path runs once to count the frames between client and nodes. Then it runs again for every
frame: without that frame, and without that frame and its next copies. Only the client's own
timers can help. Each client makes one request at a time, with long pauses in between. The timer of
one request then cannot hide that another request has no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest

from oncecast.client.session import local
from oncecast.client.session.client import ClientSession
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.node.assemble import assemble
from oncecast.simulator.latency import Fixed
from oncecast.simulator.simulated import Simulation
from oncecast.wire import batch, results
from oncecast.wire import commands as do
from oncecast.wire.frames import ClientCommand, Scan, Scanned, View
from tests.client.session.client_world import FAST

ME, OTHER = NodeId("client/me"), NodeId("client/other")
NODES = [NodeId("node1"), NodeId("node2"), NodeId("node3")]
LIMIT = 60.0  # seconds until a path counts as stuck; the longest retry interval is 8 seconds
PAUSE = 20.0  # seconds between two requests; all timers of the first request have fired by then
E = TypeVar("E", bound=Value)


class Lossy(Simulation):
    """Numbers the frames to and from one client, and drops one of them and its next copies."""

    def __init__(self, lost: int, copies: int) -> None:
        super().__init__(1, latency=Fixed(0.001), sync_latency=Fixed(0.001), listener=self._hear)
        self.frames: list[str] = []
        self._lost, self._left = lost, copies
        self._victim: tuple[bool, type[Value]] | None = None
        self.events: dict[NodeId, list[Value]] = {ME: [], OTHER: []}

    def carry(self, sender: NodeId, to: NodeId, message: Value) -> None:
        if ME not in (sender, to):
            super().carry(sender, to, message)
            return
        kind = (sender == ME, type(message))
        if len(self.frames) == self._lost:
            self._victim = kind
        self.frames.append(f"{type(message).__name__} from {sender}")
        if kind == self._victim and self._left:
            self._left -= 1
        else:
            super().carry(sender, to, message)

    def _hear(self, node: NodeId, event: Value) -> None:
        if node in self.events:
            self.events[node].append(event)


class Talk:
    """A client that loses frames, and another client that loses none."""

    def __init__(self, world: Callable[[Lossy], list[NodeId]], lost: int, copies: int) -> None:
        self.sim = Lossy(lost, copies)
        self._nodes = world(self.sim)
        self._tickets = self._numbers = 0
        self._join(OTHER)
        for topic in ("t", "u"):
            self.do(do.Subscribe(topic, "s", do.FromEarliest(), 0), OTHER)

    def begin(self, *, durable: bool = False) -> None:
        self._join(ME, durable=durable)

    def _join(self, me: NodeId, *, durable: bool = False) -> None:
        def build(me: NodeId, rng: Random) -> Stack:
            return Stack(
                [
                    ClientSession(
                        me,
                        rng,
                        node=self._nodes[-1],
                        others=tuple(self._nodes[:-1]),
                        producer=me,
                        incarnation=me,
                        durable=durable,
                        read_ahead=4,
                        outbox_bytes=0,
                    )
                ]
            )

        self.sim.add(me, build, durable=durable)

    def pause(self) -> None:
        self.sim.run(until=self.sim.now + PAUSE)

    def wait_for(self, kind: type[E], of: NodeId = ME) -> E:
        """Return the next event of this type, and drop it."""
        events = self.sim.events[of]
        end = self.sim.now + LIMIT
        while not (found := [each for each in events if isinstance(each, kind)]):
            assert self.sim.now < end, f"no {kind.__name__} within {LIMIT:g} s, but {events}"
            self.sim.run(until=self.sim.now + 0.25)
        events.remove(found[0])
        return found[0]

    def ask(self, request: Value, of: NodeId = ME) -> None:
        self.sim.ask(of, request)

    def ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def do(self, command: ClientCommand, of: NodeId = ME) -> Value:
        self.ask(local.Do(self.ticket(), command), of)
        return self.wait_for(local.Finished, of).outcome

    def put(self, *, of: NodeId = ME, topic: str = "t", wait: bool = True) -> None:
        value = b"%d" % self._numbers
        self._numbers += 1
        packed = batch.encode([value], timestamps=1)
        self.ask(local.Produce(self.ticket(), topic, 1, packed), of)
        if wait:
            self.wait_for(local.Stored, of)

    def stored(self, topic: str = "t") -> list[int]:
        """Return the numbers in the topic, as read by the other client."""
        scan = Scan(0, topic, do.FromEarliest(), bytes=1 << 20)
        self.ask(local.Survey(self.ticket(), scan), OTHER)
        view = self.wait_for(local.Shown, OTHER).view
        assert isinstance(view, Scanned)
        return [
            int(message.value)
            for chunk in view.chunks
            for message in batch.messages(
                chunk.batch,
                topic=topic,
                offset=chunk.offset,
                producer=chunk.producer,
                sequence=chunk.sequence,
                skip=chunk.skip,
                count=chunk.count,
                redelivered=False,
            )
        ]

    def read(self) -> None:
        self.begin()
        self.ask(local.Read("t", "s"))
        self.wait_for(local.Positioned)

    def taken(self) -> list[int]:
        """Return the next numbers that arrive, without renewing the credit."""
        return [int(message.value) for message in self.wait_for(local.Arrived).messages]


# -- the nodes --


def one_node(sim: Lossy) -> list[NodeId]:
    sim.add(NODES[0], lambda me, rng: assemble(me, rng).stack, durable=True)
    return NODES[:1]


def group(sim: Lossy) -> list[NodeId]:
    """Start three replicas. The client first asks a follower."""

    def replica(me: NodeId, rng: Random) -> Stack:
        contacts = () if me == NODES[0] else NODES[:1]
        return assemble(me, rng, options=FAST, contacts=tuple(contacts)).stack

    for node in NODES:
        sim.add(node, replica, durable=True)
    sim.run(until=10.0)
    return NODES


# -- the paths --


def put_once(talk: Talk) -> None:
    talk.begin()
    talk.put()
    assert talk.stored() == [0]


def put_after_pauses(talk: Talk) -> None:
    talk.begin()
    for _ in range(3):
        talk.put()
        talk.pause()
    assert talk.stored() == [0, 1, 2]


def put_pipelined(talk: Talk) -> None:
    talk.begin()
    talk.put()
    talk.pause()
    for _ in range(4):
        talk.put(wait=False)
    for _ in range(4):
        talk.wait_for(local.Stored)
    assert talk.stored() == [0, 1, 2, 3, 4]


def put_to_two_topics(talk: Talk) -> None:
    talk.begin()
    for topic in ("t", "u", "t", "u"):
        talk.put(topic=topic)
        talk.pause()
    assert (talk.stored("t"), talk.stored("u")) == ([0, 2], [1, 3])


def put_from_an_outbox(talk: Talk) -> None:
    talk.begin(durable=True)
    talk.put()
    talk.pause()
    talk.put()
    assert talk.stored() == [0, 1]


def put_after_a_restart(talk: Talk) -> None:
    talk.begin(durable=True)
    talk.put()
    talk.pause()
    isolated = talk.sim.partition([ME])
    talk.put(wait=False)
    talk.sim.run(until=talk.sim.now + 1.0)
    talk.sim.crash(ME)
    talk.sim.repair(isolated)
    talk.sim.restart(ME)
    talk.wait_for(local.Stored)
    assert talk.stored() == [0, 1]


def close(talk: Talk) -> None:
    talk.begin()
    talk.put()
    talk.pause()
    talk.ask(local.Finish(talk.ticket(), forget=True))
    talk.wait_for(local.AllDone)


def call(talk: Talk) -> None:
    talk.begin()
    assert isinstance(talk.do(do.CreateTopic("new", 0)), results.TopicCreated)
    talk.pause()
    assert isinstance(talk.do(do.DeleteTopic("new", 0)), results.TopicDeleted)


def stage_and_publish(talk: Talk) -> None:
    talk.begin()
    packed = batch.encode([b"7"], timestamps=1)
    talk.do(do.Stage("source", 1, "a", "t", 1, len(packed), 0, packed))
    talk.pause()
    talk.do(do.PublishStaged("source", 1, ("a",), 0))
    assert talk.stored() == [7]


def look(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.begin()
    requests: list[local.Call] = [
        local.Show(talk.ticket(), "t"),
        local.Survey(talk.ticket(), Scan(0, "t", do.FromEarliest())),
        local.Group(talk.ticket()),
        local.ShowAccess(talk.ticket()),
    ]
    for request in requests:
        talk.ask(request)
        assert talk.wait_for(local.Shown).ticket == request.ticket
        talk.pause()


def get(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]


def get_while_waiting(talk: Talk) -> None:
    talk.read()
    for number in range(2):
        talk.pause()
        talk.put(of=OTHER)
        assert talk.taken() == [number]


def get_more_than_the_credit(talk: Talk) -> None:
    for _ in range(8):
        talk.put(of=OTHER)
    talk.read()
    got: list[int] = []
    while len(got) < 8:
        got += talk.taken()
        talk.pause()
        talk.ask(local.Want("t", "s", len(got), 0))
    assert got == [*range(8)]


def acknowledge(talk: Talk) -> None:
    """Acknowledge a message, and make no further request."""
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]
    talk.ask(local.Want("t", "s", 1, 1))
    talk.sim.run(until=talk.sim.now + LIMIT)
    talk.ask(local.Show(talk.ticket(), "t"), OTHER)
    view = talk.wait_for(local.Shown, OTHER).view
    assert isinstance(view, View)
    assert [each.cursor for each in view.topics[0].subscriptions] == [1]


def flush_acknowledgements(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]
    talk.pause()
    talk.ask(local.Settle(talk.ticket(), "t", "s", 1, 1))
    assert talk.wait_for(local.Finished).outcome == results.Acked(1)


def nack(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]
    talk.pause()
    talk.ask(local.Again("t", "s", 0, 1))
    assert talk.taken() == [0]


def seek(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]
    talk.pause()
    talk.ask(local.Move(talk.ticket(), "t", "s", do.FromEarliest()))
    assert isinstance(talk.wait_for(local.Finished).outcome, results.Sought)
    assert talk.taken() == [0]


def leave(talk: Talk) -> None:
    talk.put(of=OTHER)
    talk.read()
    assert talk.taken() == [0]
    talk.pause()
    talk.ask(local.Leave(talk.ticket(), "t", "s", 1, 1))
    assert isinstance(talk.wait_for(local.Finished).outcome, results.Detached)


PATHS = [
    put_once,
    put_after_pauses,
    put_pipelined,
    put_to_two_topics,
    put_from_an_outbox,
    put_after_a_restart,
    close,
    call,
    stage_and_publish,
    look,
    get,
    get_while_waiting,
    get_more_than_the_credit,
    acknowledge,
    flush_acknowledgements,
    nack,
    seek,
    leave,
]


def run(
    path: Callable[[Talk], None], world: Callable[[Lossy], list[NodeId]], lost: int, copies: int
) -> list[str]:
    talk = Talk(world, lost, copies)
    path(talk)
    return talk.sim.frames


def lose_each_frame(
    path: Callable[[Talk], None], world: Callable[[Lossy], list[NodeId]], copies: int
) -> None:
    frames = run(path, world, -1, 0)
    assert frames
    for lost, frame in enumerate(frames):
        try:
            run(path, world, lost, copies)
        except AssertionError as error:
            error.add_note(f"without frame {lost} of {len(frames)}: {frame}, copies: {copies}")
            raise


@pytest.mark.parametrize("copies", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("path", PATHS, ids=lambda each: each.__name__)
def test_client_resends_every_lost_frame(path: Callable[[Talk], None], copies: int) -> None:
    """SVC-3 SVC-13: the frame is lost alone, or with its next two copies."""
    lose_each_frame(path, one_node, copies)


@pytest.mark.long
@pytest.mark.parametrize("path", [put_once, call, get], ids=lambda each: each.__name__)
def test_client_resends_every_frame_lost_between_it_and_a_group(
    path: Callable[[Talk], None],
) -> None:
    """SVC-3 SVC-13 REP-6: this includes the frames that name the leader."""
    lose_each_frame(path, group, 1)
