"""Test batches of values, reader windows, and loss reports."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.protocol import NodeId
from oncecast.overlay.events import NeighborDown, NeighborUp
from oncecast.streams.protocols.cache import Sample
from oncecast.streams.protocols.events import (
    CloseReader,
    Data,
    Endpoints,
    Feed,
    Known,
    LimitReached,
    Matched,
    Mismatched,
    OpenReader,
    SamplesLost,
    SamplesRejected,
    Stable,
    Unmatched,
    Written,
)
from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability
from oncecast.streams.protocols.writing import SUSPECTED_MAX, WINDOW, columns
from tests.streams.test_streams import AGREED, BEST, EVERY, LAST, pair
from tests.streams.wires import STREAM, Wires

R, W = NodeId("r"), NodeId("w")


def sent_data(wires: Wires) -> list[Data]:
    return [message for _, _, message in wires.in_flight if isinstance(message, Data)]


def test_values_from_one_call_are_sent_to_all_readers_in_one_message() -> None:
    """DDS-1: the message is encoded once."""
    wires = Wires("w", "r", "q")
    for node in ("r", "q"):
        wires.reader(node, EVERY)
    wires.writer("w", EVERY)
    wires.deliver_all()
    wires.write_many("w", range(100))
    first, second = sent_data(wires)
    assert first is second
    assert (first.numbers, first.keys, len(first.values)) == ((1,), (b"k",), 100)
    wires.deliver_all()
    assert wires.cached("r") == wires.cached("q") == list(range(100))


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([b"a", b"b"])), max_size=6))
def test_key_shared_by_all_values_is_sent_once(rows: list[tuple[int, bytes]]) -> None:
    """DDS-1"""
    numbers = sorted({number for number, _ in rows})
    samples = [Sample(W, n, key, b"v") for n, (_, key) in zip(numbers, rows, strict=False)]
    last = numbers[-1] if numbers else 9
    data = Data(STREAM, W, 1, 1, last, *columns(samples))
    assert data.possible
    assert list(data.every_number if samples else []) == numbers
    assert len(data.keys) == (1 if len({each.key for each in samples}) == 1 else len(samples))


@pytest.mark.parametrize(
    "change",
    [
        {"since": 0},
        {"since": 3},
        {"last": 1},
        {"numbers": (1, 2, 3)},
        {"keys": ()},
        {"keys": (b"a", b"b", b"c")},
        {"numbers": ()},
        {"numbers": (), "values": (), "since": 3, "last": 2},
    ],
)
def test_invalid_data_is_dropped(change: dict[str, object]) -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    incarnation = wires.nodes[W].writers[STREAM].endpoint.incarnation
    right = Data(STREAM, W, incarnation, 1, 2, (1,), (b"k",), (b"1", b"2"))
    reader = wires.nodes[R]
    reader.receive(W, msgspec.structs.replace(right, **change))
    assert len(reader.readers[STREAM].cache) == 0
    reader.receive(W, right)
    assert len(reader.readers[STREAM].cache) == 2


def test_values_in_flight_to_a_reader_are_limited_to_a_window() -> None:
    """DDS-1: the rest stays in the writer's cache until the reader acknowledges."""
    wires = pair(EVERY, EVERY)
    for at in range(0, 2 * WINDOW, 512):
        wires.write_many("w", range(at, at + 512))
    assert sum(len(each.values) for each in sent_data(wires)) == WINDOW
    wires.settle(2)
    assert wires.cached("r") == list(range(2 * WINDOW))
    assert len(wires.nodes[W].writers[STREAM].cache) == 0


def test_slow_best_effort_reader_learns_how_many_values_it_missed() -> None:
    """DDS-2"""
    wires = pair(BEST, BEST)
    for at in range(0, WINDOW + 1024, 512):
        wires.write_many("w", range(at, at + 512))
    wires.settle(2)
    wires.write("w", -1)
    wires.settle(2)
    assert wires.cached("r") == [*range(WINDOW), -1]
    assert wires.of_kind("r", SamplesLost) == [SamplesLost(STREAM, W, 1024)]


def test_keep_last_reader_far_behind_skips_to_the_kept_values() -> None:
    """DDS-2: the reader learns this from one message, not number by number."""
    wires = pair(LAST, LAST)
    wires.write_many("w", range(5))
    wires.in_flight.clear()
    for at in range(0, 100_000, 500):
        wires.write_many("w", range(at, at + 500))
        wires.in_flight.clear()
    wires.settle(1)
    assert wires.cached("r") == [99_999]
    assert not wires.of_kind("r", SamplesLost)


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=12), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
@pytest.mark.long
def test_large_writes_with_several_keys_arrive_in_order_despite_losses(
    writes: list[tuple[int, bool]], seed: int
) -> None:
    """DDS-2"""
    wires = pair(EVERY, EVERY, seed=seed)
    written: list[int] = []
    for count, many_keys in writes:
        values = range(len(written), len(written) + count)
        keys = [b"%d" % (each % 3) for each in values] if many_keys else []
        wires.write_many("w", values, *keys)
        written += values
        wires.shuffle(loss=0.4, duplication=0.2)
        wires.tick()
    wires.settle()
    assert wires.cached("r") == written
    assert not wires.of_kind("r", SamplesLost)


