"""Check that removing any client library rule makes a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.client.portal import Gathering
from oncecast.client.putting import Putting
from oncecast.client.session.inbox import Inbox
from oncecast.client.subscription import Subscription
from oncecast.streams import persistent
from tests.client import test_acknowledging as acknowledging
from tests.client import test_unpackable as unpackable
from tests.live import test_streams as streams
from tests.mutants import Mutant, assert_detected, exact, replaced

pytestmark = pytest.mark.mutants

RULES: dict[str, tuple[Callable[..., None], Any, str, str, str]] = {
    "a failed build is not reported": (
        unpackable.test_flush_raises_if_a_batch_cannot_be_built,
        Putting, "_cut", "self._refused(parcel, OncecastError(message))", "pass",
    ),
    "only some errors in gathered puts are reported": (
        unpackable.test_flush_raises_errors_from_the_headers_of_a_queued_message,
        Putting, "put_gathered", "except Exception as", "except (TypeError, ValueError) as",
    ),
    "a message is acknowledged while it is processed": (
        acknowledging.test_message_being_processed_is_not_acknowledged,
        Subscription, "_ask", "self._slow = NEVER", "pass",
    ),
    "an acknowledged message is delivered again": (
        acknowledging.test_late_nack_raises_an_error_with_a_remedy,
        Inbox, "back", "if offset < acked and self.auto_ack:", "if False:",
    ),
    "a killed persistent reader leaves subscriptions behind": (
        streams.test_persistent_reader_takes_over_from_a_killed_reader,
        persistent, "reader_name",
        "if client.parts.options.durable_name else platform.node()", "",
    ),
    "a persistent reader continues at a killed reader's cursor": (
        streams.test_persistent_reader_takes_over_from_a_killed_reader,
        persistent.PersistentReader, "_feed", "await subscription.seek(EARLIEST)", "pass",
    ),
    "an idle consumer acknowledges nothing": (
        acknowledging.test_empty_get_acknowledges_earlier_messages,
        Subscription, "_ask", "self._inbox.acknowledge_all()", "pass",
    ),
    "puts are accepted after the close": (
        unpackable.test_put_nowait_during_a_close_raises,
        Gathering, "put", "if self._closed:", "if False:",
    ),
}  # fmt: skip


MUTANTS = [
    Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in RULES.items()
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_library_mutant_is_detected(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-7"""
    assert_detected(mutant)
