"""Staged messages are invisible until they are published, once and atomically."""

from __future__ import annotations

import pytest

from oncecast.broker.extent import Extent
from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire import results as done
from oncecast.wire.limits import Limits
from oncecast.wire.results import (
    Published,
    PublishedRange,
    SourceClosed,
    Staged,
    StagedDropped,
)
from tests.broker.machine_steps import ALL, Steps


def staged() -> Steps:
    steps = Steps()
    steps.subscribe()
    steps.subscribe(topic="u")
    steps.stage(0, "a", 2)
    steps.stage(0, "b", 3, topic="u")
    steps.stage(0, "c", 1)
    return steps


def test_staged_messages_are_invisible_and_keep_their_slots() -> None:
    """PIPE-2"""
    steps = Steps()
    steps.subscribe()
    assert steps.stage(0, "a") == Staged(already=False)
    assert steps.kept() == []
    assert steps.machine.needed() == steps.slot
    assert steps.machine.bounds("t") == (0, 0)


def test_publish_appends_the_named_parts_to_their_topics_in_order() -> None:
    """PIPE-2"""
    steps = staged()
    slot = steps.slot
    assert steps.publish(0, "c", "b", "a") == Published(
        (PublishedRange("t", 0, 3, kept=True), PublishedRange("u", 0, 3, kept=True)), already=False
    )
    assert steps.machine.fetch("t", 0, ALL, ALL) == (
        Extent(slot, 0, 1, 0, sequence=0),
        Extent(slot - 2, 0, 2, 1, sequence=1),
    )
    assert steps.machine.fetch("u", 1, 1, ALL) == (Extent(slot - 1, 1, 1, 1, sequence=1),)


def test_source_sequence_continues_across_numbers() -> None:
    """PIPE-2: (producer, sequence) is unique in a topic."""
    steps = staged()
    steps.publish(0, "a")
    steps.stage(1, "a", 4)
    steps.publish(1, "a")
    assert [each.sequence for each in steps.machine.fetch("t", 0, ALL, ALL)] == [0, 2]


def test_repeated_publish_returns_the_first_result() -> None:
    """PIPE-2: a replayed micro-batch adds nothing."""
    steps = staged()
    published = steps.publish(0, "a")
    assert isinstance(published, Published)
    assert steps.publish(0, "a") == Published(published.ranges, already=True)
    assert steps.publish(0, "c") == Published(published.ranges, already=True)
    steps.publish(1)
    assert steps.publish(0, "a") == Published((), already=True)
    assert steps.kept() == [0, 1]


def test_unpublished_parts_and_older_numbers_are_dropped() -> None:
    """PIPE-2"""
    steps = staged()
    steps.stage(1, "winner")
    winner = steps.slot
    steps.stage(1, "loser")
    steps.stage(2, "next")
    steps.publish(1, "winner")
    assert steps.machine.needed() == winner
    assert list(steps.machine.registry.staging.sources["query"].staged) == [2]
    assert steps.stage(0, "late") == Staged(already=True)
    assert steps.stage(1, "zombie") == Staged(already=True)
    assert steps.machine.registry.staging.parts == 1
    assert steps.machine.registry.staging.bytes == 100


def test_publishing_a_missing_part_is_refused() -> None:
    """PIPE-2"""
    steps = staged()
    assert steps.publish(0, "a", "missing") == errors.NotStaged("query", 0, "missing")
    assert steps.kept() == []
    assert isinstance(steps.publish(0, "a", "b"), Published)


def fenced(result: done.Result) -> int:
    assert isinstance(result, errors.Fenced)
    return result.epoch


def test_late_duplicate_of_a_refused_publish_has_no_effect() -> None:
    """PIPE-2: the missing part is staged after the refusal."""
    steps = Steps()
    steps.subscribe()
    steps.stage(0, "a")
    assert steps.publish(0, "a", "b", expected=0) == errors.NotStaged("query", 0, "b")
    steps.stage(0, "b")
    epoch = fenced(steps.publish(0, "a", "b", expected=0))
    assert steps.kept() == []
    assert isinstance(steps.publish(0, "b", expected=epoch), Published)
    assert steps.publish(0, "a", "b", expected=0) == steps.publish(0, "b", expected=epoch)
    assert steps.kept() == [0]


def test_late_duplicate_of_a_publish_refused_without_a_record_has_no_effect() -> None:
    """PIPE-2: a refusal creates no record, and needs none."""
    steps = Steps()
    steps.subscribe()
    assert steps.publish(0, "a", expected=0) == errors.NotStaged("query", 0, "a")
    assert not steps.machine.registry.staging.sources
    steps.stage(0, "a")
    epoch = fenced(steps.publish(0, "a", expected=0))
    assert isinstance(steps.publish(0, "a", expected=epoch), Published)


def test_refusal_is_remembered_after_its_source_record_is_deleted() -> None:
    """PIPE-2: dropping the last part or closing the source deletes the record."""
    for end in (do.DropStaged("query", 0), do.CloseSource("query", 0)):
        steps = Steps()
        steps.stage(0, "a")
        steps.publish(0, "b", expected=0)
        steps.apply(end)
        assert not steps.machine.registry.staging.sources
        steps.stage(0, "b")
        fenced(steps.publish(0, "b", expected=0))


@pytest.mark.parametrize(
    "end", [do.DropStaged("query", 0, renew=True), do.CloseSource("query", 0, renew=True)]
)
@pytest.mark.parametrize("staged", [True, False])
def test_late_publish_of_dropped_parts_does_not_publish_restaged_parts(
    end: do.DropStaged | do.CloseSource, staged: bool
) -> None:
    """PIPE-2: a publish times out, and its number is dropped and staged again."""
    steps = Steps()
    steps.subscribe()
    for part in ("a",) if staged else ():
        steps.stage(0, part)
    steps.apply(end)
    steps.stage(0, "a")
    steps.stage(0, "b")
    epoch = fenced(steps.publish(0, "a", expected=0))
    assert steps.kept() == []
    assert isinstance(steps.publish(0, "a", "b", expected=epoch), Published)
    assert steps.kept() == [0, 1]


