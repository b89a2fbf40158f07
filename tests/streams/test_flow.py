"""Many values at once, the window to each reader, and what is told of losses."""

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
from oncecast.streams.protocols.writing import AWAY_MAX, WINDOW, columns
from tests.streams.test_streams import AGREED, BEST, EVERY, LAST, pair
from tests.streams.wires import STREAM, Wires

R, W = NodeId("r"), NodeId("w")


def sent_data(wires: Wires) -> list[Data]:
    return [message for _, _, message in wires.under_way if isinstance(message, Data)]


def test_values_of_one_call_are_one_message_that_all_readers_share() -> None:
    """DDS-1: it is encoded once."""
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
def test_columns_say_once_what_is_the_same(rows: list[tuple[int, bytes]]) -> None:
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
def test_what_no_honest_writer_sends_is_dropped(change: dict[str, object]) -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    life = wires.nodes[W].writers[STREAM].endpoint.life
    right = Data(STREAM, W, life, 1, 2, (1,), (b"k",), (b"1", b"2"))
    reader = wires.nodes[R]
    reader.receive(W, msgspec.structs.replace(right, **change))
    assert len(reader.readers[STREAM].cache) == 0
    reader.receive(W, right)
    assert len(reader.readers[STREAM].cache) == 2


def test_no_more_than_a_window_is_under_way_to_a_reader() -> None:
    """DDS-1: the rest waits in the writer's cache, and comes as the reader acknowledges."""
    wires = pair(EVERY, EVERY)
    for at in range(0, 2 * WINDOW, 512):
        wires.write_many("w", range(at, at + 512))
    assert sum(len(each.values) for each in sent_data(wires)) == WINDOW
    wires.settle(2)
    assert wires.cached("r") == list(range(2 * WINDOW))
    assert len(wires.nodes[W].writers[STREAM].cache) == 0


def test_who_does_not_keep_up_with_best_effort_misses_some_and_hears_how_many() -> None:
    """DDS-2"""
    wires = pair(BEST, BEST)
    for at in range(0, WINDOW + 1024, 512):
        wires.write_many("w", range(at, at + 512))
    wires.settle(2)
    wires.write("w", -1)
    wires.settle(2)
    assert wires.cached("r") == [*range(WINDOW), -1]
    assert wires.of_kind("r", SamplesLost) == [SamplesLost(STREAM, W, 1024)]


def test_a_keep_last_reader_far_behind_skips_to_what_is_kept() -> None:
    """DDS-2: not number by number."""
    wires = pair(LAST, LAST)
    wires.write_many("w", range(5))
    wires.under_way.clear()
    for at in range(0, 100_000, 500):
        wires.write_many("w", range(at, at + 500))
        wires.under_way.clear()
    wires.settle(1)
    assert wires.cached("r") == [99_999]
    assert not wires.of_kind("r", SamplesLost)


