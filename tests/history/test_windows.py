"""Narrower times decide histories in fewer steps, but with the same verdict."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from oncecast.history import History, check
from oncecast.history.check import parts
from oncecast.history.operation import Operation
from oncecast.history.partition import Part
from oncecast.history.search import Item, Outcome, search
from tests.history.machine_play import Play
from tests.history.making import (
    SUB,
    TOPIC,
    created,
    deleted,
    got,
    look,
    lost_put,
    no_topic,
    op,
    publish,
    put,
    scanned,
    sought,
)
from tests.history.test_search import spoiled

STEPS_MAX = 20_000


def topic_of(*operations: Operation) -> Part:
    return next(parts(TOPIC, sorted(operations, key=lambda each: each.call)))


def item_of(part: Part, operation: Operation) -> Item:
    """Return the mandatory item of an operation, with its narrower times."""
    items = part.problem().items
    (found,) = (each for each in items if each.must and each.effect.operation is operation)
    return found


def window_of(operation: Operation, *others: Operation) -> tuple[float, float]:
    item = item_of(topic_of(operation, *others), operation)
    return item.call, item.due


def test_put_precedes_answers_that_show_a_longer_log() -> None:
    one = put(2, 9, 0, "a")
    assert window_of(one, put(3, 8, 1, "b", client="bob")) == (2, 8)
    assert window_of(one, look(3, 7, 1)) == (2, 7)
    assert window_of(one, got(6, 0, "a")) == (2, 6)


def test_look_precedes_the_put_after_the_end_that_it_shows() -> None:
    seen = look(2, 9, 1)
    assert window_of(seen, put(3, 8, 1, "b")) == (2, 8)
    assert window_of(seen, put(3, 8, 0, "a")) == (3, 9)
    assert window_of(seen, got(6, 1, "b")) == (2, 6)
    assert window_of(seen, got(6, 0, "a")) == (2, 9)


def test_puts_with_one_client_keep_their_order() -> None:
    one, two = put(2, 9, -1, "a"), put(3, 8, -1, "b")
    later = look(4, 7, 0)
    assert window_of(one, two) == (2, 8)
    assert window_of(two, put(2, 9, 5, "a"), look(5, 10, 5)) == (5, 8)
    assert window_of(later, two) == (4, 7)


def test_answers_from_one_epoch_precede_those_from_the_next() -> None:
    one, two = look(2, 20, 0), look(3, 21, 0, topic_id=2)
    ends = deleted(4, 19)
    assert window_of(one, ends, look(5, 18, 7, topic_id=2)) == (2, 18)
    assert window_of(two, ends, look(5, 18, 7)) == (5, 21)
    assert window_of(one, ends, got(17, 0, "a", topic_id=2)) == (2, 17)


def test_topic_is_not_absent_while_an_epoch_lasts() -> None:
    epoch = [look(4, 5, 0), look(14, 15, 0)]
    assert window_of(no_topic(2, 10), *epoch) == (2, 5)
    assert window_of(no_topic(6, 20), *epoch) == (14, 20)
    assert window_of(no_topic(2, 20), *epoch) == (2, 20)
    assert window_of(deleted(6, 20), *epoch) == (14, 20)


def test_publish_is_outside_an_epoch_with_another_message_at_its_offset() -> None:
    epoch = [look(14, 15, 1, topic_id=2), scanned(24, 25, 1, 0, "a", topic_id=2), deleted(0, 40)]
    stage, published = publish(3, 20, 0)
    # A part merges the requests of a publish, so its item has another operation.
    items = topic_of(stage, published, *epoch).problem().items
    (item,) = (each for each in items if each.effect.operation.kind == "publish")
    assert (item.call, item.due, item.last) == (3, 15, (2, -1))


def test_observer_gets_the_epoch_that_lasts_at_its_time() -> None:
    seek = sought(6, 9, 0, 5)
    part = topic_of(seek, look(4, 5, 0, topic_id=2), look(14, 15, 0, topic_id=2), deleted(0, 40))
    assert item_of(part, seek).effect.epoch == 2


def test_delivery_may_arrive_after_its_epoch() -> None:
    get = got(16, 0, "a")
    assert window_of(get, put(2, 3, 0, "a"), deleted(4, 5), look(6, 7, 0, topic_id=2)) == (16, 16)


def lost_epoch(sizes: list[int]) -> History:
    """Return a history in which puts of unknown epochs must precede a publish at offset 24.

    Half of these puts have no answer. The topic is deleted, and the other puts get their answers in
    the next epoch. So no answer but the one of the publish shows that some happened before.
    """
    history = [created(0, 1, topic_id=4), *publish(4.5, 90, 24), deleted(40, 70, already=True)]
    history += [
        op("subscribe", 20 + at, None, subscription=name) for at in range(9) for name in "xy"
    ]
    end = 0
    for number, size in enumerate(sizes):
        time, values = 2 + number / 100, [f"{number}.{each}" for each in range(size)]
        history += [look(5 + number, 6 + number, 0, topic_id=4)]
        if number % 2:
            history.append(lost_put(time, *values, client=f"lost {number}"))
            continue
        returned = 200 + number
        history.append(put(time, returned, end, *values, topic_id=5, client=f"bob {number}"))
        end += size
        history.append(got(300 + number, end - size, *values, topic_id=5))
    return [*history, look(100, 101, 0, topic_id=5), look(400, 401, end, topic_id=5)]


def test_puts_without_evidence_fill_a_log_that_one_answer_shows() -> None:
    """A storm of the scenario "paxos" with 5 nodes and seed 3002181."""
    sizes = [1, 2, 3, 1, 1, 2, 3, 3, 1, 1, 1, 2, 1, 1, 3, 2, 1, 1, 2, 3]
    assert check(lost_epoch(sizes), steps_max=STEPS_MAX).ok
    assert check(lost_epoch(sizes[:3]), steps_max=STEPS_MAX).broken


def test_equal_commands_without_an_answer_replace_each_other() -> None:
    """A topic that is never deleted cannot have the epoch that the last answer shows."""
    lost = [
        op("subscribe", 2 + number / 100, None, subscription=name)
        for number in range(30)
        for name in ("x", "y", "z")
    ]
    history = [SUB, *lost, look(5, 6, 0, ("sub", 0, 0)), look(7, 8, 0, topic_id=2)]
    verdict = check(history, steps_max=STEPS_MAX)
    assert verdict.broken
    assert not verdict.undecided


def play(seed: int) -> list[Part]:
    rng = Random(seed)
    history = Play(seed, topics=1, clients=rng.choice((2, 3))).run(rng.choice((40, 120)))
    history = spoiled(history, rng)
    return list(parts("red", history))


def outcomes_of(part: Part) -> tuple[Outcome, Outcome]:
    wide, narrow = part.problem(narrow=False), part.problem()
    return (
        search(wide.items, wide.initial, wide.model, steps_max=STEPS_MAX).outcome,
        search(narrow.items, narrow.initial, narrow.model, steps_max=STEPS_MAX).outcome,
    )


@given(st.integers(0, 1 << 32))
def test_narrow_times_do_not_change_the_verdict(seed: int) -> None:
    for part in play(seed):
        wide, narrow = outcomes_of(part)
        assert wide in (narrow, Outcome.UNDECIDED)


def test_plays_include_legal_and_illegal_histories() -> None:
    """Otherwise the test above would prove little."""
    outcomes = Counter(outcomes_of(play(seed)[0]) for seed in range(90))
    assert min(outcomes[each, each] for each in (Outcome.LINEARIZABLE, Outcome.IMPOSSIBLE)) > 5
