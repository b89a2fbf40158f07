"""Cut the power at every step of a run: write, sync, roll, truncate, snapshot, recovery."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from oncecast.errors import StorageError
from oncecast.simulator.disk import SimulatedDisk
from oncecast.storage import recovery, segment, snapshot
from oncecast.storage.dirty import Unsynced
from oncecast.storage.log import Log
from oncecast.storage.segment import Segment

SEGMENT_BYTES = 2048


class PowerCut(Exception):
    pass


class ModelledLog:
    """A log in use, with a model of its records. Records up to `synced` must survive."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.disk = SimulatedDisk(Random(f"disk {seed}"))
        self.disk.before = self.step
        self.records: dict[int, bytes] = {}
        self.synced = 0
        self.saved = 0
        self.steps_left = 0

    def step(self, verb: str, name: str) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise PowerCut

    def use(self, steps: int) -> None:
        """Use the log until the power fails after this many disk operations."""
        self.steps_left = steps
        try:
            log = self.open()
            for _ in range(200):
                self.act(log)
        except PowerCut:
            pass
        self.steps_left = 0
        self.disk.crash() if self.dice.random() < 0.8 else self.disk.kill()

    def append(self, log: Log) -> None:
        for _ in range(self.dice.choice((1, 2, 20))):
            record = self.dice.randbytes(self.dice.choice((0, 5, 60, 500)))
            self.records[log.append(record)] = record

    def act(self, log: Log) -> None:
        self.append(log)
        match self.dice.randrange(8):
            case 0:
                unsynced = log.write()
                self.append(log)
                if unsynced is not None:
                    unsynced.sync()
                    log.synced_to(unsynced)
                    self.synced = log.synced
            case 1:
                log.truncate(self.saved)
            case 2:
                saved = log.synced
                snapshot.save(self.disk, saved, [b"%d" % saved, bytes(700)])
                self.saved = saved
            case 3 if log.mark():
                log.write()
            case _:
                log.sync()
                self.synced = log.synced

    def open(self) -> Log:
        """Open the log, and check that recovery restores all synced records without damage."""
        loaded = snapshot.load(self.disk)
        number = 0 if loaded is None else loaded[0]
        assert number >= self.saved
        assert loaded is None or next(loaded[1]) == b"%d" % number
        log = Log.open(self.disk, segment_bytes=SEGMENT_BYTES, scan_from=number + 1)
        self.check(log)
        self.synced, self.saved = log.last, number
        self.records = {n: record for n, record in self.records.items() if n <= log.last}
        return log

    def check(self, log: Log) -> None:
        assert log.recovery.damage == ()
        assert log.last >= self.synced
        assert log.first <= self.saved + 1
        found = dict(log.scan())
        assert list(found) == list(range(log.first, log.last + 1))
        for number, record in found.items():
            assert record == self.records[number]


def run_with_power_losses(seed: int, runs: int) -> None:
    log = ModelledLog(seed)
    for _ in range(runs):
        log.use(log.dice.choice((3, 10, 40, 150)))
    log.open()


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_power_loss_neither_loses_synced_records_nor_corrupts_others(
    part: int,
) -> None:
    """SVC-10"""
    for seed in range(part * 75, (part + 1) * 75):
        try:
            run_with_power_losses(seed, runs=8)
        except (AssertionError, StorageError) as error:
            raise AssertionError(
                f"seed {seed}: replay with run_with_power_losses({seed}, 8)"
            ) from error


def test_power_loss_at_any_step_loses_no_synced_records() -> None:
    """Stop the same short run at each step, and then its recovery at each step."""
    for steps in range(1, 120):
        log = ModelledLog(11)
        log.use(steps)
        for recovery_steps in range(1, 6):
            log.use(recovery_steps)
        log.open()


def token_does_not_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unsynced, "sync", lambda self: setattr(self, "done", True))


def tail_is_not_wiped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "wipe", lambda self, start: setattr(self, "end", start))


def segment_has_its_name_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment, "new_name", segment.log_name)


def torn_segment_without_a_header_counts_as_blank(patch: pytest.MonkeyPatch) -> None:
    look = Segment.look

    def careless(self: Segment) -> None:
        look(self)
        self.blank = self.first == 0

    patch.setattr(Segment, "look", careless)


def directory_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync", lambda self: None)


def recovery_does_not_sync_recovered_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_make_durable", lambda disk, findings: None)


@pytest.mark.long
@pytest.mark.parametrize(
    "mutate",
    [
        token_does_not_sync,
        tail_is_not_wiped,
        segment_has_its_name_before_it_is_synced,
        torn_segment_without_a_header_counts_as_blank,
        directory_is_not_synced,
        recovery_does_not_sync_recovered_records,
    ],
)
def test_power_loss_exposes_a_missing_log_rule(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If any one of these rules is missing, a seed fails."""
    mutate(monkeypatch)
    with pytest.raises((AssertionError, StorageError)):
        for seed in range(1000):
            run_with_power_losses(seed, runs=8)
