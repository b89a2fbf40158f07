"""NET-1, NET-3, SVC-10: broadcast through a storm, and the mutants that its checkers must catch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oncecast.kernel.protocol import Emit, NodeId, Protocol, Value
from oncecast.overlay.events import Delivered, MessageId
from oncecast.overlay.recovery import Recovery
from oncecast.runtime.gate import Gate
from oncecast.scenarios.broadcast import BROADCAST
from oncecast.scenarios.scenario import run

pytestmark = pytest.mark.long

SEEDS = range(100)


@pytest.mark.parametrize("nodes", [2, 5, 9])
def test_every_message_ends_at_every_node_once(nodes: int) -> None:
    for seed in SEEDS if nodes == 5 else range(20):
        outcome = run(BROADCAST, seed, nodes)
        assert outcome.ok, f"{outcome.violation}\n{outcome.replay}"
        assert outcome.figures["messages"] > 0


def test_a_hundred_seeds_meet_every_kind_of_fault() -> None:
    """A storm that never strikes would prove nothing."""
    met: dict[str, int] = {}
    for seed in range(100):
        for kind, times in run(BROADCAST, seed).figures["strikes"].items():
            met[kind] = met.get(kind, 0) + times
    assert len(met) == 12
    assert min(met.values()) >= 20


Mutant = Callable[[pytest.MonkeyPatch], None]


def told_before_synced(patch: pytest.MonkeyPatch) -> None:
    """The runtime does not hold back what depends on an unsynced record."""
    patch.setattr(Gate, "opens", lambda self, output, synced: True)


def delivered_without_waiting(patch: pytest.MonkeyPatch) -> None:
    """The protocol says of its deliveries that they depend on nothing."""

    def emit(self: Protocol, event: Value, after: int = -1) -> None:
        after = 0 if isinstance(event, Delivered) else self.after
        self._effects.append(Emit(event, after))

    patch.setattr(Recovery, "emit", emit)


def never_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "request", lambda self, request: None)


def never_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "append", lambda self, record: 0)


def never_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "start", lambda self: None)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """What has been seen is not looked up."""

    def take(self: Recovery, key: MessageId, payload: bytes) -> bool:
        self._store(key, payload)
        return True

    patch.setattr(Recovery, "_take", take)


def payload_damaged(patch: pytest.MonkeyPatch) -> None:
    store = Recovery._store

    def damaged(self: Recovery, key: MessageId, payload: bytes) -> None:
        store(self, key, payload if key.number != 3 else payload[:-1])

    patch.setattr(Recovery, "_store", damaged)


def snapshot_forgets(patch: pytest.MonkeyPatch) -> None:
    """A snapshot leaves out what one origin published."""
    restore = Recovery.restore

    def forgetful(self: Recovery, record: Value) -> None:
        restore(self, record)  # type: ignore[arg-type]
        if type(record).__name__ == "Archive":
            for key in [key for key in self.held if key.origin == NodeId("n1")]:
                del self.kept.by_id[key]

    patch.setattr(Recovery, "restore", forgetful)


@pytest.mark.parametrize(
    "mutant",
    [
        told_before_synced,
        delivered_without_waiting,
        never_published,
        never_appended,
        never_compared,
        taken_twice,
        payload_damaged,
        snapshot_forgets,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_checkers_catch(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert any(not run(BROADCAST, seed).ok for seed in SEEDS)
