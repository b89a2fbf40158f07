"""Whatever a peer sends that the codec lets through: nothing raises, and memory stays bounded."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import NodeId, Value
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.streams.protocols.events import (
    Acks,
    Beat,
    Data,
    Endpoint,
    Endpoints,
    Known,
    OpenReader,
    OpenWriter,
    StreamMessage,
    Write,
)
from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability
from oncecast.streams.protocols.streams import Streams, Turn

ME, PEER = NodeId("me"), NodeId("peer")
LIFE = 7

numbers = st.integers(-1, 4) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
names = st.sampled_from([ME, PEER, NodeId("")])
streams = st.sampled_from(["s", "t"])
lives = st.sampled_from([LIFE, 8])
times = st.sampled_from([0.5, float("inf"), float("nan"), -1.0])
qualities = st.builds(
    QoS,
    reliability=st.sampled_from(Reliability),
    history=st.sampled_from([KEEP_ALL, 0, 1, -5]),
    durability=st.sampled_from(Durability),
    deadline=times,
    lifespan=times,
    liveliness=times,
)
endpoints = st.lists(st.builds(Endpoint, streams, lives, qualities), max_size=3).map(tuple)
some = st.lists(st.binary(max_size=2), max_size=3).map(tuple)
messages: st.SearchStrategy[Value] = st.one_of(
    st.builds(Endpoints, endpoints, endpoints, st.booleans()),
    st.builds(
        Data,
        streams,
        names,
        lives,
        numbers,
        numbers,
        st.lists(numbers, max_size=3).map(tuple),
        some,
        some,
    ),
    st.builds(Beat, streams, lives, numbers, numbers, numbers),
    st.builds(Acks, streams, lives, numbers, numbers),
    st.builds(Known, streams, names, lives, numbers, st.booleans()),
)


@pytest.mark.parametrize("reliability", Reliability)
@given(st.lists(messages, max_size=12), qualities)
@settings(deadline=None, max_examples=30)
@pytest.mark.long
def test_nothing_a_peer_says_raises(
    reliability: Reliability, said: list[StreamMessage], theirs: QoS
) -> None:
    """DDS-1"""
    node = Streams(ME, Random(1))
    node.observe(NeighborUp(PEER))
    qos = QoS(reliability=reliability, history=KEEP_ALL, samples_max=3)
    node.request(OpenWriter("s", qos))
    node.request(OpenReader("s", qos))
    node.writers["s"].endpoint = Endpoint("s", LIFE, node.writers["s"].qos)
    mine = Endpoint("s", LIFE, theirs)
    node.receive(PEER, Endpoints((mine,), (mine,)))
    node.request(Write("s", 1, (b"k",), (b"1", b"2")))
    for message in said:
        node.receive(PEER, message)
        node.timeout(Turn())
        for effect in node.drain():
            ENCODER.encode(effect)
    node.observe(NeighborDown(PEER))
    assert len(node.readers["s"].cache) <= 3