@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), max_size=12), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
@pytest.mark.long
def test_large_writes_of_several_keys_come_in_order_under_loss(
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
        wires.turn()
    wires.settle()
    assert wires.cached("r") == written
    assert not wires.of_kind("r", SamplesLost)


def test_best_effort_that_finds_no_room_is_rejected() -> None:
    """DDS-1"""
    wires = pair(BEST, msgspec.structs.replace(BEST, samples_max=2))
    wires.write_many("w", range(5))
    wires.deliver_all()
    assert wires.cached("r") == [0, 1]
    assert wires.of_kind("r", SamplesRejected) == [SamplesRejected(STREAM, W, 3)]


def test_more_keys_than_allowed_wait_for_room() -> None:
    """DDS-1"""
    wires = pair(EVERY, msgspec.structs.replace(EVERY, keys_max=1))
    wires.write_many("w", (1, 2, 3), b"a", b"a", b"b")
    wires.deliver_all()
    assert wires.cached("r") == [1, 2]
    assert wires.take("r") == [1, 2]
    assert wires.cached("r") == [3]


def test_a_writer_hears_when_all_have_all() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write_many("w", range(5))
    assert wires.of_kind("w", Stable) == []
    wires.settle(1)
    assert wires.of_kind("w", Stable) == [Stable(STREAM, 6)]


# -- who comes and goes --


def test_what_a_node_says_before_it_is_known_is_asked_for() -> None:
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


def suspect(wires: Wires, who: NodeId, whom: NodeId) -> None:
    wires.nodes[who].now = wires.now
    wires.nodes[who].observe(NeighborDown(whom))
    wires._collect(who)


def trust(wires: Wires, who: NodeId, whom: NodeId) -> None:
    wires.nodes[who].now = wires.now
    wires.nodes[who].observe(NeighborUp(whom))
    wires._collect(who)


@pytest.mark.parametrize("qos", [EVERY, LAST], ids=["keep-all", "keep-last"])
@pytest.mark.parametrize("mutual", [True, False])
def test_a_reader_that_was_suspected_wrongly_goes_on_where_it_was(qos: QoS, mutual: bool) -> None:
    """DDS-2: it gets what was written meanwhile, and nothing twice."""
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


def test_a_reader_that_comes_back_too_late_hears_what_it_has_missed() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write("w", 1)
    wires.settle(1)
    suspect(wires, W, R)
    suspect(wires, R, W)
    wires.write("w", 2)
    wires.turn(AWAY_MAX + 1)
    trust(wires, W, R)
    trust(wires, R, W)
    wires.settle(2)
    wires.write("w", 3)
    wires.settle(2)
    assert wires.cached("r") == [1, 3]
    assert wires.of_kind("r", SamplesLost) == [SamplesLost(STREAM, W, 1)]


def test_nobody_waits_for_a_reader_that_is_suspected() -> None:
    """DDS-1: what is kept for it goes when room is needed."""
    wires = pair(msgspec.structs.replace(EVERY, samples_max=4), EVERY)
    suspect(wires, W, R)
    for number in range(10):
        wires.write("w", number)
    assert len(wires.of_kind("w", Written)) == 10
    assert not wires.of_kind("w", LimitReached)


def test_nothing_is_kept_for_a_reader_that_has_closed() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.write("w", 1)
    wires.ask("r", CloseReader(STREAM))
    wires.deliver_all()
    assert len(wires.nodes[W].writers[STREAM].cache) == 0


def test_readers_agree_though_the_writer_suspected_one_of_them_before_it_crashed() -> None:
    """DDS-3: the others keep what it lacks as long as the writer does."""
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


def test_a_writer_that_comes_back_and_offers_less_is_matched_no_longer() -> None:
    """DDS-1: no silent downgrade."""
    wires = pair(EVERY, EVERY)
    worse = msgspec.structs.replace(wires.nodes[W].writers[STREAM].endpoint, life=99, qos=BEST)
    wires.nodes[R].receive(W, Endpoints((worse,), ()))
    wires._collect(R)
    assert wires.events[R][-2:] == [
        Unmatched(STREAM, "reader", W),
        Mismatched(STREAM, "reader", W, ("reliability",)),
    ]
    wires.nodes[R].receive(W, Data(STREAM, W, 99, 1, 1, (1,), (b"k",), (b"1",)))
    assert wires.cached("r") == []


def test_readers_that_have_agreed_are_quiet() -> None:
    """DDS-3: no flooding, not after a failure either."""
    wires = Wires("w", "r", "q", "p")
    for node in ("r", "q", "p"):
        wires.reader(node, AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    wires.write("w", 1)
    wires.under_way = wires.under_way[:1]
    wires.deliver_all()
    wires.crash("w")
    wires.settle(3)
    assert wires.cached("r") == wires.cached("q") == wires.cached("p") == [1]
    before = wires.sent
    wires.settle(20)
    assert wires.sent == before


def test_a_reader_that_was_full_when_its_writer_crashed_still_gets_all() -> None:
    """DDS-3: what had come and found no room is not forgotten."""
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


def test_who_reads_another_life_of_a_stream_need_not_agree() -> None:
    """DDS-3"""
    wires = Wires("r")
    wires.reader("r", AGREED)
    wires.nodes[R].receive(NodeId("q"), Known(STREAM, W, 7, 5, True))
    wires._collect(R)
    assert wires.under_way == [(R, NodeId("q"), Known(STREAM, W, 7, -1, False))]


# -- persistent streams: the values come from elsewhere --

PERSISTENT = msgspec.structs.replace(EVERY, durability=Durability.PERSISTENT)


def test_a_persistent_reader_is_sent_nothing_and_one_that_requests_less_is() -> None:
    """DDS-1"""
    wires = Wires("w", "r", "q")
    wires.reader("r", PERSISTENT)
    wires.reader("q", EVERY)
    wires.writer("w", PERSISTENT)
    wires.deliver_all()
    assert wires.of_kind("r", Matched) == [Matched(STREAM, "reader", W)]
    wires.write("w", 1)
    assert [to for _, to, message in wires.under_way if isinstance(message, Data)] == ["q"]
    wires.settle()
    assert (wires.cached("r"), wires.cached("q")) == ([], [1])


def test_a_persistent_reader_that_is_full_goes_on_when_values_are_taken() -> None:
    """DDS-1: nothing of the topic is lost."""
    wires = Wires("r")
    wires.ask("r", OpenReader(STREAM, msgspec.structs.replace(PERSISTENT, samples_max=2)))
    samples = tuple(Sample(W, number, b"k", b"%d" % number) for number in range(1, 6))
    wires.ask("r", Feed(STREAM, samples))
    assert wires.of_kind("r", LimitReached) == [LimitReached(STREAM, "reader")]
    assert [wires.take("r") for _ in range(3)] == [[1, 2], [3, 4], [5]]


def test_a_persistent_writer_keeps_only_some_for_others() -> None:
    """DDS-1: the topic has all of them, so it never waits for those who may come."""
    qos = msgspec.structs.replace(PERSISTENT, samples_max=10)
    wires = Wires("w", "r")
    wires.writer("w", qos)
    for number in range(30):
        wires.write("w", number)
    wires.reader("r", msgspec.structs.replace(EVERY, durability=Durability.TRANSIENT_LOCAL))
    wires.settle()
    assert wires.cached("r") == [25, 26, 27, 28, 29]


def test_a_best_effort_reader_of_a_late_join_never_goes_back() -> None:
    """DDS-2: what the writer kept comes first, or not at all."""
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
