"""Pure parts of the HTTP interface: credentials, shapes, parameters and errors (WEB-1)."""

from __future__ import annotations

import base64

import msgspec
import pytest

from oncecast import errors
from oncecast.errors import BadRequest, InvalidArgument, NotAuthenticated
from oncecast.web import shapes
from oncecast.web.census import Count
from oncecast.web.exchange import json_of
from oncecast.web.operations import query_of, read_parameters
from oncecast.web.problems import problem_of, status_of
from oncecast.web.routes import OPERATIONS
from oncecast.web.sessions import Credentials, credentials_of
from oncecast.web.topics import joined, parted
from oncecast.web.views import message_shape, policy_of, shared_of
from oncecast.wire.frames import TopicView
from oncecast.wire.message import Message
from oncecast.wire.retention import DEFAULT, Policy
from oncecast.wire.sharing import DEFAULT_SHARED


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_credentials_are_read_from_the_header() -> None:
    """WEB-1"""
    assert credentials_of("Bearer a.b") == Credentials(token="a.b")
    assert credentials_of("bearer  a.b ") == Credentials(token="a.b")
    assert credentials_of(basic("bob:a:b")) == Credentials("bob", "a:b")


@pytest.mark.parametrize("header", ["", "Bearer", "Basic", "Basic x", basic("bob"), basic(":x")])
def test_header_without_credentials_is_refused(header: str) -> None:
    """WEB-1"""
    with pytest.raises(NotAuthenticated):
        credentials_of(header)


def message(value: bytes) -> Message:
    return Message("t", 7, b"k", value, {"h": b"\xff"}, 1, "p", 2, False)


def test_message_shows_bytes_and_text() -> None:
    """WEB-1"""
    shown = message_shape(message("tea ☕".encode()))
    assert (shown.text, shown.size, shown.truncated) == ("tea ☕", 7, False)
    assert shown.key == shapes.Bytes(value=b"k", text="k")
    assert shown.headers == {"h": shapes.Bytes(value=b"\xff", text=None)}
    assert message_shape(message(b"\xff")).text is None


def test_cut_value_keeps_whole_characters_as_text() -> None:
    """WEB-1"""
    shown = message_shape(message("tea ☕".encode()), 5)
    assert (shown.value, shown.text, shown.size) == (b"tea \xe2", "tea ", 7)
    assert shown.truncated
    assert message_shape(message(b"a\xffbcd"), 3).text is None


def test_policy_changes_only_the_given_fields() -> None:
    """WEB-1"""
    body = shapes.PolicyBody(age=1.5, drop_unread=True)
    now = Policy(bytes_max=10)
    assert policy_of(body, now) == Policy(age_us=1_500_000, bytes_max=10, drop_unread=True)
    with pytest.raises(InvalidArgument):
        policy_of(shapes.PolicyBody(drop_unread=True), DEFAULT)


def test_settings_change_only_the_given_fields() -> None:
    """WEB-1"""
    shared = shared_of(shapes.SharedBody(lease=2.0), DEFAULT_SHARED)
    assert (shared.lease, shared.backoff_max, shared.by_key) == (2.0, 60.0, False)


def test_whole_numbers_may_be_written_as_floats() -> None:
    """WEB-1: JSON Schema calls 2.0 an integer."""
    assert json_of(b'{"offset": 2.0}', shapes.AckBody) == shapes.AckBody(offset=2)
    for data in (b'{"offset": 2.5}', b'{"offset": "2"}', b'{"offset": -1.0}', b"{}"):
        with pytest.raises(msgspec.ValidationError):
            json_of(data, shapes.AckBody)


@pytest.mark.parametrize("query", [b"a=1&a=2", b"a=%ff", b"a=\xff", b"&".join([b"a=1"] * 99)])
def test_ambiguous_query_is_refused(query: bytes) -> None:
    """WEB-1"""
    with pytest.raises(BadRequest):
        query_of(query)


def test_parameters_are_checked_and_have_defaults() -> None:
    """WEB-1"""
    (listed,) = [each for each in OPERATIONS if (each.method, each.path) == ("GET", "/topics")]
    assert read_parameters(listed, {}, b"limit=7", {}) == {
        "search": "",
        "prefix": "",
        "after": "",
        "limit": 7,
    }
    for query in (b"limit=0", b"limit=1001", b"limit=", b"other=1"):
        with pytest.raises(BadRequest):
            read_parameters(listed, {}, query, {})


def test_error_has_the_status_of_its_nearest_class() -> None:
    """WEB-1"""
    assert status_of(errors.NoQuorum()) == 503
    assert status_of(errors.TimedOut()) == 504
    assert status_of(errors.Diverged()) == 500
    problem = problem_of(errors.Gap(7))
    assert (problem.status, problem.code, problem.expected) == (409, "gap", 7)


def test_position_in_the_list_of_subscriptions_survives_any_name() -> None:
    """WEB-1"""
    for pair in (("a", "b"), ("a:1", "2:b"), ("ü☕", ""), ("", "")):
        assert parted(joined(*pair)) == pair
    for after in ("x", "1", "-1:a", "99999:a"):
        with pytest.raises(InvalidArgument):
            parted(after)


def view(name: str, first: int, end: int, size: int, number: int = 1) -> TopicView:
    return TopicView(name, number, first, end, size, DEFAULT, (), 0)


def test_rates_count_only_messages_since_the_last_count() -> None:
    """WEB-1: a topic that was recreated starts again."""
    before = Count({"a": view("a", 0, 10, 100), "b": view("b", 0, 50, 500)}, 0.0, 0.0, False)
    after = Count({"a": view("a", 0, 30, 300), "b": view("b", 0, 4, 40, 2)}, 2.0, 0.0, False)
    after.compare(before)
    assert after.rates == {"a": 10.0, "b": 2.0}
    assert (after.puts_rate, after.bytes_rate) == (12.0, 120.0)
    assert (after.messages, after.bytes, after.subscriptions) == (34, 340, None)
