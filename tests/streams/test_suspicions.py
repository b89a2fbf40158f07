"""Readers continue and agree after wrong suspicions, losses and a crash in any order."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.events import SamplesLost
from oncecast.streams.protocols.policies import QoS
from tests.streams.test_flow import suspect, trust
from tests.streams.test_streams import AGREED, EVERY
from tests.streams.wires import STREAM, Wires

WRITERS, READERS = ("v", "w"), ("p", "q", "r")
NODES = tuple(map(NodeId, WRITERS + READERS))
PAIRS = list(permutations(NODES, 2))

steps = st.lists(
    st.one_of(
        st.sampled_from(WRITERS),
        st.sampled_from(PAIRS),  # the first suspects the second, or trusts it again
        st.sampled_from([0.0, 0.5]),  # deliver all messages in flight, with this loss
    ),
    max_size=40,
)


def scenario(steps: list[str | tuple[NodeId, NodeId] | float], qos: QoS, seed: int) -> Wires:
    """Run steps with two writers and three matched readers, then end all suspicions."""
    wires = Wires(*NODES, seed=seed)
    for node in READERS:
        wires.reader(node, qos)
    for node in WRITERS:
        wires.writer(node, qos)
    wires.settle(1)
    suspected: dict[tuple[NodeId, NodeId], None] = {}
    written = dict.fromkeys(WRITERS, 0)
    for step in steps:
        if isinstance(step, str):
            wires.write(step, written[step])
            written[step] += 1
        elif isinstance(step, float):
            wires.shuffle(loss=step, duplication=0.2)
            wires.tick()
        elif step in suspected:
            del suspected[step]
            trust(wires, *step)
        else:
            suspected[step] = None
            suspect(wires, *step)
    for node, peer in suspected:
        trust(wires, node, peer)
    return wires


def read(wires: Wires, reader: str, writer: str) -> list[int]:
    samples = wires.nodes[NodeId(reader)].readers[STREAM].cache.read()
    return [int(each.value) for each in samples if each.writer == writer]


@given(steps, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_reliable_readers_get_all_values_after_wrong_suspicions(
    steps: list[str | tuple[NodeId, NodeId] | float], seed: int
) -> None:
    """DDS-2"""
    wires = scenario(steps, EVERY, seed)
    wires.settle(10)
    for reader in READERS:
        for writer in WRITERS:
            assert read(wires, reader, writer) == list(range(steps.count(writer)))
        assert not wires.of_kind(reader, SamplesLost)


@given(steps, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_readers_agree_after_wrong_suspicions_and_a_writer_crash(
    steps: list[str | tuple[NodeId, NodeId] | float], seed: int
) -> None:
    """DDS-3"""
    wires = scenario(steps, AGREED, seed)
    wires.crash("w")
    wires.settle(10)
    found = [read(wires, reader, "w") for reader in READERS]
    assert found[0] == found[1] == found[2]
    assert found[0] == list(range(len(found[0])))
