"""NET-2: no message that the codec accepts raises an exception or makes a view too large."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Send, Value
from oncecast.kernel.stack import Stack
from oncecast.kernel.values import Wake
from oncecast.lab.scenarios.hyparview import check_bounds
from oncecast.overlay.hyparview import SAMPLE_MAX, WALK_MAX, HyParView
from oncecast.overlay.messages import (
    Accepted,
    Disconnect,
    ForwardJoin,
    Join,
    Neighbor,
    Refused,
    Shuffle,
    ShuffleReply,
)

ME = NodeId("me")
lives = st.sampled_from([0, 1, -1, 2**63 - 1])
steps = st.sampled_from([-1, 0, 1, 3, 6, WALK_MAX, WALK_MAX + 1, 2**63 - 1])
names = st.sampled_from([ME, *map(NodeId, ("", *"abcdefghi", "x" * 300))])
samples = st.lists(names, max_size=12).map(tuple) | st.just((NodeId("a"),) * (SAMPLE_MAX + 1))
messages: st.SearchStrategy[Value] = st.one_of(
    st.builds(Join, lives),
    st.builds(ForwardJoin, names, steps),
    st.builds(Neighbor, lives, st.booleans()),
    st.builds(Accepted, lives),
    st.just(Refused()),
    st.just(Disconnect()),
    st.builds(Shuffle, names, steps, samples),
    st.builds(ShuffleReply, samples),
)
senders = st.sampled_from([ME, *map(NodeId, "abcdefghi")])
link_gone = senders  # ignored for a peer that is not watched
wake = st.just(None)  # time passes until the earliest timer
inputs = st.lists(st.tuples(senders, messages) | link_gone | wake, max_size=60)


@pytest.mark.long
@given(inputs)
@settings(max_examples=300, deadline=None)
def test_no_message_raises_an_exception_or_exceeds_the_bounds(
    inputs: list[tuple[NodeId, Value] | NodeId | None],
) -> None:
    view = HyParView(
        ME, Random(1), contacts=[NodeId("a")], active_max=3, passive_max=4, shuffle_passive=2
    )
    stack = Stack([view])
    codec = Codec(tuple(stack.wiring.receiver))
    now, wakes = 0.0, list[Wake]()
    outputs = list(stack.start(now))
    for each in inputs:
        for output in outputs:
            if isinstance(output, Wake):
                wakes.append(output)
            elif isinstance(output, Send):
                assert codec.decode(codec.encode(output.message)) == output.message
        match each:
            case None:
                wakes.sort(key=lambda wake: wake.at)
                due = wakes.pop(0)
                now = due.at
                outputs = list(stack.wake(now, due))
            case (sender, message):
                outputs = list(stack.receive(now, sender, message))
            case peer:
                outputs = list(stack.down(now, peer))
        check_bounds(view)
