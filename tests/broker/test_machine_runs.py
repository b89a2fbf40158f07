"""PIPE-2: a source tracks its runs and digests, and checks that topics keep messages."""

from __future__ import annotations

import pytest

from oncecast.broker.machine import Machine
from oncecast.broker.staging import RUNS_KEPT
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.results import Published, Staged, StagedDropped
from tests.broker.machine_steps import Steps


def stage(steps: Steps, number: int, part: str, run: str) -> done.Result:
    return steps.apply(do.Stage("query", number, part, "t", 1, 100, steps.now, b"bytes", run))


def publish(
    steps: Steps, number: int, *parts: str, run: str = "", digest: bytes = b"", keep: bool = False
) -> done.Result:
    command = do.PublishStaged("query", number, parts, steps.now, run=run, digest=digest, keep=keep)
    return steps.apply(command)


def published(number: int = 5, digest: bytes = b"five") -> Steps:
    """Return a machine on which run `one` has published a number with one message."""
    steps = Steps()
    steps.subscribe()
    stage(steps, number, "a", "one")
    assert isinstance(publish(steps, number, "a", run="one", digest=digest), Published)
    return steps


def restored(steps: Steps) -> Steps:
    steps.machine = Machine.restore(list(steps.machine.state()))
    return steps


def test_replay_with_the_same_digest_adds_nothing() -> None:
    steps = restored(published())
    assert stage(steps, 5, "b", "two") == Staged(already=True)
    again = publish(steps, 5, "b", run="two", digest=b"five")
    assert isinstance(again, Published)
    assert again.already
    assert steps.kept() == [0]


def test_republishing_a_number_with_another_digest_is_refused() -> None:
    steps = restored(published())
    other = errors.OtherContent("query", 5)
    assert publish(steps, 5, "b", run="two", digest=b"other") == other
    assert steps.kept() == [0]


@pytest.mark.parametrize(("known", "given"), [(b"", b"five"), (b"five", b"")])
def test_unknown_digest_is_not_compared(known: bytes, given: bytes) -> None:
    """Older versions stored no digest, and the option replay=skip sends none."""
    steps = published(digest=known)
    assert isinstance(publish(steps, 5, "b", run="two", digest=given), Published)


def test_run_that_publishes_an_old_number_is_refused() -> None:
    steps = restored(published())
    old = errors.OldNumber("query", 4, 5)
    assert stage(steps, 4, "a", "two") == old
    assert publish(steps, 4, "a", run="two") == old
    assert publish(steps, 4, "a") == Published((), already=True)  # an older client sends no run


def test_newer_run_fences_earlier_runs() -> None:
    steps = published()
    assert stage(steps, 6, "b", "two") == Staged(already=False)
    restored(steps)
    gone = errors.TakenOver("query")
    assert stage(steps, 6, "a", "one") == gone
    assert publish(steps, 6, "b", run="one") == gone
    assert steps.apply(do.DropStaged("query", 6, run="one")) == StagedDropped(0)
    assert isinstance(publish(steps, 6, "b", run="two"), Published)


def test_fenced_run_stays_fenced_after_the_newer_run_drops_its_parts() -> None:
    """PIPE-2: the newer run fails before its first publish, and the earlier run is still alive."""
    steps = Steps()
    steps.subscribe()
    stage(steps, 0, "a", "one")
    stage(steps, 0, "b", "two")
    assert steps.apply(do.DropStaged("query", 0, run="two")) == StagedDropped(2)
    assert stage(restored(steps), 0, "a", "one") == errors.TakenOver("query")


def test_idle_source_is_deleted_even_if_it_fences_a_run() -> None:
    """SVC-9"""
    steps = Steps(Limits(source_idle_us=50))
    stage(steps, 0, "a", "one")
    steps.apply(do.DropStaged("query", 0, run="one"))
    assert steps.machine.registry.staging.sources
    steps.apply(do.Tick(steps.now + 50, producers=True))
    assert not steps.machine.registry.staging.sources


def test_run_that_replays_the_last_number_takes_over() -> None:
    steps = published()
    publish(steps, 5, "b", run="two", digest=b"five")
    assert stage(steps, 6, "a", "one") == errors.TakenOver("query")


def test_run_that_publishes_no_rows_takes_over() -> None:
    steps = published()
    assert publish(steps, 6, run="two") == Published((), already=False)
    assert stage(steps, 7, "a", "one") == errors.TakenOver("query")


def test_run_with_other_content_does_not_take_over() -> None:
    """A cloned query stops, and the original continues."""
    steps = published()
    stage(steps, 5, "b", "two")
    publish(steps, 5, "b", run="two", digest=b"other")
    assert stage(steps, 6, "a", "one") == Staged(already=False)


def test_refused_run_does_not_take_over() -> None:
    steps = published()
    stage(steps, 4, "a", "two")
    assert stage(steps, 6, "a", "one") == Staged(already=False)


def test_only_the_last_runs_are_kept() -> None:
    """SVC-9"""
    steps = published()
    for number in range(2 * RUNS_KEPT):
        stage(steps, 6, f"part {number}", f"run {number}")
    runs = steps.machine.registry.staging.sources["query"].runs
    assert runs == tuple(f"run {number}" for number in range(RUNS_KEPT, 2 * RUNS_KEPT))


def test_publish_with_keep_is_refused_without_retention_or_subscription() -> None:
    """The subscription may be removed after the rows are staged."""
    steps = Steps()
    stage(steps, 0, "a", "one")
    assert publish(steps, 0, "a", keep=True) == errors.NotKept("t")
    steps.create()
    assert publish(steps, 0, "a", keep=True) == errors.NotKept("t")
    steps.subscribe()
    assert isinstance(publish(steps, 0, "a", keep=True), Published)
    assert steps.kept() == [0]


def test_invalid_run_and_digest_are_refused() -> None:
    """SVC-7"""
    steps = Steps()
    assert stage(steps, 0, "a", "r" * 256) == errors.InvalidName("run")
    assert isinstance(publish(steps, 0, digest=bytes(65)), errors.InvalidArgument)
