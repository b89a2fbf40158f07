"""Check that removing any rule of a client's transactions makes a test fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from oncecast.client.jobs import SharedSubscription
from oncecast.client.session.client import ClientSession
from oncecast.client.session.reading import Reader
from oncecast.client.session.transacting import Transactions
from oncecast.client.session.working import Worker
from oncecast.client.subscription import Subscription
from oncecast.client.transactions import Inputs, Transaction
from tests.client import test_transactions as client
from tests.client.session import test_client_reading as reading
from tests.client.session import test_transacting as session
from tests.mutants import Detector, Mutant, assert_detected, exact, replaced

Test = Callable[..., None]

SESSION: dict[str, tuple[Test, Any, str, str, str]] = {
    "each transaction opens its source": (
        session.test_first_transaction_opens_its_source,
        Transactions, "begin", "if source is None:", "if True:",
    ),
    "two transactions open a source at once": (
        session.test_transactions_wait_for_one_open,
        Transactions, "begin", "if begin.source in self._opening:", "if False:",
    ),
    "a refused open leaves transactions waiting": (
        session.test_refused_open_refuses_all_waiting_transactions,
        Transactions, "_open", "self._finish(each.ticket, outcome)",
        "self._finish(waiting[0].ticket, outcome)",
    ),
    "a source on a ring serves all tags": (
        session.test_source_on_a_ring_is_opened_for_each_tag,
        Transactions, "_opened", "ring=opened.ring", "ring=False",
    ),
    "a commit is sent once": (
        session.test_commit_is_repeated_until_it_is_answered,
        Transactions, "end", "lambda outcome: self._ended(source, end.ticket, command, outcome),",
        "lambda outcome: self._ended(source, end.ticket, command, outcome), 1.0,",
    ),
    "unfinished transactions are not limited": (
        session.test_number_of_unfinished_transactions_is_limited,
        Transactions, "_number", "source.next - source.finished >= UNFINISHED_MAX", "False",
    ),
    "waiting transactions never begin": (
        session.test_number_of_unfinished_transactions_is_limited,
        Transactions, "_go_on", "self.begin(begin)", "pass",
    ),
    "a fenced source begins transactions": (
        session.test_fenced_source_refuses_all_later_transactions,
        Transactions, "_fence", "source.fenced = fenced", "pass",
    ),
    "a deleted source stays fenced": (
        session.test_deleted_source_is_opened_again,
        Transactions, "_fence", "if not fenced.epoch:", "if False:",
    ),
    "an idle source is not opened again": (
        session.test_idle_source_is_opened_again_before_its_record_expires,
        Transactions, "_is_idle", "return self._host.now >= source.used + IDLE", "return False",
    ),
    "an idle source is taken over from another process": (
        session.test_idle_source_is_opened_again_before_its_record_expires,
        Transactions, "_open", "expected = 0 if known is None else known.epoch", "expected = -1",
    ),
    "numbers start again after a repeated open": (
        session.test_idle_source_is_opened_again_before_its_record_expires,
        Transactions, "_opened", "known is None or known.epoch != opened.epoch", "True",
    ),
    "a temporary client leaves its sources": (
        session.test_temporary_client_closes_the_sources_with_its_name,
        ClientSession, "_finish", "commands += self._transactions", "self._transactions",
    ),
    "a temporary client closes all its sources": (
        session.test_temporary_client_closes_the_sources_with_its_name,
        Transactions, "closes", "each.name.startswith(prefix)", "True",
    ),
    "a job of a transaction is renewed": (
        session.test_job_of_a_transaction_is_no_longer_held,
        Worker, "handle", "for token, offset in handle.transacted:", "for token, offset in ():",
    ),
    "a renewal that crosses a commit is a lost lease": (
        session.test_renewal_that_crosses_a_commit_is_not_a_lost_lease,
        Worker, "_settled", ", *self._transacted", "",
    ),
    "the epoch of a reader is unknown": (
        reading.test_reading_starts_at_the_cursor,
        Reader, "_position", "offset, end, self.epoch", "offset, end",
    ),
}  # fmt: skip


def redelivered_after_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client.test_message_of_a_commit_with_an_unknown_outcome_is_not_delivered_again(
        tmp_path, monkeypatch, client.ALREADY
    )


CLIENT: dict[str, tuple[Test, Any, str, str, str]] = {
    "an exception commits": (
        client.test_exception_aborts_and_redelivers,
        Transaction, "__aexit__", "if error is not None:", "if False:",
    ),
    "an abort keeps the messages": (
        client.test_exception_aborts_and_redelivers,
        Inputs, "give_back", "subscription.give_back(found.epoch, found.first)", "pass",
    ),
    "an abort keeps the jobs": (
        client.test_job_is_settled_by_its_transaction,
        Inputs, "give_back", "owner.give_back(jobs, error, tolerant=self.held)", "pass",
    ),
    "a committed job stays started": (
        client.test_job_is_settled_by_its_transaction,
        SharedSubscription, "transacted", "Stage.SETTLED, False", "Stage.STARTED, False",
    ),
    "a claimed job can be settled": (
        client.test_job_is_settled_by_its_transaction,
        SharedSubscription, "claim", "job._stage = Stage.CLAIMED", "pass",
    ),
    "messages of a transaction are taken twice": (
        client.test_wrong_acknowledgements_are_refused,
        Subscription, "claim", "if self._claimer is not claimer:", "if False:",
    ),
    "automatic acknowledgements are accepted": (
        client.test_wrong_acknowledgements_are_refused,
        Subscription, "claim", "if self.auto_ack:", "if False:",
    ),
    "acknowledged messages are accepted": (
        client.test_wrong_acknowledgements_are_refused,
        Subscription, "claim", "not inbox.ack <= message.offset < inbox.delivered", "False",
    ),
    "a cancelled commit is not sent": (
        client.test_cancelled_commit_still_ends,
        Transaction, "__aexit__", "await asyncio.shield(self._owner.run(self._commit()))",
        "await self._commit()",
    ),
    "a large transaction is not staged": (
        client.test_limits_name_the_value_the_limit_and_the_remedy,
        Transaction, "put", "self._stage_all()", "pass",
    ),
    "messages of a commit in doubt are redelivered": (
        redelivered_after_doubt,
        Subscription, "resolve", "if cursor > first:", "if False:",
    ),
    "messages of a commit in doubt are acknowledged": (
        client.test_message_is_delivered_again_if_the_commit_was_not_executed,
        Subscription, "resolve", "if cursor > first:", "if True:",
    ),
    "staged parts are left out": (
        client.test_large_transaction_is_staged,
        Transaction, "_shares", "tuple(sorted(self._parts.get(\"\", ())))", "()",
    ),
}  # fmt: skip


def renewals(seed: int) -> None:
    session.test_renewal_that_crosses_a_commit_is_not_a_lost_lease(((7, 0, 2),))


def detector(test: Test) -> Detector:
    if test is session.test_renewal_that_crosses_a_commit_is_not_a_lost_lease:
        return renewals
    if "monkeypatch" in inspect.signature(test).parameters:
        return partial(patched, test)
    return exact(test)


def patched(test: Test, seed: int) -> None:
    with TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        test(Path(path), patch)


MUTANTS = [
    Mutant(rule, replaced(*change), detector(test), 1)
    for rule, (test, *change) in (SESSION | CLIENT).items()
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_transaction_mutant_of_the_client_is_detected(mutant: Mutant) -> None:
    """TXN-1"""
    assert_detected(mutant)