def test_refusals_survive_a_restart() -> None:
    """PIPE-2 SVC-10"""
    steps = Steps()
    steps.publish(0, "b", expected=0)  # the source has no record yet
    of_none = fenced(steps.publish(0, expected=0))
    steps.stage(0, "a")
    steps.publish(0, "b", expected=of_none)
    of_one = fenced(steps.publish(0, "a", expected=of_none))
    steps.machine = Machine.restore(list(steps.machine.state()))
    assert fenced(steps.publish(0, "a", expected=of_none)) == of_one
    steps.apply(do.CloseSource("query", 0))
    steps.machine = Machine.restore(list(steps.machine.state()))
    steps.stage(0, "a")
    assert fenced(steps.publish(0, "a", expected=of_none)) == of_one


def test_late_duplicate_of_a_publish_to_a_closed_source_publishes_nothing() -> None:
    """PIPE-2: the source may have been reopened and closed again since then."""
    steps = Steps()
    steps.apply(do.CreateTopic("t", 0))
    epoch = 0
    for published in (1, 2):
        steps.stage(0, "a")
        assert isinstance(steps.publish(0, "a", expected=epoch), Published)
        steps.apply(do.CloseSource("query", 0))
        steps.stage(0, "a")
        epoch = fenced(steps.publish(0, "a", expected=epoch))
        assert steps.machine.bounds("t") == (published, published)


def test_refused_publish_from_an_older_client_does_not_change_the_state() -> None:
    """PIPE-2: replaying an older log gives the same state as before."""
    steps = staged()
    before = steps.machine.registry.last_epoch
    assert steps.publish(0, "missing") == errors.NotStaged("query", 0, "missing")
    assert (steps.machine.registry.last_epoch, steps.machine.registry.staging.floor) == (before, 0)


def test_publish_that_names_a_part_twice_is_refused() -> None:
    steps = staged()
    assert isinstance(steps.publish(0, "a", "a"), errors.InvalidArgument)
    assert steps.kept() == []


def test_repeated_stage_gets_already() -> None:
    """PIPE-2"""
    steps = staged()
    assert steps.stage(0, "a", 2) == Staged(already=True)
    assert steps.machine.registry.staging.parts == 3


def test_dropped_parts_free_their_slots() -> None:
    steps = staged()
    assert steps.apply(do.DropStaged("query", 0)) == StagedDropped(3)
    assert steps.apply(do.DropStaged("query", 0)) == StagedDropped(0)
    assert steps.machine.needed() == steps.slot + 1
    assert not steps.machine.registry.staging.sources


def test_abandoned_parts_expire() -> None:
    """SVC-9: otherwise they would keep the log from being trimmed."""
    steps = Steps(Limits(staged_age_us=100))
    steps.stage(0, "a")
    steps.tick(steps.now + 100)
    assert steps.machine.registry.staging.parts == 1
    steps.tick(steps.now + 1)
    assert steps.machine.registry.staging.parts == 0
    assert steps.publish(0, "a") == errors.NotStaged("query", 0, "a")


def test_publish_creates_all_missing_topics_or_none() -> None:
    """SVC-5"""
    steps = Steps(Limits(topics_max=1))
    steps.stage(0, "a")
    steps.stage(0, "b", topic="u")
    assert steps.publish(0, "a", "b") == errors.TooMany("topics", 1)
    assert not steps.machine.registry.topics
    assert steps.publish(0, "a") == Published(
        (PublishedRange("t", 0, 1, kept=False),), already=False
    )


def test_source_and_producer_cannot_share_a_name() -> None:
    """SVC-2: otherwise their messages would be mistaken for duplicates."""
    steps = staged()
    steps.open(producer="query")
    assert steps.publish(0, "a") == errors.NameInUse("t", "query")
    steps.publish(0, "b")
    opened = steps.apply(do.OpenProducer("u", "query", "inc-1", 0))
    assert opened == errors.NameInUse("u", "query")


def test_closed_source_is_removed_from_all_topics() -> None:
    steps = staged()
    steps.publish(0, "a", "b")
    steps.stage(1, "a")
    assert steps.apply(do.CloseSource("query", 0)) == SourceClosed(already=False)
    assert steps.apply(do.CloseSource("query", 0)) == SourceClosed(already=True)
    assert not steps.machine.registry.staging.sources
    assert not steps.machine.registry.topics["t"].producers
    assert steps.machine.registry.staging.parts == 0


def test_staged_parts_and_sources_are_limited() -> None:
    """SVC-7"""
    steps = Steps(Limits(sources_max=1, staged_parts_max=2, staged_bytes_max=250))
    steps.stage(0, "a")
    assert steps.stage(0, "b", size=151) == errors.TooMany("staged bytes", 250)
    steps.stage(0, "b", size=150)
    assert steps.stage(0, "c", size=0) == errors.TooMany("staged parts", 2)
    other = do.Stage("other", 0, "a", "t", 1, 1, 0, b"")
    assert steps.apply(other) == errors.TooMany("sources", 1)
    assert steps.apply(do.PublishStaged("other", 0, (), 0)) == errors.TooMany("sources", 1)
    assert isinstance(steps.stage(-1, "a"), errors.InvalidArgument)
    assert isinstance(steps.publish(-1), errors.InvalidArgument)
