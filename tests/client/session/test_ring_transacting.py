"""Test the exact effects of transactions across groups in a session (TXN-2)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session.local import Begin, Begun, EndAll, Finished, NoAnswer
from oncecast.client.session.ring_transacting import PREPARE_WITHIN
from oncecast.wire import errors
from oncecast.wire.frames import Call
from oncecast.wire.results import (
    PublishedRange,
    SourceOpened,
    TransactionEnded,
    TransactionPrepared,
)
from oncecast.wire.ring_transactions import (
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
    Share,
)
from oncecast.wire.transactions import EndTransaction, Output
from tests.client.session.lone import Lone

TAGS = {"a": 5, "b": 6, "c": 7}  # the epoch of the source by tag
PREPARED = TransactionPrepared(already=False)
ABORTED = TransactionEnded(False, (), already=False)
REFUSED = errors.NotAcknowledged("b", "s", 3, "it is already acknowledged")


def output(tag: str) -> tuple[Output, ...]:
    return (Output(tag, 1, 1, b"x"),)


def range_of(tag: str) -> PublishedRange:
    return PublishedRange(tag, 4, 1, kept=True)


def ended(tag: str) -> TransactionEnded:
    return TransactionEnded(True, (range_of(tag),), already=False)


def begun(**next_numbers: int) -> Lone:
    """Return a session that has opened the source of each tag, and begun a transaction there."""
    lone = Lone().start()
    for ticket, (tag, epoch) in enumerate(TAGS.items(), 1):
        lone.ask(Begin(ticket, "src", tag, 10.0))
        number = next_numbers.get(tag, 0)
        lone.answer(lone.call, SourceOpened(epoch, True, number))
        assert lone.events == [Begun(ticket, epoch, number, tag, tag)]
    return lone


def share(tag: str, number: int = 0, finished: int = 0, **fields: Any) -> EndTransaction:
    fields = {"outputs": output(tag)} | fields
    return EndTransaction("src", tag, TAGS[tag], number, finished, 0, **fields)


def prepare(tag: str, number: int = 0) -> PrepareTransaction:
    coordinator = Share("a", 5, 0)
    facts = ("src", tag, TAGS[tag], number, number, 0)
    return PrepareTransaction(*facts, outputs=output(tag), coordinator=coordinator)


def abort(tag: str) -> EndTransaction:
    return EndTransaction("src", tag, TAGS[tag], 0, 0, 0, commit=False)


DECIDE = DecideTransaction(
    "src", "a", 5, 0, 0, 0, outputs=output("a"), participants=(Share("b", 6, 0), Share("c", 7, 0))
)


def resolve(tag: str) -> ResolveTransaction:
    return ResolveTransaction("src", tag, TAGS[tag], 0, 0, commit=True)


def preparing(**next_numbers: int) -> tuple[Lone, list[Call]]:
    """Return a session that ends a transaction, and its calls to the participants."""
    lone = begun(**next_numbers)
    shares = tuple(share(tag, next_numbers.get(tag, 0)) for tag in TAGS)
    return lone, calls_of(lone.ask(EndAll(9, shares)))


def deciding() -> tuple[Lone, Call]:
    lone, (one, other) = preparing()
    lone.answer(one, PREPARED)
    return lone, lone.answer(other, PREPARED).call


def calls_of(lone: Lone) -> list[Call]:
    return [each for each in lone.sent if isinstance(each, Call)]


def commands(lone: Lone) -> list[Any]:
    return [each.command for each in calls_of(lone)]


def test_all_participants_are_prepared_before_the_coordinator_decides() -> None:
    """TXN-2"""
    lone, calls = preparing()
    assert [each.command for each in calls] == [prepare("b"), prepare("c")]
    assert lone.answer(calls[1], PREPARED).outputs == []
    assert lone.answer(calls[1], PREPARED).outputs == []
    assert commands(lone.answer(calls[0], PREPARED)) == [DECIDE]


def test_shares_are_resolved_after_the_decision_and_the_ranges_collected() -> None:
    """TXN-2: the application learns of the commit once all groups have published."""
    lone, decide = deciding()
    one, other = calls_of(lone.answer(decide, ended("a")))
    assert [one.command, other.command] == [resolve("b"), resolve("c")]
    assert lone.answer(other, ended("c")).events == []
    ranges = tuple(map(range_of, TAGS))
    done = TransactionEnded(True, ranges, already=False)
    assert lone.answer(one, ended("b")).events == [Finished(9, done)]


def test_numbers_start_where_the_node_says() -> None:
    lone, calls = preparing(b=3)
    assert calls[0].command == prepare("b", 3)
    assert lone.ask(Begin(20, "src", "b")).events == [Begun(20, 6, 4, "b", "b")]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (REFUSED, REFUSED),
        (errors.LevelTooLow(5, 4), errors.LevelTooLow(5, 4)),
        (ABORTED, errors.NotDecided("src")),
    ],
)
def test_refused_share_aborts_the_transaction_everywhere(answer: Any, outcome: Any) -> None:
    """TXN-2: the coordinator is told first, though it was asked nothing."""
    lone, (one, other) = preparing()
    lone.answer(one, answer)
    assert lone.events == [Finished(9, outcome)]
    assert commands(lone) == [abort("a"), abort("b"), abort("c")]
    assert lone.answer(other, PREPARED).outputs == []


def test_unanswered_prepare_aborts_the_transaction() -> None:
    lone, (one, _) = preparing()
    lone.answer(one, PREPARED)
    outputs = lone.wait(PREPARE_WITHIN + 0.1)
    assert outputs.events == [Finished(9, errors.NotDecided("src"))]
    assert [each for each in commands(outputs) if not each.commit] == [
        abort("a"), abort("b"), abort("c"),
    ]  # fmt: skip


def test_refused_decision_aborts_the_transaction_everywhere() -> None:
    lone, decide = deciding()
    lone.answer(decide, REFUSED)
    assert lone.events == [Finished(9, REFUSED)]
    assert commands(lone) == [abort("a"), abort("b"), abort("c")]


def test_decision_is_repeated_until_it_is_answered() -> None:
    """TXN-2: a participant is told nothing while the outcome is unknown."""
    lone, decide = deciding()
    sent = calls_of(lone.wait(3600.0))
    assert sent[:2] == [decide, decide]
    assert {each.command for each in sent} == {DECIDE}


def test_unknown_decision_is_left_to_the_leaders() -> None:
    """TXN-2: the client must not abort what may be committed."""
    lone, decide = deciding()
    assert lone.wait(1.0).sent[0] == decide
    lone.answer(decide, errors.Denied())
    assert lone.events == [Finished(9, NoAnswer(float("inf"), denied=True))]
    assert lone.sent == []


def test_denied_resolve_is_left_to_the_leader() -> None:
    lone, decide = deciding()
    one, other = calls_of(lone.answer(decide, ended("a")))
    lone.answer(one, errors.Denied())
    done = TransactionEnded(True, (range_of("a"), range_of("c")), already=False)
    assert lone.answer(other, ended("c")).events == [Finished(9, done)]


def test_fenced_share_refuses_later_transactions_of_its_tag() -> None:
    lone, (one, _) = preparing()
    lone.answer(one, errors.Fenced(8))
    assert lone.events == [Finished(9, errors.Fenced(8))]
    assert lone.ask(Begin(30, "src", "b")).events == [Finished(30, errors.Fenced(8))]
    assert isinstance(lone.ask(Begin(31, "src", "c")).events[0], Begun)


def test_numbers_are_finished_once_the_transaction_has_ended() -> None:
    """TXN-2: the node may then forget the results."""
    lone, decide = deciding()
    one, other = calls_of(lone.answer(decide, ended("a")))
    lone.answer(one, ended("b"))
    lone.answer(other, ended("c"))
    for ticket, tag in enumerate(TAGS, 40):
        lone.ask(Begin(ticket, "src", tag))
    shares = (share("a", 1), share("b", 1), share("c", 1))
    finished = [each.finished for each in commands(lone.ask(EndAll(50, shares)))]
    assert finished == [1, 1]
