"""SVC-5 SVC-7 REP-6: commands that find nothing to do, and refusals that are rarely seen."""

from __future__ import annotations

import pytest

from oncecast.dht.ring import key_of
from oncecast.pubsub import commands as do
from oncecast.pubsub import errors, moves, state
from oncecast.pubsub import results as done
from oncecast.pubsub.estate import Estate
from oncecast.pubsub.limits import Limits, is_name
from oncecast.pubsub.machine import Machine
from tests.pubsub.machine_steps import Steps
from tests.pubsub.test_machine_moves import GIVER, NO, TAKER, UNTIL, YES, Move, estate

# -- topics and time --


def test_time_passes_with_a_delete_even_of_nothing() -> None:
    steps = Steps()
    steps.apply(do.DeleteTopic("nothing", 5000))
    assert steps.machine.registry.clock.now == 5000


def test_limits_are_set_by_a_command() -> None:
    steps = Steps()
    assert steps.apply(do.SetLimits(Limits(producers_max=1))) == done.LimitsSet()
    steps.open(producer="p")
    refused = steps.apply(do.OpenProducer("t", "q", "life", 0))
    assert refused == errors.TooMany("producers in the topic", 1)


def test_a_name_is_text_of_one_to_255_bytes() -> None:
    assert [is_name(each) for each in ("a", "x" * 255)] == [True, True]
    assert [is_name(each) for each in ("", "x" * 256, None, 5, b"bytes")] == [False] * 5


def test_books_must_have_a_name() -> None:
    refused = Steps().apply(do.OpenProducer("t", "p", "life", 0, books="x" * 256))
    assert refused == errors.InvalidName("books")


def test_nothing_of_a_deleted_topic_is_carried() -> None:
    steps = Steps()
    steps.subscribe()
    epoch = steps.open()
    steps.put(epoch, 0)
    put = do.Put("t", "p", epoch, 0, 1, 100, 0, b"bytes")
    old = steps.place
    steps.apply(do.DeleteTopic("t", 0))
    assert steps.apply(do.Carry(old, 0, put)) == done.Carried(moved=False)
    assert steps.machine.needed() == steps.place + 1


# -- cursors --


def test_a_topic_with_many_seeks_remembers_few_cursors() -> None:
    steps = Steps()
    steps.subscribe()
    steps.put(steps.open(), 0, 2)
    for at in range(100):
        steps.apply(do.Seek("t", "s", do.FromOffset(at % 2), 0, f"token {at}"))
    topic = steps.machine.registry.topics["t"]
    assert len(topic._cursors) <= 2 + 16
    assert topic.low_water() == 1


# -- staging --


def test_publishing_needs_a_place_among_the_producers_of_the_topic() -> None:
    steps = Steps(Limits(producers_max=1))
    steps.open()
    steps.stage(0, "a")
    assert steps.publish(0, "a") == errors.TooMany("producers in the topic", 1)


def test_a_source_that_is_closed_on_a_ring_leaves_other_topics_alone() -> None:
    steps = Steps()
    steps.apply(moves.Found("g-2", True))
    for topic in ("t", "u"):
        steps.subscribe(topic=topic)
        steps.stage(0, "a", topic=topic)
        steps.apply(do.PublishStaged("query", 0, ("a",), 0, topic))
    assert steps.apply(do.CloseSource("query", 0, "t")) == done.SourceClosed(already=False)
    topics = steps.machine.registry.topics
    assert [list(topics[name].producers) for name in ("t", "u")] == [[], ["query"]]
    steps.stage(1, "b", topic="v")
    assert steps.apply(do.CloseSource("query", 0, "v")) == done.SourceClosed(already=False)


# -- moves --


def test_a_group_that_is_on_no_ring_takes_no_step_of_a_move() -> None:
    steps = Steps()
    put = do.Put("t", "p", 1, 0, 1, 100, 0, b"bytes")
    rows = state.moved_out(Estate("g-2", None))
    refused: list[moves.AnyCommand] = [
        moves.Retire(),
        moves.Claim("m", GIVER),
        moves.Import("m", "t", 1, 0, 1, 100, 0, 0, -1, put),
        moves.Adopt("m", UNTIL, UNTIL, 0, 0, 0, rows),
        moves.Freeze("m", UNTIL, TAKER),
    ]
    assert [steps.apply(command) for command in refused] == [NO] * 5
    over: list[moves.AnyCommand] = [
        moves.Abandon("m"),
        moves.Finish("m"),
        moves.Thaw("m"),
        moves.Release("m"),
    ]
    assert [steps.apply(command) for command in over] == [YES] * 4  # nothing is left to do
    assert steps.machine.registry.estate is None


