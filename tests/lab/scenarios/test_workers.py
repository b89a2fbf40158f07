"""Workers in storms: see `scenarios.workers`."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.queue import Queue
from oncecast.broker.sharing import Sharing
from oncecast.client.session.settling import Settlements
from oncecast.client.session.working import Incoming, Worker, Works
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.workers import WORKERS, WorkersDraw, draw
from oncecast.lab.scenarios.workers_operator import Act
from tests.mutants import Mutant, Plant, assert_detected, replaced
from tests.seeds import seeds

PER_TEST = 10
REVIVED = (141, 170, 197, 202)  # seeds in which a late request revives a worker
# Seeds in which a late request revives a worker of an earlier process.
REVIVED_EARLIER = (786, 816, 1107, 6000458)
WRONG_CLOCKS = (397, 1179)  # seeds in which the clock of an idle group is behind
# `oncecast sim run workers` runs any number of seeds.


def storm(seed: int) -> None:
    outcome = run(WORKERS, seed)
    assert outcome.ok, f"{outcome.violation}\nreplay: {outcome.replay}"


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(20, 400, PER_TEST))
def test_workers_in_a_storm_settle_each_message_once(first: int) -> None:
    """WRK-1 WRK-2 WRK-3 WRK-4"""
    for seed in range(first, first + PER_TEST):
        storm(seed)


def test_each_seed_draws_different_workers() -> None:
    draws: list[WorkersDraw] = [draw(seed, WORKERS.nodes) for seed in range(100)]
    assert {each.workers for each in draws} == {1, 2, 3, 4, 5}
    assert {each.shared.deliveries_max for each in draws} == {0, 1, 2, 3, 10}
    assert {each.shared.by_key for each in draws} == {False, True}
    assert {act for each in draws for act in each.acts} == set(Act)
    assert {bool(each.withdraws) for each in draws} == {False, True}
    assert {each.wall > 0 for each in draws} == {False, True}


@pytest.mark.long
def test_workers_revived_by_late_requests_hold_up_no_jobs() -> None:
    """WRK-1: permissions are withdrawn and added again while a request is on its way."""
    for seed in REVIVED:
        storm(seed)


@pytest.mark.long
def test_workers_of_earlier_processes_hold_up_no_jobs() -> None:
    """WRK-1"""
    for seed in REVIVED_EARLIER:
        storm(seed)


@pytest.mark.long
def test_leases_of_an_idle_group_end_although_its_clock_is_behind() -> None:
    """WRK-1 WRK-5"""
    for seed in WRONG_CLOCKS:
        storm(seed)


@pytest.mark.long
def test_late_copy_of_a_deletion_keeps_the_dead_letters() -> None:
    """WRK-2"""
    storm(795)


@pytest.mark.long
def test_workers_started_before_and_after_a_removal_agree_on_the_settings() -> None:
    """WRK-1"""
    storm(164)


@pytest.mark.long
def test_dead_letters_are_stored_after_a_storm_that_fills_the_topics() -> None:
    """WRK-4: a command in flight creates a topic after the storm."""
    storm(6000316)


@pytest.mark.long
def test_leases_of_default_length_end_after_a_storm() -> None:
    """WRK-1: the subscription was removed, and created again without settings."""
    storm(6000264)


@pytest.mark.long
def test_some_storms_refuse_old_tokens_and_bury_messages() -> None:
    figures = [run(WORKERS, seed).figures for seed in range(12)]
    assert sum(each["refused"] > 0 for each in figures) > 3
    assert sum(each["dead_letters"] > 0 for each in figures) > 3
    assert any(each["corrections"] > 0 for each in figures)


# Mutants: one rule removed at a time.


def any_token_settles(patch: pytest.MonkeyPatch) -> None:
    replaced(Queue, "_current", "grant.token == token and ", "")(patch)


def any_worker_settles(patch: pytest.MonkeyPatch) -> None:
    replaced(Queue, "_current", " and grant.worker == worker", "")(patch)


def copies_of_a_settlement_are_executed(patch: pytest.MonkeyPatch) -> None:
    replaced(Queue, "settle", "settle.number <= known.number", "False")(patch)


def deliveries_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    replaced(Queue, "take", "self.deliveries(offset) + 1", "self.deliveries(offset)")(patch)


def keys_do_not_block(patch: pytest.MonkeyPatch) -> None:
    replaced(Queue, "_take_by_key", "self._lines.add(offset, key)", "False")(patch)


def lease_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "ended", lambda self, now: False)
    patch.setattr(Queue, "expire", lambda self, now, first: None)


def leader_forgets_departed_workers(patch: pytest.MonkeyPatch) -> None:
    """Their messages stay leased, because no lease ends either."""
    lease_never_ends(patch)
    patch.setattr(Dispatcher, "_gone", lambda self, crew, queue: ())


def worker_accepts_duplicates(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Incoming, jobs: Any) -> bool:
        self.offsets.clear()
        return True

    patch.setattr(Incoming, "accept", accept)
    patch.setattr(Incoming, "is_gap", lambda self, jobs: False)
    replaced(Worker, "given", " or jobs.token <= incoming.seen", "")(patch)


def worker_misses_lost_frames(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Incoming, "is_gap", lambda self, jobs: False)
    patch.setattr(Queue, "expire", lambda self, now, first: None)


def worker_sends_settlements_without_waiting(patch: pytest.MonkeyPatch) -> None:
    replaced(Settlements, "flush", "self._in_flight is None and waiting", "waiting")(patch)
    replaced(Settlements, "_done", "assert settle is not None", "")(patch)


def revived_workers_keep_their_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Works, "_give_back", lambda self, jobs: None)


def corrected_clock_moves_no_deadlines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "shift", lambda self, by: None)


def changed_settings_are_ignored(patch: pytest.MonkeyPatch) -> None:
    replaced(Sharing, "_change", "queue.settings = settings", "pass")(patch)


def refused_dead_letter_writes_are_not_retried(patch: pytest.MonkeyPatch) -> None:
    replaced(Dispatcher, "_buried", "crew.burying = False", "pass")(patch)
    replaced(Dispatcher, "_tidy", "crew.burying = False", "pass")(patch)


def lost_leases_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "_lose", lambda self, leases: None)


@pytest.mark.mutants
@pytest.mark.parametrize(
    "plant",
    [
        any_token_settles,
        any_worker_settles,
        copies_of_a_settlement_are_executed,
        deliveries_are_not_counted,
        keys_do_not_block,
        lease_never_ends,
        leader_forgets_departed_workers,
        worker_accepts_duplicates,
        worker_misses_lost_frames,
        worker_sends_settlements_without_waiting,
        lost_leases_are_not_reported,
        revived_workers_keep_their_messages,
        corrected_clock_moves_no_deadlines,
        changed_settings_are_ignored,
        refused_dead_letter_writes_are_not_retried,
    ],
)
def test_storm_detects_the_mutant(plant: Plant) -> None:
    known = REVIVED if plant is revived_workers_keep_their_messages else ()
    assert_detected(Mutant(plant.__name__.replace("_", " "), plant, storm, 60, known))