def test_best_effort_values_are_rejected_by_a_full_cache() -> None:
    """DDS-1"""
    wires = pair(BEST, msgspec.structs.replace(BEST, samples_max=2))
    wires.write_many("w", range(5))
    wires.deliver_all()
    assert wires.cached("r") == [0, 1]
    assert wires.of_kind("r", SamplesRejected) == [SamplesRejected(STREAM, W, 3)]


def test_value_with_a_new_key_waits_while_the_reader_has_too_many_keys() -> None:
    """DDS-1"""
    wires = pair(EVERY, msgspec.structs.replace(EVERY, keys_max=1))
    wires.write_many("w", (1, 2, 3), b"a", b"a", b"b")
    wires.deliver_all()
    assert wires.cached("r") == [1, 2]
    assert wires.take("r") == [1, 2]
    assert wires.cached("r") == [3]


def test_writer_learns_when_all_readers_have_all_values() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write_many("w", range(5))
    assert wires.of_kind("w", Stable) == []
    wires.settle(1)
    assert wires.of_kind("w", Stable) == [Stable(STREAM, 6)]


# -- suspicions and crashes --


def test_new_neighbor_is_asked_for_its_endpoints() -> None:
    """DDS-1: views of different nodes change at different times."""
    wires = Wires("w", "r")
    wires.reader("r", EVERY)
    wires.writer("w", EVERY)
    wires.deliver_all()
    suspect(wires, R, W)
    trust(wires, R, W)
    wires.deliver_all()
    matched = Matched(STREAM, "reader", W)
    assert wires.events[R] == [matched, Unmatched(STREAM, "reader", W), matched]


def suspect(wires: Wires, node: NodeId, peer: NodeId) -> None:
    wires.nodes[node].now = wires.now
    wires.nodes[node].observe(NeighborDown(peer))
    wires._collect(node)


def trust(wires: Wires, node: NodeId, peer: NodeId) -> None:
    wires.nodes[node].now = wires.now
    wires.nodes[node].observe(NeighborUp(peer))
    wires._collect(node)


@pytest.mark.parametrize("qos", [EVERY, LAST], ids=["keep-all", "keep-last"])
@pytest.mark.parametrize("mutual", [True, False])
def test_wrongly_suspected_reader_continues_where_it_stopped(qos: QoS, mutual: bool) -> None:
    """DDS-2: the reader gets each value written in the meantime once."""
    wires = pair(qos, msgspec.structs.replace(qos, history=KEEP_ALL))
    wires.write("w", 1)
    wires.settle(1)
    suspect(wires, W, R)
    if mutual:
        suspect(wires, R, W)
    wires.write("w", 2)
    wires.write("w", 3)
    trust(wires, W, R)
    if mutual:
        trust(wires, R, W)
    wires.settle(2)
    assert wires.cached("r") == ([1, 2, 3] if qos is EVERY else [1, 3])
    assert not wires.of_kind("r", SamplesLost)
    assert wires.nodes[W].writers[STREAM].safe == 4


def test_reader_that_returns_too_late_learns_how_many_values_it_missed() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write("w", 1)
    wires.settle(1)
    suspect(wires, W, R)
    suspect(wires, R, W)
    wires.write("w", 2)
    wires.tick(SUSPECTED_MAX + 1)
    trust(wires, W, R)
    trust(wires, R, W)
    wires.settle(2)
    wires.write("w", 3)
    wires.settle(2)
    assert wires.cached("r") == [1, 3]
    assert wires.of_kind("r", SamplesLost) == [SamplesLost(STREAM, W, 1)]


def test_writer_does_not_wait_for_a_suspected_reader() -> None:
    """DDS-1: values kept for it are dropped when the cache is full."""
    wires = pair(msgspec.structs.replace(EVERY, samples_max=4), EVERY)
    suspect(wires, W, R)
    for number in range(10):
        wires.write("w", number)
    assert len(wires.of_kind("w", Written)) == 10
    assert not wires.of_kind("w", LimitReached)


def test_writer_keeps_no_values_for_a_closed_reader() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write("w", 1)
    wires.ask("r", CloseReader(STREAM))
    wires.deliver_all()
    assert len(wires.nodes[W].writers[STREAM].cache) == 0


