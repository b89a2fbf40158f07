"""NET-1: test the text form of a trace."""

from __future__ import annotations

from random import Random

from oncecast.kernel.protocol import NodeId, Send
from oncecast.lab.scenarios.broadcast import BROADCAST
from oncecast.lab.scenarios.scenario import run
from oncecast.simulator.step import Step
from oncecast.simulator.trace import Trace
from oncecast.simulator.transcript import brief, lines
from tests.network.echo import Call, Echo

A, B = NodeId("a"), NodeId("b")


def test_step_is_printed_as_a_line_with_its_effects_below() -> None:
    echo = Echo(A, Random(1))
    echo.receive(B, Call("hello"))
    assert list(lines(Step(1.5, A, "receive", (B, Call("hello")), echo.drain()))) == [
        "    1.500000  a          receive   Call(hello) from b",
        "                         -> append 1: Written(hello)",
        "                         -> emit Heard(hello) (after 1)",
        "                         -> send Reply(hello) to b (after 1)",
    ]


def test_long_payloads_and_lists_are_shortened() -> None:
    assert brief(b"x" * 1000) == "b'xxxxxxxxxxxxxxxxxxxxxxxx'... 1000 B"
    assert brief(list(range(100))) == "[0, 1, 2, 3, 4, 5, ... 100 in all]"


def test_every_step_of_a_storm_can_be_printed() -> None:
    reported: list[str] = []
    outcome = run(BROADCAST, 3, show=lambda step: reported.extend(lines(step)))
    assert outcome.ok
    words = " ".join(reported)
    for word in ("crash", "append", "send", "emit", "ask", "later", "watch", "synced", "(after "):
        assert word in words


def test_hash_covers_time_node_input_and_effects() -> None:
    call = (B, Call("x"))
    steps = [
        Step(1.0, A, "receive", call, ()),
        Step(2.0, A, "receive", call, ()),
        Step(1.0, B, "receive", call, ()),
        Step(1.0, A, "request", call, ()),
        Step(1.0, A, "receive", (B, Call("y")), ()),
        Step(1.0, A, "receive", call, [Send(B, Call("z"))]),
        Step(1.0, A, "receive", call, [Send(B, Call("z"), after=1)]),
    ]
    hashes = set()
    for step in steps:
        trace = Trace()
        trace.add(step)
        hashes.add(trace.hash)
    assert len(hashes) == len(steps)
