"""Wrong suspicions, losses and a crash, in any order: readers go on, and agree in the end."""

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
        st.sampled_from(PAIRS),  # the one suspects the other, or trusts it again
        st.sampled_from([0.0, 0.5]),  # losses, while all that is under way arrives
    ),
    max_size=40,
)


def story(doings: list[str | tuple[NodeId, NodeId] | float], qos: QoS, seed: int) -> Wires:
    """Two writers and three readers that are matched, and all of this; then all trust again."""
    wires = Wires(*NODES, seed=seed)
    for node in READERS:
        wires.reader(node, qos)
    for node in WRITERS:
        wires.writer(node, qos)
    wires.settle(1)
    suspected: dict[tuple[NodeId, NodeId], None] = {}
    written = dict.fromkeys(WRITERS, 0)
    for doing in doings:
        if isinstance(doing, str):
            wires.write(doing, written[doing])
            written[doing] += 1
        elif isinstance(doing, float):
            wires.shuffle(loss=doing, duplication=0.2)
            wires.turn()
        elif doing in suspected:
            del suspected[doing]
            trust(wires, *doing)
        else:
            suspected[doing] = None
            suspect(wires, *doing)
    for who, whom in suspected:
        trust(wires, who, whom)
    return wires


def read(wires: Wires, reader: str, writer: str) -> list[int]:
    samples = wires.nodes[NodeId(reader)].readers[STREAM].cache.read()
    return [int(each.value) for each in samples if each.writer == writer]


@given(steps, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_reliable_readers_get_all_whoever_was_suspected_for_a_while(
    doings: list[str | tuple[NodeId, NodeId] | float], seed: int
) -> None:
    """DDS-2"""
    wires = story(doings, EVERY, seed)
    wires.settle(10)
    for reader in READERS:
        for writer in WRITERS:
            assert read(wires, reader, writer) == list(range(doings.count(writer)))
        assert not wires.of_kind(reader, SamplesLost)


@given(steps, st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_readers_agree_whoever_was_suspected_before_a_writer_crashed(
    doings: list[str | tuple[NodeId, NodeId] | float], seed: int
) -> None:
    """DDS-3"""
    wires = story(doings, AGREED, seed)
    wires.crash("w")
    wires.settle(10)
    found = [read(wires, reader, "w") for reader in READERS]
    assert found[0] == found[1] == found[2]
    assert found[0] == list(range(len(found[0])))
