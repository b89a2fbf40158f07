"""Test the exact effects of transactions in a session (TXN-1)."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.client.session.local import (
    Begin,
    Begun,
    End,
    Finish,
    Finished,
    Given,
    Handle,
    Lost,
    NoAnswer,
)
from oncecast.client.session.transacting import IDLE
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import Call, Elsewhere
from oncecast.wire.results import Settled, SourceClosed, SourceOpened, TransactionEnded
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import UNFINISHED_MAX, EndTransaction
from tests.client.session.lone import NODE, Lone
from tests.client.session.test_working import HERE, LEASE, holding, settled

DONE = TransactionEnded(True, (), already=False)


def begin(ticket: int = 1, source: str = "src", topic: str = "t") -> Begin:
    return Begin(ticket, source, topic, 10.0)


def opened(epoch: int = 5, *, ring: bool = False, topic: str = "t", **options: Any) -> Lone:
    """Return a session whose first transaction has the ticket 1 and the number 0."""
    lone = Lone(**options).start().ask(begin(topic=topic))
    return lone.answer(lone.call, SourceOpened(epoch, ring))


def end(number: int = 0, epoch: int = 5, topic: str = "t", source: str = "src") -> EndTransaction:
    return EndTransaction(source, topic, epoch, number, 0, 0)


def ended(lone: Lone, ticket: int, number: int) -> Call:
    return lone.ask(End(ticket, end(number))).call


# -- open --


def test_first_transaction_opens_its_source() -> None:
    lone = Lone().start().ask(begin())
    open_source = do.OpenSource("src", "inc", "t", 0, expected=0)
    assert lone.call.command == open_source
    lone.answer(lone.call, SourceOpened(5))
    assert lone.events == [Begun(1, 5, 0, "t", "")]
    assert lone.ask(begin(2)).events == [Begun(2, 5, 1, "t", "")]


def test_open_takes_over_from_an_older_process() -> None:
    lone = Lone().start().ask(begin())
    lone.answer(lone.call, errors.Fenced(3))
    assert lone.call.command == do.OpenSource("src", "inc", "t", 0, expected=3)
    assert lone.answer(lone.call, SourceOpened(5)).events == [Begun(1, 5, 0, "t", "")]


def test_transactions_wait_for_one_open() -> None:
    lone = Lone().start().ask(begin())
    call = lone.call
    assert lone.ask(begin(2)).outputs == []
    lone.answer(call, SourceOpened(5))
    assert lone.events == [Begun(1, 5, 0, "t", ""), Begun(2, 5, 1, "t", "")]


def test_refused_open_refuses_all_waiting_transactions() -> None:
    lone = Lone().start().ask(begin())
    call = lone.call
    lone.ask(begin(2))
    low = errors.LevelTooLow(3, 2)
    assert lone.answer(call, low).events == [Finished(1, low), Finished(2, low)]
    assert isinstance(lone.ask(begin(3)).call.command, do.OpenSource)
    assert lone.wait(10.0).events == [Finished(3, NoAnswer(10.0))]


def test_each_source_has_its_own_numbers() -> None:
    lone = opened().ask(begin(2, "other"))
    assert lone.call.command == do.OpenSource("other", "inc", "t", 0, expected=0)
    assert lone.answer(lone.call, SourceOpened(6)).events == [Begun(2, 6, 0, "t", "")]


def test_source_outside_a_ring_serves_all_topics() -> None:
    assert opened().ask(begin(2, topic="{a}.u")).events == [Begun(2, 5, 1, "t", "")]


def test_source_on_a_ring_is_opened_for_each_tag() -> None:
    lone = opened(ring=True, topic="{a}.t")
    assert lone.events == [Begun(1, 5, 0, "a", "a")]
    assert lone.ask(begin(2, topic="{a}.u")).events == [Begun(2, 5, 1, "a", "a")]
    lone.ask(begin(3, topic="b"))
    assert lone.call.command == do.OpenSource("src", "inc", "b", 0, expected=0)
    call = lone.call
    lone.ask(begin(4, topic="{a}.u"))
    lone.answer(call, SourceOpened(7, True))
    assert lone.events == [Begun(3, 7, 0, "b", "b"), Begun(4, 5, 2, "a", "a")]


# -- end --


def test_commit_is_repeated_until_it_is_answered() -> None:
    """TXN-1: the outcome is known, however long it takes."""
    lone = opened()
    call = ended(lone, 9, 0)
    assert call.command == end(0)
    assert lone.wait(3600.0).sent[:2] == [call, call]
    assert lone.hear(Elsewhere("", (NODE,))).events == []
    assert lone.down().sent == [call]
    assert lone.answer(call, DONE).events == [Finished(9, DONE)]
    assert lone.wait(60.0).sent == []


def test_node_learns_which_results_have_arrived() -> None:
    lone = opened()
    for ticket in (2, 3, 4):
        lone.ask(begin(ticket))
    calls = [ended(lone, ticket, ticket) for ticket in (1, 2)]
    assert [call.command.finished for call in calls] == [0, 0]  # type: ignore[union-attr]
    lone.answer(calls[0], DONE)
    command = ended(lone, 3, 3).command
    assert isinstance(command, EndTransaction)
    assert command.finished == 0
    lone.answer(ended(lone, 4, 0), DONE)
    lone.ask(begin(5))
    command = ended(lone, 5, 4).command
    assert isinstance(command, EndTransaction)
    assert command.finished == 2


def test_number_of_unfinished_transactions_is_limited() -> None:
    lone = opened()
    for ticket in range(2, UNFINISHED_MAX + 1):
        assert len(lone.ask(begin(ticket)).events) == 1
    assert lone.ask(begin(1000)).outputs == []
    call = ended(lone, 9, 0)
    lone.answer(call, errors.NotStaged("src", 0, "a"))
    assert lone.events == [
        Finished(9, errors.NotStaged("src", 0, "a")),
        Begun(1000, 5, UNFINISHED_MAX, "t", ""),
    ]


def test_fenced_source_refuses_all_later_transactions() -> None:
    lone = opened().ask(begin(2))
    first, second = ended(lone, 8, 0), ended(lone, 9, 1)
    fenced = errors.Fenced(6)
    assert lone.answer(first, fenced).events == [Finished(8, fenced)]
    assert lone.ask(begin(3)).events == [Finished(3, fenced)]
    assert lone.answer(second, DONE).events == [Finished(9, DONE)]


def test_deleted_source_is_opened_again() -> None:
    lone = opened()
    gone = errors.Fenced(0)
    assert lone.answer(ended(lone, 9, 0), gone).events == [Finished(9, gone)]
    lone.ask(begin(2))
    assert lone.call.command == do.OpenSource("src", "inc", "t", 0, expected=0)
    lone.answer(lone.call, SourceOpened(8))
    assert lone.events == [Begun(2, 8, 0, "t", "")]
    assert lone.ask(End(3, end(0))).events == [Finished(3, gone)]


def test_idle_source_is_opened_again_before_its_record_expires() -> None:
    """TXN-1: it is not taken over from another process."""
    lone = opened()
    lone.answer(ended(lone, 9, 0), DONE)
    lone.wait(IDLE - 0.1)
    assert lone.ask(begin(2)).events == [Begun(2, 5, 1, "t", "")]
    lone.answer(ended(lone, 9, 1), DONE)
    lone.wait(IDLE).ask(begin(3))
    assert lone.call.command == do.OpenSource("src", "inc", "t", 0, expected=5)
    assert lone.answer(lone.call, SourceOpened(5)).events == [Begun(3, 5, 2, "t", "")]
    lone.answer(ended(lone, 9, 2), DONE)
    lone.wait(IDLE).ask(begin(4))
    assert lone.answer(lone.call, errors.Fenced(7)).events == [Finished(4, errors.Fenced(7))]


def test_expired_source_is_opened_as_a_new_one() -> None:
    lone = opened()
    lone.answer(ended(lone, 9, 0), DONE)
    lone.wait(IDLE).ask(begin(2))
    lone.answer(lone.call, errors.Fenced(0))
    assert lone.call.command == do.OpenSource("src", "inc", "t", 0, expected=0)
    assert lone.answer(lone.call, SourceOpened(9)).events == [Begun(2, 9, 0, "t", "")]


def test_open_transaction_keeps_its_source() -> None:
    lone = opened().wait(2 * IDLE)
    assert lone.ask(begin(2)).events == [Begun(2, 5, 1, "t", "")]


def test_temporary_client_closes_the_sources_with_its_name() -> None:
    lone = opened().ask(begin(2, "p.transactions"))
    lone.answer(lone.call, SourceOpened(6))
    command = lone.ask(Finish(3, forget=True)).call.command
    assert isinstance(command, do.CloseSource)
    assert (command.source, command.topic, command.renew) == ("p.transactions", "t", True)
    assert lone.answer(lone.call, SourceClosed(already=False)).events != []
    assert opened().ask(Finish(3, forget=False)).sent == []


# -- workers --


def test_job_of_a_transaction_is_no_longer_held() -> None:
    """TXN-1: its lease is not renewed, and nothing is settled."""
    lone = holding(b"a", b"b").ask(Handle(*HERE, transacted=((7, 0),)))
    assert lone.outputs == []
    lone.wait(LEASE / 1e6 / 3)
    assert settled(lone).renew == ((7, 1, 1),)


@pytest.mark.parametrize("stale", [((7, 0, 2),), ((7, 0, 1), (7, 1, 1))])
def test_renewal_that_crosses_a_commit_is_not_a_lost_lease(
    stale: tuple[tuple[int, int, int], ...],
) -> None:
    """TXN-1: the node has ended the lease with the transaction."""
    lone = holding(b"a", b"b").wait(LEASE / 1e6 / 3)
    call = lone.call
    assert isinstance(call.command, Settle)
    assert call.command.renew == ((7, 0, 2),)
    lone.ask(Handle(*HERE, transacted=((7, 0),)))
    assert lone.answer(call, Settled(0, stale)).events == [Lost(*HERE, ((7, 1),))]
    lone.ask(Handle(*HERE, accept=((7, 0),)))
    assert lone.events == [Lost(*HERE, ((7, 0),))]


def test_jobs_name_their_worker() -> None:
    (event,) = holding(b"a").events
    assert isinstance(event, Given)
    assert event.worker == "inc.w1"
