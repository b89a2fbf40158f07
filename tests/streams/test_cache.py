"""Test the cache of a reader or writer."""

from __future__ import annotations

from collections import deque
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from oncecast.kernel.protocol import NodeId
from oncecast.streams.protocols.cache import Cache, Sample
from oncecast.streams.protocols.policies import KEEP_ALL, QoS

WRITER = NodeId("w")


def sample(number: int, key: bytes = b"k") -> Sample:
    return Sample(WRITER, number, key, b"%d" % number)


def add(cache: Cache, number: int, key: bytes = b"k", until: float = inf) -> bool:
    """Add a sample, and return whether it fits."""
    return cache.add([sample(number, key)], until) == 1


def filled(qos: QoS, count: int) -> Cache:
    cache = Cache(qos)
    for number in range(count):
        assert add(cache, number)
    return cache


def numbers(samples: tuple[Sample, ...]) -> list[int]:
    return [each.number for each in samples]


def test_full_history_keeps_the_last_values_per_key() -> None:
    """DDS-1"""
    cache = filled(QoS(history=2), 3)
    add(cache, 9, b"other")
    assert numbers(cache.of(b"k")) == [1, 2]
    assert numbers(cache.of(b"other")) == [9]
    assert len(cache) == 3


def test_read_keeps_values_and_take_removes_them() -> None:
    """DDS-1"""
    cache = filled(QoS(history=KEEP_ALL), 3)
    assert numbers(cache.read()) == [0, 1, 2]
    assert numbers(cache.read(unread=True)) == []
    add(cache, 3)
    assert numbers(cache.read(unread=True)) == [3]
    assert numbers(cache.take()) == [0, 1, 2, 3]
    assert len(cache) == 0
    assert cache.keys() == []


def test_full_keep_all_cache_rejects_values() -> None:
    """DDS-1"""
    cache = filled(QoS(history=KEEP_ALL, samples_max=2), 2)
    assert not cache.fits((b"k",))
    assert not add(cache, 2)
    cache.take()
    add(cache, 2)
    assert numbers(cache.read()) == [2]


def test_full_keep_last_cache_replaces_values_with_the_same_key() -> None:
    """DDS-1"""
    cache = Cache(QoS(history=2, samples_max=2))
    add(cache, 0)
    add(cache, 1)
    add(cache, 2)
    assert numbers(cache.of(b"k")) == [1, 2]
    assert not add(cache, 3, b"other")


def test_cache_rejects_more_keys_than_allowed() -> None:
    """DDS-1"""
    cache = Cache(QoS(keys_max=1))
    add(cache, 0)
    assert not add(cache, 1, b"other")


def test_expired_values_are_removed() -> None:
    """DDS-1"""
    cache = Cache(QoS(history=KEEP_ALL))
    for number in range(4):
        add(cache, number, until=float(number))
    cache.expire(2.0)
    assert numbers(cache.read()) == [2, 3]


@given(
    st.integers(1, 4),
    st.lists(st.one_of(st.sampled_from([b"a", b"b", b"c"]), st.none()), max_size=40),
)
def test_cache_keeps_the_last_values_of_each_key(history: int, steps: list[bytes | None]) -> None:
    """DDS-1: the test compares the cache with a simple model; None takes all values."""
    cache = Cache(QoS(history=history))
    model: dict[bytes, deque[int]] = {}
    for number, key in enumerate(steps):
        if key is None:
            left = [each for values in model.values() for each in values]
            assert sorted(numbers(cache.take())) == sorted(left)
            model.clear()
        else:
            add(cache, number, key)
            model.setdefault(key, deque(maxlen=history)).append(number)
        for each in (b"a", b"b", b"c"):
            assert numbers(cache.of(each)) == list(model.get(each, ()))
        assert len(cache) == sum(map(len, model.values()))
