"""Test which values readers may get if messages are lost or reordered."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.events import (
    CloseReader,
    CloseWriter,
    DeadlineMissed,
    LimitReached,
    Liveliness,
    Matched,
    Mismatched,
    NotWritten,
    SamplesLost,
    Unmatched,
    Write,
    Written,
)
from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability
from tests.streams.wires import STREAM, Wires

BEST = QoS(history=KEEP_ALL)
LAST = QoS(reliability=Reliability.RELIABLE)
EVERY = QoS(reliability=Reliability.RELIABLE, history=KEEP_ALL)
AGREED = QoS(reliability=Reliability.AGREED, history=KEEP_ALL)
AGREED_LAST = QoS(reliability=Reliability.AGREED)


def pair(offered: QoS, requested: QoS, *, seed: int = 0) -> Wires:
    wires = Wires("w", "r", seed=seed)
    wires.reader("r", requested)
    wires.writer("w", offered)
    wires.deliver_all()
    return wires


# -- matching --


def test_match_is_reported_on_both_sides() -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    assert wires.of_kind("w", Matched) == [Matched(STREAM, "writer", NodeId("r"))]
    assert wires.of_kind("r", Matched) == [Matched(STREAM, "reader", NodeId("w"))]


def test_mismatch_is_reported_on_both_sides_and_no_values_are_sent() -> None:
    """DDS-1: there must be no silent downgrade."""
    wires = pair(BEST, msgspec.structs.replace(EVERY, deadline=1.0))
    less = ("reliability", "deadline")
    assert wires.of_kind("w", Mismatched) == [Mismatched(STREAM, "writer", NodeId("r"), less)]
    assert wires.of_kind("r", Mismatched) == [Mismatched(STREAM, "reader", NodeId("w"), less)]
    wires.write("w", 1)
    wires.settle()
    assert wires.cached("r") == []


@pytest.mark.parametrize("leaver", ["w", "r"])
def test_closed_endpoint_is_unmatched(leaver: str) -> None:
    """DDS-1"""
    wires = pair(EVERY, EVERY)
    wires.ask(leaver, CloseWriter(STREAM) if leaver == "w" else CloseReader(STREAM))
    wires.deliver_all()
    other = "r" if leaver == "w" else "w"
    assert wires.of_kind(other, Unmatched)


# -- reliability --


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_best_effort_values_never_arrive_out_of_order(bursts: list[int], seed: int) -> None:
    """DDS-2"""
    wires = pair(BEST, BEST, seed=seed)
    number = 0
    for burst in bursts:
        for _ in range(burst):
            number += 1
            wires.write("w", number)
        wires.shuffle(loss=0.3, duplication=0.3)
    wires.deliver_all()
    read = wires.cached("r")
    assert read == sorted(set(read))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_reliable_keep_last_reader_ends_with_the_last_value(bursts: list[int], seed: int) -> None:
    """DDS-2"""
    wires = pair(LAST, LAST, seed=seed)
    number = 0
    for burst in bursts:
        for _ in range(burst):
            number += 1
            wires.write("w", number)
        wires.shuffle(loss=0.3, duplication=0.3)
        wires.tick()
    wires.settle()
    assert wires.cached("r") == [number]


@given(
    st.lists(st.tuples(st.sampled_from(["w", "v"]), st.integers(1, 3)), min_size=1, max_size=20),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.long
def test_reliable_keep_all_reader_gets_every_value_from_each_writer_in_order(
    bursts: list[tuple[str, int]], seed: int
) -> None:
    """DDS-2: the test has two writers and two readers."""
    wires = Wires("w", "v", "r", "q", seed=seed)
    for node in ("r", "q"):
        wires.reader(node, EVERY)
    for node in ("w", "v"):
        wires.writer(node, EVERY)
    wires.deliver_all()
    written: dict[str, list[int]] = {"w": [], "v": []}
    for number, (writer, burst) in enumerate(bursts):
        for each in range(burst):
            wires.write(writer, 10 * number + each)
            written[writer].append(10 * number + each)
        wires.shuffle(loss=0.3, duplication=0.3)
        wires.tick()
    wires.settle()
    for node in ("r", "q"):
        samples = wires.nodes[NodeId(node)].readers[STREAM].cache.read()
        for writer, numbers in written.items():
            assert [int(each.value) for each in samples if each.writer == writer] == numbers


def test_each_value_is_sent_to_each_reader_once_if_nothing_fails() -> None:
    """DDS-3: readers must not flood each other."""
    wires = Wires("w", "r", "q", "p")
    for node in ("r", "q", "p"):
        wires.reader(node, AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    before = wires.sent
    for number in range(20):
        wires.write("w", number)
        wires.deliver_all()
    assert wires.sent - before == 3 * 20


# -- durability, limits --


def test_late_volatile_reader_gets_only_later_values() -> None:
    """DDS-1"""
    wires = Wires("w", "r")
    wires.writer("w", EVERY)
    wires.write("w", 1)
    wires.reader("r", EVERY)
    wires.settle()
    wires.write("w", 2)
    wires.settle()
    assert wires.cached("r") == [2]
    assert not wires.of_kind("r", SamplesLost)  # earlier values were not meant for it


@pytest.mark.parametrize("history", [KEEP_ALL, 2])
def test_late_transient_local_reader_gets_the_kept_values(history: int) -> None:
    """DDS-1"""
    qos = msgspec.structs.replace(EVERY, history=history, durability=Durability.TRANSIENT_LOCAL)
    wires = Wires("w", "r")
    wires.writer("w", qos)
    for number in range(5):
        wires.write("w", number)
    wires.reader("r", msgspec.structs.replace(qos, history=KEEP_ALL))
    wires.settle()
    assert wires.cached("r") == ([0, 1, 2, 3, 4] if history == KEEP_ALL else [3, 4])


def test_write_fails_if_a_reliable_reader_is_too_slow() -> None:
    """DDS-1: the write waits for `blocking_max` first."""
    limited = msgspec.structs.replace(EVERY, samples_max=2, blocking_max=0.5)
    wires = pair(limited, EVERY)
    for number in range(3):
        wires.write("w", number)
    assert len(wires.of_kind("w", Written)) == 2
    wires.in_flight.clear()  # lose all messages
    for _ in range(6):
        wires.tick()
        wires.in_flight.clear()
    assert wires.of_kind("w", LimitReached) == [LimitReached(STREAM, "writer")]
    (refused,) = wires.of_kind("w", NotWritten)
    assert (
        "the cache is still full after 0.5 s (values: 2, keys: 1; slow readers: r); write"
        in str(refused)
    )
    wires.settle()
    assert wires.cached("r") == [0, 1]


def test_waiting_write_continues_when_space_is_freed() -> None:
    """DDS-1"""
    limited = msgspec.structs.replace(EVERY, samples_max=2, blocking_max=5.0)
    wires = pair(limited, EVERY)
    for number in range(6):
        wires.write("w", number)
    wires.settle()
    assert wires.cached("r") == [0, 1, 2, 3, 4, 5]
    assert not wires.of_kind("w", NotWritten)


def test_full_reader_continues_when_values_are_taken() -> None:
    """DDS-1: no value is lost."""
    wires = pair(EVERY, msgspec.structs.replace(EVERY, samples_max=2))
    for number in range(6):
        wires.write("w", number)
    taken: list[int] = []
    for _ in range(4):
        wires.settle(5)
        taken += wires.take("r")
    assert taken == [0, 1, 2, 3, 4, 5]
    assert LimitReached(STREAM, "reader") in wires.events[NodeId("r")]


def test_write_to_a_stream_without_a_writer_is_rejected() -> None:
    """DDS-1"""
    wires = Wires("w", "r")
    wires.ask("w", Write(STREAM, 7, (b"k",), (b"v",)))
    (refused,) = wires.of_kind("w", NotWritten)
    assert refused == NotWritten(
        STREAM, 7, "this process has no writer for the stream; open one first"
    )


# -- time --


def test_missed_deadline_is_reported_on_both_sides() -> None:
    """DDS-1"""
    requested = msgspec.structs.replace(EVERY, deadline=1.0)
    wires = pair(msgspec.structs.replace(EVERY, deadline=0.5), requested)
    wires.write("w", 1)
    for _ in range(12):
        wires.deliver_all()
        wires.tick()
    assert wires.of_kind("w", DeadlineMissed)[0] == DeadlineMissed(STREAM, "writer", b"k")
    assert wires.of_kind("r", DeadlineMissed) == [DeadlineMissed(STREAM, "reader", b"k")]


def test_expired_values_are_not_read() -> None:
    """DDS-1"""
    wires = pair(msgspec.structs.replace(EVERY, lifespan=0.5), EVERY)
    wires.write("w", 1)
    wires.deliver_all()
    assert wires.cached("r") == [1]
    wires.settle(8)
    assert wires.cached("r") == []


# -- agreement --


def crashed_after(subset: tuple[bool, ...], qos: QoS, *, written: int) -> Wires:
    """Crash a writer whose last value has reached only the readers in `subset`."""
    readers = [f"r{index}" for index in range(len(subset))]
    wires = Wires("w", *readers)
    for node in readers:
        wires.reader(node, qos)
    wires.writer("w", qos)
    wires.deliver_all()
    for number in range(written):
        wires.write("w", number)
        if number < written - 1:
            wires.deliver_all()
    reached = {NodeId(node) for node, is_reached in zip(readers, subset, strict=True) if is_reached}
    wires.in_flight = [each for each in wires.in_flight if each[1] in reached]
    wires.deliver_all()
    wires.crash("w")
    return wires


@pytest.mark.parametrize("qos", [AGREED, AGREED_LAST], ids=["keep-all", "keep-last"])
@pytest.mark.parametrize("readers", range(1, 6))
def test_readers_share_the_values_that_any_of_them_has_after_the_writer_crashes(
    readers: int, qos: QoS
) -> None:
    """DDS-3: the test tries every subset of readers in groups of 2 to 6."""
    for subset in product((False, True), repeat=readers):
        wires = crashed_after(subset, qos, written=3)
        wires.settle(3)
        read = [wires.cached(f"r{index}") for index in range(readers)]
        assert all(each == read[0] for each in read)
        last = 2 if any(subset) else 1
        assert read[0] == (list(range(last + 1)) if qos is AGREED else [last])


def test_reliable_readers_do_not_agree_after_the_writer_crashes() -> None:
    """DDS-3: this proves that the test above can fail."""
    wires = crashed_after((True, False), EVERY, written=3)
    wires.settle(3)
    assert wires.cached("r0") != wires.cached("r1")


@given(st.integers(2, 50), st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
@pytest.mark.long
def test_many_readers_agree_despite_losses(readers: int, seed: int) -> None:
    """DDS-3: up to 50 readers lose messages even while they compare states."""
    wires = Wires("w", *(f"r{index}" for index in range(readers)), seed=seed)
    for index in range(readers):
        wires.reader(f"r{index}", AGREED)
    wires.writer("w", AGREED)
    wires.deliver_all()
    for number in range(5):
        wires.write("w", number)
        wires.shuffle(loss=0.4)
    wires.crash("w")
    for _ in range(12):
        wires.shuffle(loss=0.2)
        wires.tick()
    wires.settle(3)
    read = [wires.cached(f"r{index}") for index in range(readers)]
    assert all(each == read[0] for each in read)


def test_silent_and_returning_writers_are_reported() -> None:
    """DDS-1"""
    offered = msgspec.structs.replace(EVERY, liveliness=0.3)
    wires = pair(offered, msgspec.structs.replace(EVERY, liveliness=0.5))
    for _ in range(8):
        wires.tick()
        wires.in_flight.clear()
    assert wires.of_kind("r", Liveliness) == [Liveliness(STREAM, NodeId("w"), False)]
    wires.tick()
    wires.deliver_all()
    assert wires.of_kind("r", Liveliness)[-1] == Liveliness(STREAM, NodeId("w"), True)