def test_a_group_is_founded_once() -> None:
    steps = Steps()
    assert steps.apply(moves.Found("g-2", True)) == YES
    assert steps.apply(moves.Found("g-2", False)) == YES
    assert steps.apply(moves.Found("g-a", True)) == NO
    assert (estate(steps).group, estate(steps).low) == ("g-2", key_of("g-2"))


def test_a_retired_group_takes_nothing_new() -> None:
    move = Move()
    assert move.taker.apply(moves.Retire()) == YES
    assert estate(move.taker).retired
    assert move.taker.apply(moves.Claim("m", GIVER)) == NO


def test_a_group_that_retires_in_a_move_goes_on_with_it() -> None:
    move = Move()
    move.claim()
    move.taker.apply(moves.Retire())
    assert move.taker.apply(moves.Claim("m", GIVER)) == YES


def test_a_copy_of_what_is_neither_put_nor_staged_is_refused() -> None:
    move = Move()
    move.claim()
    put = do.Put("t", "p", 1, 0, 1, 100, 0, b"bytes")
    assert move.taker.apply(moves.Import("m", "t", 1, -1, 1, 100, 0, 0, -1, put)) == NO
    assert move.taker.apply(moves.Import("other", "t", 1, 0, 1, 100, 0, 0, -1, put)) == NO


def test_a_move_is_not_finished_before_it_is_adopted() -> None:
    move = Move()
    move.claim()
    assert move.taker.apply(moves.Finish("m")) == NO
    assert move.taker.apply(moves.Finish("other")) == YES
    assert estate(move.taker).claim is not None


def staged_move() -> tuple[Move, moves.Import]:
    move = Move()
    move.giver.stage(1, "b", 3)
    move.claim()
    move.copy()
    staged = do.Stage("query", 1, "b", "t", 3, 100, 0, b"bytes")
    return move, moves.Import("m", "t", 0, -1, 3, 100, 1000, 0, -1, staged)


def test_staged_parts_come_back_when_a_move_is_given_up() -> None:
    move, part = staged_move()
    move.taker.apply(part)
    before = move.taker.machine.needed()
    assert before <= move.taker.place
    move.freeze()
    move.giver.apply(moves.Thaw("m"))
    done_ = move.giver.apply(do.PublishStaged("query", 1, ("b",), 0, "t"))
    assert isinstance(done_, done.Published)
    assert (estate(move.giver).outgoing, estate(move.giver).sources) == ({}, {})
    move.taker.apply(moves.Abandon("m"))
    assert estate(move.taker).parts == {}
    assert move.taker.machine.needed() == move.taker.place + 1


@pytest.mark.parametrize("frozen", [False, True])
def test_a_snapshot_holds_staged_parts_on_both_sides_of_a_move(frozen: bool) -> None:
    """SVC-10"""
    move, part = staged_move()
    move.taker.apply(part)
    if frozen:
        move.freeze()
    for group in (move.giver, move.taker):
        restored = Machine.restore(group.machine.state())
        assert restored.checksum() == group.machine.checksum()
        assert restored.needed() == group.machine.needed()
        group.machine = restored
    if not frozen:
        move.freeze()
    assert move.adopt() == YES
    published = move.taker.apply(do.PublishStaged("query", 1, ("b",), 0, "t"))
    assert isinstance(published, done.Published)
    assert not published.already


def test_two_states_in_one_are_refused() -> None:
    steps = Steps()
    chunks = tuple(steps.machine.state())
    with pytest.raises(ValueError, match="two states in one"):
        Machine.restore((*chunks, *chunks))


def test_a_moving_topic_without_a_group_is_refused() -> None:
    move = Move()
    move.claim()
    move.copy()
    registry = move.taker.machine.registry
    estate_ = registry.estate
    assert estate_ is not None
    with pytest.raises(ValueError, match="no group that it could leave or come to"):
        state._estate(Machine().registry)
    assert state._estate(registry) is estate_
