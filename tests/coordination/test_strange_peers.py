"""No message that the codec accepts makes a protocol raise."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.coordination.assemble import assemble
from oncecast.coordination.protocols.clock import Stamp
from oncecast.coordination.protocols.events import (
    Acquire,
    Deposit,
    Dequeue,
    Enqueue,
    Release,
    Withdraw,
)
from oncecast.coordination.protocols.fifo_queue import Ack, Deq, Element, FifoQueue, Pop
from oncecast.coordination.protocols.group import Alive
from oncecast.coordination.protocols.lamport import Given, LamportMutex, Noted, Wanted
from oncecast.coordination.protocols.mutex import Freed, Query
from oncecast.coordination.protocols.paxos_queue import Entrusted, Kept
from oncecast.coordination.protocols.synod_messages import (
    Accept,
    Accepted,
    Chosen,
    Column,
    Inquire,
    Minuted,
    Petition,
    Prepare,
    Promised,
    Refused,
    Vote,
)
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.kernel.values import Wake
from oncecast.replication.ballot import Ballot

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")

integers = st.integers(-1, 3) | st.sampled_from([2**62 - 1, 2**62, 2**63 - 1, -(2**63)])
names = st.sampled_from([A, B, C, NodeId(""), NodeId("d")])
words = st.sampled_from(["door", "lock/door", "queue/d"])
stamps = st.builds(Stamp, integers, names)
ballots = st.builds(Ballot, integers, names)
keys = (words, integers)
votes = st.lists(st.builds(Vote, *keys, words, ballots), max_size=3).map(tuple)
ranges = st.lists(st.tuples(integers, integers), max_size=2).map(tuple)
columns = st.lists(st.builds(Column, words, integers, ranges), max_size=2).map(tuple)
requests: st.SearchStrategy[Value] = st.one_of(
    st.builds(Acquire, words),
    st.builds(Release, words),
    st.builds(Enqueue, words, st.binary(max_size=4)),
    st.builds(Dequeue, words, st.integers(1, 3), st.booleans()),
    st.builds(Withdraw, words, st.integers(1, 3)),
)
deposits = st.builds(Deposit, words, st.integers(1, 3), st.binary(max_size=4))
tolerant: st.SearchStrategy[Value] = st.one_of(
    st.builds(Alive, st.booleans(), st.lists(names, max_size=3).map(tuple)),
    st.builds(Petition, *keys, words),
    st.builds(Prepare, ballots),
    st.builds(Promised, ballots, votes, columns),
    st.builds(Accept, ballots, *keys, words),
    st.builds(Accepted, ballots, *keys),
    st.builds(Refused, ballots),
    st.builds(Chosen, *keys, words),
    st.just(Inquire()),
    st.builds(Minuted, columns),
    st.builds(Freed, words, integers),
    st.builds(Query, words, integers),
    st.builds(Entrusted, words, integers, words, st.binary(max_size=4)),
    st.builds(Kept, integers),
)
simple: st.SearchStrategy[Value] = st.one_of(
    st.builds(Wanted, words, stamps),
    st.builds(Noted, stamps),
    st.builds(Given, words, stamps),
    st.builds(Element, words, stamps, st.binary(max_size=4)),
    st.builds(Deq, stamps),
    st.builds(Ack, stamps),
    st.builds(Pop, words, stamps, stamps),
)
Step = tuple[NodeId, Value] | Value | None


def scenario(
    messages: st.SearchStrategy[Value], requests: st.SearchStrategy[Value]
) -> st.SearchStrategy[list[Step]]:
    """Generate messages, requests, and None to advance to the next timer."""
    sent = st.tuples(names, messages)
    asked = requests.map(lambda request: request)  # counts as one alternative, not as five
    return st.lists(sent | sent | asked | st.none(), min_size=10, max_size=40)


def play(stack: Stack, steps: list[Step]) -> None:
    now, wakes = 0.0, list[Wake]()
    outputs = list(stack.start(now))
    for step in steps:
        wakes += [output for output in outputs if isinstance(output, Wake)]
        wakes.sort(key=lambda each: each.at)
        if isinstance(step, tuple):
            outputs = list(stack.receive(now, *step))
        elif step is not None:
            outputs = list(stack.request(now, step))
        elif wakes:
            now = wakes[0].at
            outputs = list(stack.wake(now, wakes.pop(0)))


@pytest.mark.long
@settings(max_examples=120)
@given(scenario(tolerant, requests | deposits))
def test_no_message_makes_fault_tolerant_protocols_raise_an_exception(steps: list[Step]) -> None:
    """DDS-4 DDS-5"""
    options: dict[str, Any] = {"heartbeat": 0.5, "suspect_after": 2.0, "lease": 5.0, "grace": 1.0}
    play(assemble(A, Random(1), peers=[B, C], acceptors=[A, B, C], **options).stack, steps)


@pytest.mark.long
@settings(max_examples=60)
@given(scenario(simple, requests))
def test_no_message_makes_simple_protocols_raise_an_exception(steps: list[Step]) -> None:
    """DDS-4 DDS-5"""
    members = [A, B, C]
    layers = [LamportMutex(A, Random(1), members=members), FifoQueue(A, Random(1), members=members)]
    play(Stack(layers), steps)
