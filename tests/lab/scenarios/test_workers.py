"""Workers in storms: see `scenarios.workers`."""

from __future__ import annotations

from typing import Any

import pytest

from oncecast.broker.dispatching import Dispatcher
from oncecast.broker.queue import Queue
from oncecast.client.session.settling import Settlements
from oncecast.client.session.working import Incoming, Worker
from oncecast.lab.scenarios.scenario import run
from oncecast.lab.scenarios.workers import WORKERS, WorkersDraw, draw
from tests.mutants import Mutant, Plant, assert_detected, replaced
from tests.seeds import seeds

PER_TEST = 10
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


@pytest.mark.long
def test_some_storms_refuse_old_tokens_and_bury_messages() -> None:
    figures = [run(WORKERS, seed).figures for seed in range(12)]
    assert sum(each["refused"] > 0 for each in figures) > 3
    assert sum(each["dead_letters"] > 0 for each in figures) > 3


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
    replaced(Queue, "_take_by_key", "len(line) > 1", "False")(patch)


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
    ],
)
def test_storm_detects_the_mutant(plant: Plant) -> None:
    assert_detected(Mutant(plant.__name__.replace("_", " "), plant, storm, 60))
