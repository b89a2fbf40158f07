"""Test ages, sizes and counts on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from oncecast.cli.cluster.command import nodes
from oncecast.cli.connecting import positive, seconds
from oncecast.cli.messages.topics import age, keeping, size
from oncecast.wire.retention import Policy


def test_age_is_parsed_to_microseconds_and_size_to_bytes() -> None:
    assert [age(word) for word in ("90s", "0.5", "7d")] == [90_000_000, 500_000, 604_800_000_000]
    assert [size(word) for word in ("500k", "1", "1G")] == [512_000, 1, 2**30]


@pytest.mark.parametrize(
    ("word", "complaint"), [("x", "'x' is not an integer"), ("0", r"0 is too small \(minimum 1\)")]
)
def test_invalid_count_is_reported(word: str, complaint: str) -> None:
    """CLI-3"""
    with pytest.raises(argparse.ArgumentTypeError, match=complaint):
        positive(word)


def test_local_cluster_has_at_most_64_nodes() -> None:
    """CLI-3"""
    assert nodes("64") == 64
    complaint = r"too many nodes for one machine: 65 \(limit 64\); start fewer"
    with pytest.raises(argparse.ArgumentTypeError, match=complaint):
        nodes("65")
    with pytest.raises(argparse.ArgumentTypeError, match="0 is too small"):
        nodes("0")


def test_petabyte_size_is_accepted() -> None:
    assert size("1000000G") == 1_000_000 * 2**30


@pytest.mark.parametrize("word", ["7y", "", "s", "0s", "-1d", "nan", "inf", "99999999999d"])
@pytest.mark.parametrize(("kind", "such"), [(age, "7d"), (size, "10M")])
def test_error_for_an_invalid_amount_shows_examples(
    word: str, kind: Callable[[str], int], such: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=such):
        kind(word)


@pytest.mark.parametrize("word", ["abc", "", "1s"])
def test_time_that_is_not_a_number_is_rejected(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{word!r} is not a number of seconds"):
        seconds(word)


@pytest.mark.parametrize(
    ("word", "shown"),
    [("7d", "7 d"), ("30d", "30 d"), ("36h", "36 h"), ("90s", "90 s"), ("1000001s", "1000001 s")],
)
def test_age_is_shown_in_the_largest_whole_unit(word: str, shown: str) -> None:
    assert keeping(Policy(age_us=age(word), drop_unread=True)) == shown
