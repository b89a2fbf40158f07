"""Each error is declared completely, and documented."""

from __future__ import annotations

import pickle
import re
from typing import get_args

import msgspec
import pytest

from oncecast import errors
from oncecast.errors import ExitStatus, OncecastError
from oncecast.wire.errors import AnyRefusal, Refusal
from tools.check_docs import ROOT
from tools.error_page import kinds, with_errors

KINDS = kinds()
every_error = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
every_refusal = pytest.mark.parametrize(
    "kind", get_args(AnyRefusal), ids=lambda kind: kind.__name__
)


def subclasses(kind: type[OncecastError]) -> set[type[OncecastError]]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


@every_error
def test_error_declares_its_code_message_and_exit_status(kind: type[OncecastError]) -> None:
    """SVC-7 CLI-3"""
    assert re.fullmatch("[a-z]+(-[a-z]+)*", vars(kind)["code"])
    assert vars(kind)["message"]
    assert isinstance(kind.exit_status, ExitStatus)
    assert kind.__doc__


def test_no_two_errors_share_a_code() -> None:
    """SVC-7"""
    codes = [kind.code for kind in KINDS]
    assert sorted(codes) == sorted(set(codes))


def test_every_error_is_declared_in_one_module() -> None:
    """SVC-7"""
    assert {
        each for each in subclasses(OncecastError) if each.__module__.startswith("oncecast.")
    } == set(KINDS)


def test_error_page_lists_every_error() -> None:
    """SVC-7: docs/errors.md is generated; tools/check_docs.py --write renews it."""
    page = (ROOT / "docs" / "errors.md").read_text()
    assert page == with_errors(page)
    tree = errors.__doc__ or ""
    for kind in KINDS:
        assert f"| `{kind.__name__}` | `{kind.code}` | {kind.exit_status.value} |" in page
        assert re.search(rf"\b{kind.__name__}\b", tree)


@every_refusal
def test_refusal_is_raised_as_its_exception(kind: type[Refusal]) -> None:
    """SVC-7"""
    values = [1 if f.type is int else "name" for f in msgspec.structs.fields(kind)]
    error = kind(*values).raised()
    assert (type(error), error.message != "", "{" in str(error)) == (kind.error, True, False)


def test_refusals_have_different_exceptions() -> None:
    """SVC-7"""
    found = [each.error for each in get_args(AnyRefusal)]
    assert len(set(found)) == len(found)


def test_error_keeps_its_fields_and_texts_in_copies_and_pickles() -> None:
    """SVC-7"""
    error = errors.MessagesLost("t", 3, 7).within("group g").reworded(remedy="read sooner")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.topic, again.first, again.next) == (errors.MessagesLost, "t", 3, 7)
    assert str(again) == "group g: offsets 3 to 6 of topic 't' were dropped unread; read sooner"
    late = pickle.loads(pickle.dumps(errors.NotConnected("no answer", refused=False)))
    assert (str(late), late.refused, repr(late)) == (
        "no answer",
        False,
        "NotConnected('no answer')",
    )


def test_message_and_remedy_of_an_instance_may_have_braces() -> None:
    """SVC-7"""
    error = errors.InvalidArgument("{x} is wrong", 'use {"topic": 17}')
    assert str(error) == '{x} is wrong; use {"topic": 17}'
    assert str(errors.NoSuchTopic("{x}").within("{y}")).startswith("{y}: topic '{x}' does not")
