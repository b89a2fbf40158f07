"""Remove one broadcast rule at a time, and check that a storm detects it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from oncecast.kernel.protocol import Emit, NodeId, Protocol, Value
from oncecast.lab.scenarios.broadcast import BROADCAST
from oncecast.lab.scenarios.scenario import run
from oncecast.overlay.events import Delivered, MessageId
from oncecast.overlay.recovery import Recovery
from oncecast.storage.gate import Gate
from tests.mutants import Mutant, Plant, assert_detected

pytestmark = pytest.mark.mutants

SEEDS = 100
MUTANTS: list[Mutant] = []


def storm(seed: int) -> None:
    outcome = run(BROADCAST, seed)
    assert outcome.ok, outcome.violation


def mutant(plant: Plant) -> Plant:
    MUTANTS.append(Mutant(plant.__name__.replace("_", " "), plant, storm, SEEDS))
    return plant


@mutant
def outputs_released_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Release outputs that depend on an unsynced record."""
    patch.setattr(Gate, "opens", lambda self, output, synced: True)


@mutant
def deliveries_do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Mark deliveries as independent of any record."""

    def emit(self: Protocol, event: Value, after: int = -1) -> None:
        after = 0 if isinstance(event, Delivered) else self.after
        self._effects.append(Emit(event, after))

    patch.setattr(Recovery, "emit", emit)


@mutant
def publish_requests_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "request", lambda self, request: None)


@mutant
def records_are_never_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "append", lambda self, record: 0)


@mutant
def nodes_never_compare_their_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "start", lambda self: None)


@mutant
def duplicate_messages_are_accepted(patch: pytest.MonkeyPatch) -> None:
    """Accept messages without checking for duplicates."""

    def take(self: Recovery, key: MessageId, payload: bytes) -> bool:
        self._store(key, payload)
        return True

    patch.setattr(Recovery, "_take", take)


@mutant
def message_numbers_repeat_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Let a node without a disk publish under its name alone."""
    init = Recovery.__init__

    def nameless(
        self: Recovery, me: NodeId, rng: Random, *, incarnation: str = "", **more: Any
    ) -> None:
        init(self, me, rng, **more)

    patch.setattr(Recovery, "__init__", nameless)


@mutant
def payloads_are_damaged(patch: pytest.MonkeyPatch) -> None:
    store = Recovery._store

    def damaged(self: Recovery, key: MessageId, payload: bytes) -> None:
        store(self, key, payload if key.number != 3 else payload[:-1])

    patch.setattr(Recovery, "_store", damaged)


@mutant
def snapshots_omit_messages(patch: pytest.MonkeyPatch) -> None:
    """Omit the messages from one origin in a snapshot."""
    restore = Recovery.restore

    def forgetful(self: Recovery, record: Value) -> None:
        restore(self, record)  # type: ignore[arg-type]
        if type(record).__name__ == "Archive":
            for key in [key for key in self.held if key.origin == NodeId("n1")]:
                del self.kept.by_id[key]

    patch.setattr(Recovery, "restore", forgetful)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_storms_detect_a_missing_rule(mutant: Mutant) -> None:
    """NET-1 NET-3"""
    assert_detected(mutant)
