"""A finding shows only operations that contradict each other."""

from __future__ import annotations

import pytest

from oncecast.history import History, Operation, check
from oncecast.history.search import Outcome, search
from oncecast.history.timeline import span_of
from oncecast.history.topic_part import TopicPart
from tests.history.making import (
    ack,
    attached,
    got,
    look,
    lost_put,
    put,
    subscribed,
)


def long_history(count: int) -> History:
    """Return a correct history: three clients put, one reads."""
    history: History = [subscribed(0, 1), attached(1.5, 1.6, 0, 0)]
    for number in range(count):
        client = ("ann", "bob", "eve")[number % 3]
        history += (
            put(2 + number, 2.5 + number, number, f"m{number}", client=client),
            got(2.6 + number, number, f"m{number}", client="dan"),
            look(2.7 + number, 2.8 + number, number + 1, client="dan"),
        )
    return history


def blamed(history: History) -> History:
    (finding,) = check(history).broken
    assert finding.left_out + len(finding.operations) <= len(history)
    return finding.operations


def test_finding_shows_only_the_two_contradictory_operations() -> None:
    stale = look(40.55, 40.58, 38, client="zoe")
    found = blamed([*long_history(60), stale])
    assert stale in found
    assert len(found) == 2
    other = found[found[0] is stale]
    assert other.returned is not None
    assert other.returned < stale.call


def test_finding_shows_no_later_operations() -> None:
    stale = look(20.55, 20.58, 18, client="zoe")
    assert all(each.call < 21 for each in blamed([*long_history(60), stale]))


def test_unanswered_put_is_shown_if_its_message_was_delivered() -> None:
    lost, other = lost_put(2, "x", client="bob"), lost_put(2, "y", client="eve")
    history = [subscribed(0, 1), attached(1.5, 1.6, 0, 0), lost, other]
    found = blamed([*history, got(3, 0, "x"), got(4, 1, "x")])
    assert lost in found
    assert other not in found


def test_omitted_puts_may_surround_an_unanswered_put() -> None:
    """The first status request alone contradicts nothing, so the stale one must be shown."""
    puts = [put(2, 3, 0, "a"), lost_put(2, "x", client="bob"), put(4, 5, 2, "b")]
    ends, stale = look(6, 7, 3, client="zoe"), look(8, 9, 2, client="zoe")
    part = TopicPart("topic", [subscribed(0, 1), *puts, ends])
    problem = part.problem(frozenset(id(each) for each in puts))
    found = search(problem.items, problem.initial, problem.model)
    assert found.outcome is Outcome.LINEARIZABLE
    assert stale in blamed([subscribed(0, 1), *puts, ends, stale])


def test_lost_ack_is_shown_with_its_confirmation() -> None:
    late = attached(8, 9, 0, 5, epoch=5, reader="r2")
    confirmed = ack(6, 7, 3)
    read = [attached(3, 4, 0, 5), got(5, 0, *"abcde"), ack(5.5, None, 2), confirmed]
    found = blamed([subscribed(0, 1), put(2, 2.5, 0, *"abcde"), *read, late])
    assert {each.kind for each in found} == {"ack", "attach"}
    assert late in found
    assert confirmed in found


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (0.2, 0.5, "0.2 to 0.5 s"),
        (16597.048087, 16597.052701, "16597.04809 to 16597.0527 s"),
        (1036800.25, 1036801.5, "1036800.25 to 1036801.5 s"),
        (7.0, 7.0, "7 to 7 s"),
    ],
)
def test_timeline_prints_enough_digits_to_distinguish_its_times(
    first: float, last: float, text: str
) -> None:
    """On a machine that has run for days, the monotonic clock has many digits."""
    assert span_of(first, last) == text


def test_finding_is_printed_as_a_timeline() -> None:
    history = [
        subscribed(0, 1),
        put(2, 3, 0, "a", "b"),
        look(4, 5, 0, client="bob"),
    ]
    assert str(check(history)).splitlines() == [
        "topic 'topic': not linearizable: look of bob: the topic ends at 2, not at 0",
        "  ann  ├───┤           put [a b] → offset 0",
        "  bob          ├───┤   look → ends at 0",
        "       2 to 5 s",
        "  omitted, because the contradiction does not involve them: 1 operation",
    ]


def test_every_kind_of_operation_can_be_drawn() -> None:
    from oncecast.history.timeline import timeline
    from tests.history.machine_play import Play

    history: History = [each for seed in range(30) for each in Play(seed).run(200)]
    by_kind: dict[str, Operation] = {each.kind: each for each in history}
    lines = timeline(sorted(by_kind.values(), key=lambda each: each.call))
    assert len(lines) == len(by_kind) + 1
    assert all(kind in "\n".join(lines) for kind in by_kind)
