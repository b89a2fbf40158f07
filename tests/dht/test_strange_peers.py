"""No message that the codec accepts raises an exception or makes memory grow."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.dht import Chord, FindRoot, JoinTree, LeaveTree, Multicast, Scribe
from oncecast.dht import messages as chords
from oncecast.dht import tree_messages as trees
from oncecast.dht.identifiers import BYTES, Key, Position, key_of
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.kernel.values import Wake

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")

integers = st.integers(-2, 30) | st.sampled_from([chords.NUMBER_MAX, 2**63 - 1])
nodes = st.sampled_from([A, B, C, *map(NodeId, ("", "d", "e", "x" * 300))])
keys = st.sampled_from([Key(bytes([each]) * BYTES) for each in (0, 1, 80, 200, 255)]) | (
    st.sampled_from([key_of("a"), key_of("b"), Key(b"short")])
)
positions = st.builds(Position, keys, nodes)
lists = st.lists(positions, max_size=4).map(tuple)
names = st.lists(nodes, max_size=3).map(tuple)
payloads = st.binary(max_size=8)
topics = st.sampled_from(["t", "u", "", "x" * 300])
some_topics = st.lists(topics, max_size=3).map(tuple)
routed = st.one_of(
    st.builds(trees.Enlist, topics, nodes, keys),
    st.builds(trees.Publication, topics, nodes, integers, payloads),
).map(trees.encode)
messages: st.SearchStrategy[Value] = st.one_of(
    st.builds(chords.Probe, keys, integers),
    st.builds(chords.Report, integers, positions | st.none(), lists),
    st.builds(chords.Notify, keys, positions),
    st.builds(chords.Locate, keys, integers, names, st.booleans()),
    st.builds(chords.Nearer, integers, lists),
    st.builds(chords.Near, integers, positions, lists),
    st.builds(chords.Confirm, keys, keys, integers, names, keys),
    st.builds(chords.Found, integers),
    st.builds(chords.Unsure, integers),
    st.builds(chords.Hurry, keys),
    st.builds(chords.Hop, keys, payloads | routed, integers, keys),
    st.builds(chords.Hopped, integers),
    st.builds(trees.Adopted, topics),
    st.builds(trees.Orphaned, topics),
    st.builds(trees.Quit, topics),
    st.builds(trees.Copy, topics, nodes, integers, payloads),
    st.builds(trees.Pulse, some_topics, some_topics),
)
requests: st.SearchStrategy[Value] = st.one_of(
    st.builds(FindRoot, st.just(key_of("k"))),
    st.builds(JoinTree, st.just("t")),
    st.builds(LeaveTree, st.just("t")),
    st.builds(Multicast, st.just("u"), payloads),
)
wake = st.just(None)  # time passes until the earliest timer
inputs = st.lists(st.tuples(nodes, messages) | requests | wake, max_size=40)


def make(contacts: list[NodeId]) -> tuple[Chord, Scribe, Stack]:
    chord = Chord(A, Random(1), contacts=contacts, successors_max=2, lookups_max=3)
    scribe = Scribe(A, Random(1), trees_max=2, children_max=2, seen_max=2)
    return chord, scribe, Stack([chord, scribe])


def check_bounds(chord: Chord, scribe: Scribe) -> None:
    status = chord.status
    (member,) = status.members
    assert len(member.successors) <= 2
    assert status.lookups <= 3 + 60  # lookups by its own timers end without an answer
    assert status.payloads <= 3
    assert len(status.calls) <= status.lookups + status.payloads + 1
    assert len(scribe.trees) <= 2
    assert all(len(tree.children) <= 2 for tree in scribe.trees.values())
    assert len(scribe.seen) <= 2


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.sampled_from([[], [B]]), inputs)
def test_no_message_raises_an_exception_or_makes_memory_grow(
    contacts: list[NodeId], steps: list[tuple[NodeId, Value] | Value | None]
) -> None:
    """NET-4 NET-5"""
    chord, scribe, stack = make(contacts)
    codec = Codec(tuple(stack.wiring.receiver))
    now, wakes = 0.0, list[Wake]()
    outputs = list(stack.start(now))
    for step in [None, *steps]:
        for output in outputs:
            if isinstance(output, Wake):
                wakes.append(output)
            elif (message := getattr(output, "message", None)) is not None:
                assert codec.decode(codec.encode(message)) == message
        match step:
            case None:
                wakes.sort(key=lambda each: each.at)
                due = wakes.pop(0)
                now = max(now, due.at)
                outputs = list(stack.wake(now, due))
            case (sender, message):
                outputs = list(stack.receive(now, sender, message))
            case request:
                outputs = list(stack.request(now, request))
        check_bounds(chord, scribe)
