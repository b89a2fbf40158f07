"""The search agrees with a brute-force search on small histories."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.history.check import parts
from oncecast.history.operation import History
from oncecast.history.partition import Part, Problem
from oncecast.history.search import Item, Outcome, lanes, search
from tests.history.machine_play import Play

MUST_MAX, REST_MAX = 6, 4


def brute_force(problem: Problem) -> bool:
    """Try all orders. An item that may be taken often is taken at most once."""

    def solvable(left: list[Item], taken: list[Item], state: Any) -> bool:
        if not any(item.must for item in left):
            return True
        for item in left:
            behind = any(other.must and other.due < item.call for other in left)
            ahead = any(item.due < other.call for other in taken)
            late = item.chain is not None and any(
                other.chain == item.chain and other.call > item.call for other in taken
            )
            early = item.chain is not None and any(
                other.must and other.chain == item.chain and other.call < item.call
                for other in left
            )
            if behind or ahead or late or early:
                continue
            rest = [other for other in left if other is not item]
            for new in problem.model.step(state, item.effect):
                if solvable(rest, [*taken, item], new):
                    return True
        return False

    return solvable(problem.items, [], problem.initial)


def is_an_order(problem: Problem, order: list[Item]) -> bool:
    """Return whether the order has all mandatory items, respects time, and fits the model."""
    must = Counter(id(item) for item in problem.items if item.must)
    states = [problem.initial]
    for at, item in enumerate(order):
        states = [new for state in states for new in problem.model.step(state, item.effect)]
        if any(later.due < item.call for later in order[at + 1 :]):
            return False
    return bool(states) and must == Counter(id(item) for item in order if item.must)


def spoiled(history: History, rng: Random) -> History:
    """Return the history with up to two wrong answers."""
    found = [msgspec.structs.replace(each) for each in history]
    answered = [each for each in found if each.done]
    for operation in rng.sample(answered, min(len(answered), rng.randrange(3))):
        name = rng.choice(("offset", "next", "first", "epoch", "topic_id", "upto"))
        if getattr(operation, name) >= 0:
            setattr(operation, name, max(0, getattr(operation, name) + rng.choice((-1, 1))))
    return found


def small_parts(seed: int) -> list[Part]:
    rng = Random(seed)
    history = Play(seed, topics=1, clients=2).run(rng.choice((40, 80, 120)))
    history = spoiled(history[: rng.randrange(4, 14)], rng)
    return [part for part in parts("red", history) if is_small(part.problem())]


def is_small(problem: Problem) -> bool:
    must = sum(item.must for item in problem.items)
    return must <= MUST_MAX and len(problem.items) - must <= REST_MAX


@given(st.integers(0, 1 << 32))
def test_search_agrees_with_brute_force(seed: int) -> None:
    for part in small_parts(seed):
        for narrow in (False, True):
            problem = part.problem(narrow=narrow)
            found = search(problem.items, problem.initial, problem.model)
            assert found.outcome is not Outcome.UNDECIDED
            if found.outcome is Outcome.LINEARIZABLE:
                assert is_an_order(problem, found.order)
            else:
                assert not brute_force(part.problem(narrow=False))


@pytest.mark.long
def test_small_histories_include_legal_and_illegal_histories() -> None:
    """Otherwise the test above would prove little."""
    outcomes: Counter[Outcome] = Counter()
    for seed in range(200):
        for part in small_parts(seed):
            problem = part.problem()
            found = search(problem.items, problem.initial, problem.model)
            outcomes[found.outcome] += len(problem.items) > 3
    assert min(outcomes[Outcome.LINEARIZABLE], outcomes[Outcome.IMPOSSIBLE]) > 20, outcomes


class Register:
    """Holds a number; reads must show it."""

    def step(self, state: int, effect: tuple[str, int]) -> tuple[int, ...]:
        verb, number = effect
        if verb == "write":
            return (number,)
        return (state,) if state == number else ()

    def late(self, state: int, effect: tuple[str, int]) -> bool:
        return False

    def guess(self, state: int, effect: tuple[str, int], skips: bool) -> bool:
        return True

    def stage(self, state: int) -> None:
        return None

    def spent(self, state: int) -> tuple[int, frozenset[int]]:
        return state, frozenset()


def outcome_of(*items: Item, steps_max: int = 10_000) -> Outcome:
    return search(items, 0, Register(), steps_max=steps_max).outcome


def test_overlapping_operations_may_take_effect_in_either_order() -> None:
    write, read = Item(("write", 1), 0, 2), Item(("read", 1), 1, 3, reads=True)
    assert outcome_of(write, read) is Outcome.LINEARIZABLE
    assert outcome_of(write, Item(("read", 0), 1, 3, reads=True)) is Outcome.LINEARIZABLE


def test_completed_operation_precedes_a_later_call() -> None:
    assert outcome_of(Item(("write", 1), 0, 1), Item(("read", 0), 2, 3)) is Outcome.IMPOSSIBLE


def test_unanswered_operation_may_happen_late_or_never() -> None:
    lost = Item(("write", 1), 0, must=False)
    reads = [Item(("read", 0), 5, 6), Item(("read", 1), 7, 8), Item(("read", 1), 9, 10)]
    assert outcome_of(lost, *reads) is Outcome.LINEARIZABLE
    assert outcome_of(lost, Item(("read", 0), 11, 12), *reads) is Outcome.IMPOSSIBLE


def test_overlapping_items_in_a_chain_keep_their_order() -> None:
    one = Item(("write", 1), 0, 10, chain="client")
    two = Item(("write", 2), 1, 10, chain="client")
    reads = [Item(("read", 2), 11, 12), Item(("read", 1), 13, 14)]
    assert outcome_of(one, two, reads[0]) is Outcome.LINEARIZABLE
    assert outcome_of(one, two, reads[1]) is Outcome.IMPOSSIBLE


def test_repeatable_item_is_taken_as_often_as_necessary() -> None:
    again = Item(("write", 1), 0, 100, must=False, often=True)
    reads = [
        Item((verb, number), time, time + 0.5)
        for time, verb, number in (
            (1, "read", 1),
            (2, "write", 2),
            (3, "read", 1),
            (4, "write", 3),
            (5, "read", 1),
        )
    ]
    assert outcome_of(again, *reads) is Outcome.LINEARIZABLE
    assert outcome_of(again, *reads, Item(("read", 2), 6, 7)) is Outcome.IMPOSSIBLE
    late = Item(("read", 2), 101, 102)
    assert outcome_of(again, Item(("write", 2), 100.5, 100.6), late) is Outcome.LINEARIZABLE


def test_abandoned_search_is_undecided() -> None:
    writes = [Item(("write", number), 0, 100) for number in range(1, 9)]
    read = Item(("read", 99), 0, 100)
    assert outcome_of(*writes, read, steps_max=500) is Outcome.UNDECIDED


def test_nonoverlapping_operations_share_a_lane() -> None:
    items = [Item(("write", number), number, number + 0.5) for number in range(10)]
    assert [len(lane) for lane in lanes(items)] == [10]
    assert sorted(len(lane) for lane in lanes([*items, Item(("read", 1), 0, 20)])) == [1, 10]


class Bag:
    """Holds numbers: "add" adds a number; "need" and "lack" test whether it is there."""

    def step(self, state: frozenset[int], effect: tuple[str, int]) -> tuple[frozenset[int], ...]:
        verb, number = effect
        if verb == "add":
            return () if number in state else (state | {number},)
        if verb == "full":
            return (state,) if len(state) >= number else ()
        return (state,) if (number in state) == (verb == "need") else ()

    def late(self, state: frozenset[int], effect: tuple[str, int]) -> bool:
        return False

    def guess(self, state: frozenset[int], effect: tuple[str, int], skips: bool) -> bool:
        return True

    def stage(self, state: frozenset[int]) -> None:
        return None

    def spent(self, state: frozenset[int]) -> tuple[int, frozenset[int]]:
        """Hide numbers above 100, but still count them."""
        small = {number for number in state if number < 100}
        return hash((len(state), frozenset(small))), state - small


def test_read_comes_after_an_optional_item_that_was_due_earlier() -> None:
    """The add was due before the read was called, so it could not happen afterwards."""
    add = Item(("add", 1), 0.0, 2.0, must=False)
    read, need = Item(("lack", 9), 3.0, 10.0, reads=True), Item(("need", 1), 0.0, 10.0)
    assert search([read, add, need], frozenset(), Bag()).outcome is Outcome.LINEARIZABLE


def test_only_one_of_equal_items_is_tried() -> None:
    one = Item(("add", 0), 0.0, must=False, often=True, guess=True, like="any")
    adds = [
        one._replace(effect=("add", number), call=float(number), spends=number)
        for number in range(100, 120)
    ]
    full, never = Item(("full", 5), 130.0, 190.0), Item(("need", 99), 130.0, 190.0)
    found = search([*adds, full, never], frozenset(), Bag())
    assert (found.outcome, found.steps < 2000) == (Outcome.IMPOSSIBLE, True)
    assert search([*adds, full], frozenset(), Bag()).outcome is Outcome.LINEARIZABLE


def test_configuration_worse_than_a_failed_one_is_skipped() -> None:
    """Only the number of adds matters, not which ones were taken."""
    adds = [Item(("add", 100 + number), 0.0, must=False) for number in range(7)]
    never = Item(("need", 99), 0.0, 90.0)
    found = search([*adds, never], frozenset(), Bag())
    assert (found.outcome, found.steps < 2000) == (Outcome.IMPOSSIBLE, True)


def test_replaceable_item_without_effect_is_taken_at_once() -> None:
    idle = [Item(("lack", 9), float(number), 90.0, twin=True) for number in range(20)]
    never = Item(("need", 99), 0.0, 90.0)
    found = search([*idle, never], frozenset(), Bag())
    assert (found.outcome, found.steps < 2000) == (Outcome.IMPOSSIBLE, True)


class Sequence:
    """Remembers numbers in order. "end" is possible once there are six."""

    def step(self, state: tuple[int, ...], effect: int | str) -> tuple[tuple[int, ...], ...]:
        if isinstance(effect, int):
            return ((*state, effect),)
        return (state,) if effect == "end" and len(state) == 6 else ()

    def late(self, state: tuple[int, ...], effect: int | str) -> bool:
        return False

    def guess(self, state: tuple[int, ...], effect: int | str, skips: bool) -> bool:
        return False

    def stage(self, state: tuple[int, ...]) -> tuple[int, int]:
        return 1, len(state)

    def spent(self, state: tuple[int, ...]) -> tuple[tuple[int, ...], frozenset[int]]:
        return state, frozenset()


def test_search_backtracks_if_a_later_item_missed_its_stage() -> None:
    """The item can only be taken after one number, but it is called after the end."""
    numbers = [Item(number, 0.0, 9.0) for number in range(6)]
    end, passed = Item("end", 0.0, 3.0), Item("never", 4.0, 9.0, stage=(1, 1))
    found = search([*numbers, end, passed], (), Sequence())
    assert (found.outcome, found.steps < 500) == (Outcome.IMPOSSIBLE, True)
