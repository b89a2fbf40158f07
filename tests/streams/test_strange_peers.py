"""No message that the codec accepts raises or makes memory grow without bound."""

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
from oncecast.streams.protocols.streams import Streams, Tick

ME, PEER = NodeId("me"), NodeId("peer")
INCARNATION = 7

numbers = st.integers(-1, 4) | st.sampled_from([2**62, 2**63 - 1, -(2**63)])
names = st.sampled_from([ME, PEER, NodeId("")])
streams = st.sampled_from(["s", "t"])
incarnations = st.sampled_from([INCARNATION, 8])
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
endpoints = st.lists(st.builds(Endpoint, streams, incarnations, qualities), max_size=3).map(tuple)
some = st.lists(st.binary(max_size=2), max_size=3).map(tuple)
messages: st.SearchStrategy[Value] = st.one_of(
    st.builds(Endpoints, endpoints, endpoints, st.booleans()),
    st.builds(
        Data,
        streams,
        names,
        incarnations,
        numbers,
        numbers,
        st.lists(numbers, max_size=3).map(tuple),
        some,
        some,
    ),
    st.builds(Beat, streams, incarnations, numbers, numbers, numbers),
    st.builds(Acks, streams, incarnations, numbers, numbers),
    st.builds(Known, streams, names, incarnations, numbers, st.booleans()),
)


@pytest.mark.parametrize("reliability", Reliability)
@given(st.lists(messages, max_size=12), qualities)
@settings(deadline=None, max_examples=30)
@pytest.mark.long
def test_no_message_from_a_peer_raises_an_exception(
    reliability: Reliability, received: list[StreamMessage], peer_qos: QoS
) -> None:
    """DDS-1"""
    node = Streams(ME, Random(1))
    node.observe(NeighborUp(PEER))
    qos = QoS(reliability=reliability, history=KEEP_ALL, samples_max=3)
    node.request(OpenWriter("s", qos))
    node.request(OpenReader("s", qos))
    node.writers["s"].endpoint = Endpoint("s", INCARNATION, node.writers["s"].qos)
    mine = Endpoint("s", INCARNATION, peer_qos)
    node.receive(PEER, Endpoints((mine,), (mine,)))
    node.request(Write("s", 1, (b"k",), (b"1", b"2")))
    for message in received:
        node.receive(PEER, message)
        node.timeout(Tick())
        for effect in node.drain():
            ENCODER.encode(effect)
    node.observe(NeighborDown(PEER))
    assert len(node.readers["s"].cache) <= 3
