"""No message that the codec accepts raises an exception or makes memory grow."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import NodeId, Value
from oncecast.kernel.stack import Stack
from oncecast.kernel.values import Wake
from oncecast.overlay import Mesh, MessageId, Plumtree, Publish, Recovery
from oncecast.overlay.events import NUMBER_MAX
from oncecast.overlay.messages import (
    Announcement,
    Compare,
    Compared,
    Gossip,
    Graft,
    Hello,
    Holding,
    IHave,
    Ledger,
    Prune,
    Repair,
    Stored,
    Welcome,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")

integers = st.integers(-2, 12) | st.sampled_from(
    [NUMBER_MAX - 1, NUMBER_MAX, NUMBER_MAX + 1, 2**63 - 1, -(2**63)]
)
names = st.sampled_from([A, B, C, *map(NodeId, ("", "d", "e", "x" * 300))])
payloads = st.binary(max_size=40)
ids = st.builds(MessageId, names, integers)
stored = st.builds(Stored, ids, payloads)
ranges = st.tuples(integers, integers)
holdings = st.builds(Holding, names, integers, integers, st.lists(ranges, max_size=4).map(tuple))
ledgers = st.builds(Ledger, names, names, st.lists(holdings, max_size=4).map(tuple))
announcements = st.lists(st.builds(Announcement, ids, integers), max_size=8).map(tuple)
messages: st.SearchStrategy[Value] = st.one_of(
    st.just(Hello()),
    st.just(Welcome()),
    st.builds(Gossip, ids, integers, payloads),
    st.builds(IHave, announcements),
    st.builds(Graft, ids | st.none(), integers),
    st.just(Prune()),
    st.builds(Compare, ledgers),
    st.builds(Compared, ledgers),
    st.builds(Repair, st.lists(stored, max_size=4).map(tuple), st.booleans()),
)
wake = st.just(None)  # time passes until the earliest timer
inputs = st.lists(st.tuples(names, messages) | wake | st.builds(Publish, payloads), max_size=40)


def make() -> tuple[Plumtree, Recovery, Stack]:
    plumtree = Plumtree(
        A, Random(1), cache_max=3, cache_bytes_max=60, missing_max=3, origins_max=3, gaps_max=2
    )
    recovery = Recovery(
        A, Random(1), kept_max=3, kept_bytes_max=60, snapshot_every=4, origins_max=3, gaps_max=2
    )
    return plumtree, recovery, Stack([Mesh(A, Random(1), peers=[B, C]), plumtree, recovery])


def check_bounds(plumtree: Plumtree, recovery: Recovery) -> None:
    assert len(plumtree.seen) <= 3
    assert all(len(each.gaps) <= 2 and each.well_formed for each in plumtree.seen.values())
    assert len(plumtree.missing) <= 3
    assert all(len(announcers) <= 2 for announcers in plumtree.missing.values())
    assert len(plumtree.unannounced) < plumtree.announce_max
    held = recovery.inventory.holdings()
    assert len(held) <= 3
    assert all(len(each.gaps) <= 2 for each in held)
    assert all(recovery.inventory.of(each.origin).well_formed for each in held)
    assert len(recovery.doubts) <= 3
    for cache in (plumtree.cache, recovery.kept):
        assert len(cache.by_id) <= 3
        assert cache.bytes == sum(map(len, cache.by_id.values())) <= 60


@pytest.mark.long
@settings(max_examples=300)
@given(inputs)
def test_no_message_raises_an_exception_or_makes_memory_grow(
    steps: list[tuple[NodeId, Value] | Publish | None],
) -> None:
    plumtree, recovery, stack = make()
    codec = Codec((*stack.wiring.receiver, *stack.wiring.restorer))
    now, wakes = 0.0, list[Wake]()
    outputs = stack.start(now)
    for step in [None, *steps]:
        for output in outputs:
            if isinstance(output, Wake):
                wakes.append(output)
            for value in (getattr(output, name, None) for name in ("message", "record", "state")):
                if value is not None:
                    assert codec.decode(codec.encode(value)) == value
        match step:
            case Publish():
                outputs = list(stack.request(now, step))
            case None:
                wakes.sort(key=lambda each: each.at)
                due = wakes.pop(0)
                now = due.at
                outputs = list(stack.wake(now, due))
            case (sender, message):
                outputs = list(stack.receive(now, sender, message))
        check_bounds(plumtree, recovery)