def test_readers_agree_after_the_crash_of_a_writer_that_suspected_one_of_them() -> None:
    """DDS-3: other readers keep its missing values for as long as the writer does."""
    wires = Wires("w", "r", "q")
    for node in ("r", "q"):
        wires.reader(node, AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    suspect(wires, W, R)
    for number in range(3):
        wires.write("w", number)
        wires.settle(1)
    assert wires.cached("q") == [0, 1, 2]
    wires.crash("w")
    wires.settle(2)
    assert wires.cached("r") == [0, 1, 2]


def test_writer_is_unmatched_if_it_returns_with_a_lower_offer() -> None:
    """DDS-1: there must be no silent downgrade."""
    wires = pair(EVERY, EVERY)
    worse = msgspec.structs.replace(
        wires.nodes[W].writers[STREAM].endpoint, incarnation=99, qos=BEST
    )
    wires.nodes[R].receive(W, Endpoints((worse,), ()))
    wires._collect(R)
    assert wires.events[R][-2:] == [
        Unmatched(STREAM, "reader", W),
        Mismatched(STREAM, "reader", W, ("reliability",)),
    ]
    wires.nodes[R].receive(W, Data(STREAM, W, 99, 1, 1, (1,), (b"k",), (b"1",)))
    assert wires.cached("r") == []


def test_readers_stop_sending_once_they_agree() -> None:
    """DDS-3: even after a failure, readers do not flood."""
    wires = Wires("w", "r", "q", "p")
    for node in ("r", "q", "p"):
        wires.reader(node, AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    wires.write("w", 1)
    wires.in_flight = wires.in_flight[:1]
    wires.deliver_all()
    wires.crash("w")
    wires.settle(3)
    assert wires.cached("r") == wires.cached("q") == wires.cached("p") == [1]
    before = wires.sent
    wires.settle(20)
    assert wires.sent == before


def test_full_reader_gets_all_values_after_its_writer_crashes() -> None:
    """DDS-3: the reader keeps values that did not fit into its cache on arrival."""
    wires = Wires("w", "r", "q")
    wires.reader("r", msgspec.structs.replace(AGREED, samples_max=2))
    wires.reader("q", AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    wires.write_many("w", range(5))
    wires.deliver_all()
    wires.crash("w")
    wires.settle(2)
    assert wires.cached("q") == [0, 1, 2, 3, 4]
    assert [wires.take("r") for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_reader_reports_that_it_does_not_read_an_unknown_writer() -> None:
    """DDS-3"""
    wires = Wires("r")
    wires.reader("r", AGREED)
    wires.nodes[R].receive(NodeId("q"), Known(STREAM, W, 7, 5, True))
    wires._collect(R)
    assert wires.in_flight == [(R, NodeId("q"), Known(STREAM, W, 7, -1, False))]


# -- persistent streams --

PERSISTENT = msgspec.structs.replace(EVERY, durability=Durability.PERSISTENT)


def test_writer_sends_values_to_all_but_persistent_readers() -> None:
    """DDS-1"""
    wires = Wires("w", "r", "q")
    wires.reader("r", PERSISTENT)
    wires.reader("q", EVERY)
    wires.writer("w", PERSISTENT)
    wires.deliver_all()
    assert wires.of_kind("r", Matched) == [Matched(STREAM, "reader", W)]
    wires.write("w", 1)
    assert [to for _, to, message in wires.in_flight if isinstance(message, Data)] == ["q"]
    wires.settle()
    assert (wires.cached("r"), wires.cached("q")) == ([], [1])


def test_full_persistent_reader_continues_when_values_are_taken() -> None:
    """DDS-1: no value in the topic is lost."""
    wires = Wires("r")
    wires.ask("r", OpenReader(STREAM, msgspec.structs.replace(PERSISTENT, samples_max=2)))
    samples = tuple(Sample(W, number, b"k", b"%d" % number) for number in range(1, 6))
    wires.ask("r", Feed(STREAM, samples))
    assert wires.of_kind("r", LimitReached) == [LimitReached(STREAM, "reader")]
    assert [wires.take("r") for _ in range(3)] == [[1, 2], [3, 4], [5]]


def test_persistent_writer_keeps_half_its_cache_for_other_readers() -> None:
    """DDS-1: the topic has all values, so the writer never waits for late readers."""
    qos = msgspec.structs.replace(PERSISTENT, samples_max=10)
    wires = Wires("w", "r")
    wires.writer("w", qos)
    for number in range(30):
        wires.write("w", number)
    wires.reader("r", msgspec.structs.replace(EVERY, durability=Durability.TRANSIENT_LOCAL))
    wires.settle()
    assert wires.cached("r") == [25, 26, 27, 28, 29]


def test_late_best_effort_reader_gets_the_kept_values_first() -> None:
    """DDS-2: kept values arrive before new ones, or not at all."""
    qos = QoS(history=3, durability=Durability.TRANSIENT_LOCAL)
    wires = Wires("w", "r")
    wires.writer("w", qos)
    for number in range(5):
        wires.write("w", number)
    wires.reader("r", msgspec.structs.replace(qos, history=KEEP_ALL))
    wires.deliver_all()
    wires.write("w", 5)
    wires.deliver_all()
    assert wires.cached("r") == [2, 3, 4, 5]
    assert qos.reliability == Reliability.BEST_EFFORT
