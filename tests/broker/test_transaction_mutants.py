"""Check that removing any rule of transactions makes a random run or a test fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oncecast.broker import contents, gateway, publishing, service, sizes, state
from oncecast.broker.contents import Contents
from oncecast.broker.guard import Guard
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.publishing import Publishing
from oncecast.broker.queue import Queue
from oncecast.broker.registry import Registry
from oncecast.broker.service import Service
from oncecast.broker.staging import Opening, Staging
from oncecast.broker.transacting import Transacting
from tests.broker import test_machine_transactions as machine
from tests.broker import test_needs as needs
from tests.broker import test_sizes as limits
from tests.broker import test_transactions_on_node as node
from tests.broker.transaction_pair import transaction_run
from tests.mutants import Mutant, assert_detected, exact, replaced

SEEDS = 100

# Random commands must detect these.
RULES: dict[str, tuple[Any, str, str, str]] = {
    "a commit ignores its epoch": (
        Transacting, "end", "command.epoch != opening.epoch", "False",
    ),
    "a part ignores its epoch": (
        publishing, "epoch_fault", "command.epoch != opened", "False",
    ),
    "an open ignores the expected epoch": (
        Transacting, "open", "command.expected not in (ANY_EPOCH, current)", "False",
    ),
    "a repeated open is a new process": (
        Transacting, "open", "opening.incarnation != command.incarnation", "True",
    ),
    "parts of the older process stay": (
        Staging, "open", "self.drop(key, number)", "pass",
    ),
    "the outcome of the older process is forgotten": (
        Staging, "open", "if before is not None:", "if False:",
    ),
    "a copy commits again": (Transacting, "end", "if known is not None:", "if False:"),
    "a refusal is not kept": (
        Transacting, "end",
        "opening.results[command.epoch, command.number] = result",
        "opening.results |= ({(command.epoch, command.number): result} "
        "if isinstance(result, TransactionEnded) else {})",
    ),
    "an aborted transaction can commit": (
        Transacting, "end",
        "opening.results[command.epoch, command.number] = result",
        "opening.results |= ({(command.epoch, command.number): result} if command.commit else {})",
    ),
    "an abort commits": (Transacting, "end", "if command.commit else ABORTED", ""),
    "a copy of a finished commit is executed": (
        Transacting, "end", "command.number < opening.finished", "False",
    ),
    "finished results stay": (Opening, "finish", "del self.results[epoch, number]", "pass"),
    "finished parts stay": (
        Transacting, "_finish", "self._registry.staging.drop(key, number)", "pass",
    ),
    "an older command reopens finished numbers": (
        Opening, "finish", "max(self.finished, before)", "before",
    ),
    "a late part of an ended transaction stays": (
        publishing, "known_part", "late = source.opening.has_ended(command.number)", "late = False",
    ),
    "parts that are not named stay": (
        Transacting, "end", "registry.staging.drop(key, command.number)", "pass",
    ),
    "missing parts are left out": (
        Contents, "check", "return NotStaged(command.source, command.number, name)",
        "return Checked([], [], [])",
    ),
    "the epoch of a reader is ignored": (
        contents, "unread", "consumed.epoch != subscription.epoch", "False",
    ),
    "a message is consumed twice": (
        contents, "unread", "consumed.first < subscription.cursor", "False",
    ),
    "messages beyond the end are acknowledged": (
        contents, "unread", "consumed.upto > topic.index.next", "False",
    ),
    "a lost lease is ignored": (Contents, "_input", "if offset is not None:", "if False:"),
    "a stale job is skipped": (Queue, "stale", "if stale else None", "if len(stale) > 1 else None"),
    "a stale message does not abort": (
        Contents, "check", "return found", "continue",
    ),
    "readers are not acknowledged": (
        Contents, "acknowledge", "subscription.acknowledge(consumed.upto)", "pass",
    ),
    "jobs are not acknowledged": (Queue, "accept", "self.close(offset)", "pass"),
    "the cursor of a shared subscription stays": (
        Contents, "acknowledge", "self._sharing.advance(", "id if True else (",
    ),
    "batches precede staged parts": (
        Contents, "check",
        "[*(staged[name] for name in command.parts), *outputs]",
        "[*outputs, *(staged[name] for name in command.parts)]",
    ),
    "a snapshot lacks the results": (
        state, "_read", "opening.results[row.epoch, row.number] = row.result", "pass",
    ),
    "a snapshot lacks the finished number": (
        state, "_read", "opening.finished = row.finished", "pass",
    ),
    "a snapshot lacks the incarnation": (
        state, "_read", "Opening(row.epoch, row.incarnation)", 'Opening(row.epoch, "")',
    ),
}  # fmt: skip

# Rules that these commands rarely or never need: their own tests must fail.
EXACT: dict[str, tuple[Callable[[], None], Any, str, str, str]] = {
    "an open source accepts plain parts": (
        machine.test_open_source_refuses_commands_without_an_epoch,
        publishing, "run_fault", "source is not None and source.opened", "False",
    ),
    "an open source loses parts to a plain drop": (
        machine.test_open_source_refuses_commands_without_an_epoch,
        Publishing, "drop", "or source.opened", "",
    ),
    "a source with an epoch counts as idle": (
        machine.test_refused_commit_drops_its_parts_and_keeps_the_epoch,
        Staging, "drop", "known.idle", "known.published < 0 and not known.staged",
    ),
    "a slot is needed by one topic only": (
        machine.test_slot_is_needed_until_each_topic_has_dropped_its_messages,
        Transacting, "_commit", "for _ in checked.outputs:", "for _ in checked.outputs[:1]:",
    ),
    "a slot is dropped with its first topic": (
        machine.test_slot_is_needed_until_each_topic_has_dropped_its_messages,
        LiveSlots, "drop", "alive[at] = 0", "alive[at:] = bytes(len(alive) - at)",
    ),
    "topics with other tags are accepted on a ring": (
        machine.test_topics_with_other_tags_are_refused_on_a_ring,
        Contents, "_refusal_of_outputs", "tag_of(name) != tag_of(command.topic)", "False",
    ),
    "a source has one record per topic of a ring": (
        machine.test_source_has_one_record_per_tag_on_a_ring,
        Registry, "transaction_key", "tag_of(topic)", "topic",
    ),
    "a part belongs to the record of its topic": (
        machine.test_source_has_one_record_per_tag_on_a_ring,
        Registry, "stage_key", "if stage.epoch:", "if False:",
    ),
    "a deleted source keeps its producers on a ring": (
        machine.test_source_has_one_record_per_tag_on_a_ring,
        Registry, "delete_source", "if known.opening is not None:", "if False:",
    ),
    "the lowest batch of a slot is read for each topic": (
        node.test_readers_get_the_messages_of_their_topic_only,
        service.RecentBatches, "get", "self._sources.get((slot, topic))",
        "next((each for key, each in self._sources.items() if key[0] == slot), None)",
    ),
    "a slot of the log has one batch": (
        node.test_restarted_node_reads_the_messages_from_its_log,
        service, "carried", "if each.topic == topic)", "if each is command.outputs[0])",
    ),
    "workers do not learn of settled jobs": (
        node.test_worker_gets_more_jobs_after_a_transaction,
        Service, "_tell_ended", "self.emit(SharedChanged(accepted.topic))", "pass",
    ),
    "workers do not learn of new jobs": (
        node.test_worker_gets_jobs_that_a_transaction_puts,
        Service, "_tell_ended", "self._tell_changed(found.topic)", "pass",
    ),
    "batches of a transaction are not checked": (
        node.test_damaged_batch_is_refused,
        gateway.Gateway, "_refusal",
        "for each in command.outputs if isinstance(command, EndTransaction) else (command,):",
        "for each in () if isinstance(command, EndTransaction) else (command,):",
    ),
    "the size of a transaction is not limited": (
        node.test_transaction_is_as_large_as_a_batch_may_be,
        gateway, "size_of", "sum([len(each.batch) for each in command.outputs])", "1",
    ),
    "a full disk refuses acknowledgements": (
        node.test_full_disk_refuses_messages_but_no_acknowledgements,
        gateway.Gateway, "_refusal", "if size and self.disk_is_full:", "if self.disk_is_full:",
    ),
    "put is not needed for a transaction": (
        needs.test_transaction_needs_put_and_ack_for_everything_that_it_names,
        Guard, "_may_publish", "topics += [each.topic for each in command.outputs]", "pass",
    ),
    "ack is not needed for a transaction": (
        needs.test_transaction_needs_put_and_ack_for_everything_that_it_names,
        Guard, "_may_publish", "for each in command.inputs:", "for each in ():",
    ),
    "the limits of a transaction are not checked": (
        limits.test_transaction_over_a_limit_is_refused_before_it_is_proposed,
        sizes, "transaction_fault", "if command.fault:", "if False:",
    ),
    "topics of staged parts need no permission": (
        needs.test_transaction_needs_put_and_ack_for_everything_that_it_names,
        Guard, "_may_publish", "topics = [*self._staged(command)]", "topics = []",
    ),
}  # fmt: skip

MUTANTS = [
    Mutant(rule, replaced(*change), transaction_run, SEEDS) for rule, change in RULES.items()
] + [Mutant(rule, replaced(*change), exact(test), 1) for rule, (test, *change) in EXACT.items()]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_transaction_mutant_is_detected(mutant: Mutant) -> None:
    """TXN-1"""
    assert_detected(mutant)
