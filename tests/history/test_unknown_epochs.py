"""Test answers without a topic epoch, while unanswered puts may fill the log.

The reference model here tries every epoch when a topic is created. The checker derives from other
answers in which epoch an operation happened, so both must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncecast.history import History, check
from oncecast.history.check import parts
from oncecast.history.operation import NO_SUCH_TOPIC, Operation, cut
from oncecast.history.partition import Part, Problem
from oncecast.history.search import Item, Outcome, search
from oncecast.history.topic_model import Effect
from tests.history.making import (
    SUB,
    TOPIC,
    created,
    deleted,
    got,
    look,
    lost_put,
    no_topic,
    publish,
    put,
    scanned,
    subscribed,
    unsubscribed,
)
from tests.history.test_search import is_an_order, spoiled

STEPS_MAX = 100_000
ENDS_LATER = unsubscribed(90, 91, subscription="other", already=True)

LEGAL: dict[str, History] = {
    # A run of the scenario "service" with 5 nodes and seed 703127.
    "an unanswered put follows a publish, and a later answer names the epoch": [
        *(lost_put(0.2, "x"), put(0.3, 0.9, 2, "b", topic_id=2), *publish(0.7, 0.8, 0)),
        *(put(0.75, 0.95, 3, "c", topic_id=2), look(1, 1.1, 4, first=4, topic_id=2), ENDS_LATER),
    ],
    "an unanswered put precedes a publish in the second epoch": [
        *(*publish(2, 3, 0), deleted(4, 5), lost_put(6, "x", client="bob")),
        *publish(7, 8, 1, value="again", number=2),
    ],
    # A run of the scenario "service" with 5 nodes and seed 2000466.
    "a topic ends with the source of its publish, and is created again": [
        *(*publish(2, 3, 0), subscribed(4, 5, topic_id=7), look(6, 7, 0, topic_id=7)),
    ],
    "a published message is delivered after its topic has ended": [
        *(*publish(2, 3, 0), deleted(4, 5), got(6, 0, "staged", topic_id=2)),
    ],
    "the same message is published in two epochs, and seen in the second": [
        *(*publish(2, 3, 0), deleted(4, 5), *publish(7, 8, 0, number=2)),
        *(look(9, 10, 1, topic_id=2), scanned(11, 12, 1, 0, "staged", topic_id=2)),
    ],
    "a message of an unnamed epoch is delivered after the next epoch has begun": [
        *(lost_put(2, "x", client="bob"), created(8, 9, topic_id=2), look(10, 11, 0, topic_id=2)),
        *(got(20, 0, "x", topic_id=0), look(30, 31, 0, topic_id=2), ENDS_LATER),
    ],
    "an unanswered put creates the next epoch after one that a delivery names": [
        *(*publish(2, 3, 0), deleted(4, 5), lost_put(6, "x", client="bob")),
        *(got(7, 0, "staged", topic_id=2), look(8, 9, 1, topic_id=3)),
    ],
}


@pytest.mark.parametrize("name", LEGAL)
def test_history_with_an_unknown_epoch_is_linearizable(name: str) -> None:
    verdict = check(LEGAL[name])
    assert verdict.ok, verdict


def test_publish_and_unanswered_put_do_not_fill_a_longer_gap() -> None:
    history = [*publish(2, 3, 0), lost_put(4, "x", client="bob"), ENDS_LATER]
    assert check([*history, put(5, 6, 2, "a", topic_id=2)]).ok
    assert check([*history, put(5, 6, 3, "a", topic_id=2)]).broken
    assert check([*history, look(5, 6, 3, topic_id=2)]).broken


def test_unanswered_put_happens_once_in_a_formerly_unknown_epoch() -> None:
    history = [*publish(2, 3, 0), lost_put(4, "x", client="bob"), look(5, 6, 2, topic_id=2)]
    seen = [*history, scanned(7, 8, 2, 1, "x", topic_id=2), ENDS_LATER]
    assert check(seen).ok
    assert check([*seen, put(9, 10, 3, "a", topic_id=2)]).broken


# -- a reference --


class Simple(NamedTuple):
    """The state of the reference: an epoch is chosen when the topic is created."""

    exists: bool = False
    epoch: int = 0  # 0 if no answer names it
    last: int = 0
    log: tuple[bytes, ...] = ()
    names: frozenset[str] = frozenset()
    declared: bool = False
    doubled: frozenset[int] = frozenset()
    past: tuple[tuple[int, tuple[bytes, ...]], ...] = ()

    def over(self) -> Simple:
        past = (*self.past, (self.epoch, self.log)) if self.epoch else self.past
        return Simple(last=self.last, past=past)

    def ended(self) -> Iterator[Simple]:
        """Yield the state without the topic, if the topic is absent or may end on its own."""
        if not self.exists:
            yield self
        elif not self.names and not self.declared:
            yield self.over()


class Reference:
    def __init__(self, epochs: set[int]) -> None:
        self._epochs = sorted(epochs)

    def step(self, state: Simple, effect: Effect) -> Iterator[Simple]:
        asked = effect.operation
        match asked.kind:
            case "put" | "publish":
                for now in (*self._alive(state, effect), *self._created(state, effect)):
                    yield from self._append(now, effect)
            case "get":
                logs = [*state.past, *([(state.epoch, state.log)] if state.exists else [])]
                if any(holds(epoch, log, asked) for epoch, log in logs):
                    yield state
            case "look" | "scan":
                yield from self._observe(state, effect)
            case "subscribe":
                for now in (*self._alive(state, effect), *self._created(state, effect)):
                    if asked.subscription not in now.names:
                        yield now._replace(names=now.names | {asked.subscription})
            case "unsubscribe":
                if asked.subscription not in state.names:
                    yield state
            case "create":
                for now in self._created(state, effect):
                    yield now._replace(declared=True)
            case "delete" if state.exists or effect.put_before or asked.already:
                yield state.over() if state.exists else state
            case _:
                pass

    def _alive(self, state: Simple, effect: Effect) -> Iterator[Simple]:
        if state.exists and effect.epoch in (0, state.epoch):
            yield state

    def _created(self, state: Simple, effect: Effect) -> Iterator[Simple]:
        for over in state.ended():
            for epoch in (0, *self._epochs):
                if (not epoch or epoch > over.last) and effect.epoch in (0, epoch):
                    yield over._replace(exists=True, epoch=epoch, last=max(epoch, over.last))

    def _append(self, state: Simple, effect: Effect) -> Iterator[Simple]:
        asked = effect.operation
        repeated = not effect.answered and asked.done and 0 < asked.topic_id <= state.last
        if effect.double in state.doubled or repeated:
            return
        if effect.offset in (-1, len(state.log)):
            doubled = state.doubled | {effect.double} if effect.double else state.doubled
            yield state._replace(log=(*state.log, *cut(effect.digests)), doubled=doubled)

    def _observe(self, state: Simple, effect: Effect) -> Iterator[Simple]:
        asked = effect.operation
        if asked.error == NO_SUCH_TOPIC:
            yield from state.ended()
            return
        opened = self._created(state, effect) if effect.put_before else ()
        for now in (*self._alive(state, effect), *opened):
            if asked.next == len(now.log) and holds(now.epoch, now.log, asked):
                yield now


def holds(epoch: int, log: tuple[bytes, ...], asked: Operation) -> bool:
    shown = tuple(cut(asked.digests))
    begin = max(0, asked.offset)
    return asked.topic_id in (0, epoch) and log[begin : begin + len(shown)] == shown


def has_an_order(problem: Problem, epochs: set[int]) -> bool:
    """Try all orders with the reference."""
    items, model = problem.items, Reference(epochs)
    shown = [item.effect.operation for item in items]
    longest = max(0, *(max(each.next, each.offset + each.messages) for each in shown))
    failed: set[tuple[frozenset[int], Simple, float]] = set()

    def solvable(taken: frozenset[int], state: Simple, latest: float) -> bool:
        left = [at for at in range(len(items)) if at not in taken]
        if not any(items[at].must for at in left):
            return True
        if (taken, state, latest) in failed or len(state.log) > longest:
            return False
        failed.add((taken, state, latest))
        horizon = min(items[at].due for at in left if items[at].must)
        return any(
            solvable(taken if items[at].often else taken | {at}, new, max(latest, items[at].call))
            for at in left
            if items[at].call <= horizon and latest <= items[at].due and in_turn(items, at, taken)
            for new in model.step(state, items[at].effect)
        )

    return solvable(frozenset(), Simple(), -inf)


def in_turn(items: list[Item], at: int, taken: frozenset[int]) -> bool:
    """Return whether the item may follow the taken items of its chain."""
    item = items[at]
    if item.chain is None:
        return True
    chain = [n for n in range(len(items)) if items[n].chain == item.chain]
    before = [n for n in chain if items[n].call < item.call and items[n].must]
    behind = [n for n in chain if items[n].call > item.call]
    return all(n in taken for n in before) and not any(n in taken for n in behind)


# -- small histories --


class Storm:
    """Draws a small legal history of unanswered puts, publishes and topic deletions."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.time, self.epoch, self.exists = 2.0, 1, False
        self.log: list[str] = []
        self.history: History = []
        if self.rng.random() < 0.2:
            self.exists = True
            self.history.append(SUB)
        self._called: dict[str, float] = {}

    def run(self) -> History:
        rng = self.rng
        kinds = ["lost"] * 3 + ["put", "publish", "publish", "look", "scan", "get", "end", "end"]
        drawn = rng.choices(kinds, k=rng.randint(3, 5))
        for number, kind in enumerate([rng.choice(("publish", "lost")), *drawn]):
            self.time += 1
            self._act(kind, f"m{number}", number)
        self.time += 20
        self._look()
        if rng.random() < 0.5:
            self.history.append(ENDS_LATER)
        return self.history

    def _act(self, kind: str, name: str, number: int) -> None:
        rng, log, now = self.rng, self.log, self.time
        if kind in ("lost", "put"):
            self._put(name, lost=kind == "lost")
        elif kind == "publish":
            returned = rng.choice((now + 0.5, now + 3, None))
            offset = -1 if returned is None else len(log)
            self.history += publish(now, returned, offset, value=name, number=number)
            self._store(name)
        elif kind == "end":
            self._end()
        elif kind == "look" or not log:
            self._look()
        else:
            at = rng.randrange(len(log))
            shown = log[at : at + 2]
            if kind == "get":
                self.history.append(got(now, at, *shown, topic_id=self.epoch))
            else:
                where = {"topic_id": self.epoch, "start": None}
                self.history.append(scanned(now, now + 0.5, len(log), at, *shown, **where))

    def _put(self, name: str, *, lost: bool) -> None:
        """Put after earlier puts by the same client. A put without an answer may be in flight."""
        rng, now = self.rng, self.time
        client = rng.choice(("bob", "eve"))
        if lost:
            call = max(now - rng.choice((0, 0.9, 4.8)), self._called.get(client, 0.0) + 0.01)
            self.history.append(lost_put(call, name, client=client))
            if rng.random() < 0.1:
                return  # the put is never stored
        else:
            call, end = now, len(self.log)
            late = now + rng.choice((0.5, 3))
            self.history.append(put(now, late, end, name, topic_id=self.epoch, client=client))
        self._called[client] = call
        self._store(name)

    def _store(self, name: str) -> None:
        self.exists = True
        self.log.append(name)

    def _look(self) -> None:
        now = self.time
        if self.exists:
            self.history.append(look(now, now + 0.5, len(self.log), topic_id=self.epoch))
        else:
            self.history.append(no_topic(now, now + 0.5))

    def _end(self) -> None:
        """End the topic. The next put creates it, unless a command does."""
        now = self.time
        self.history.append(deleted(now, now + 0.3, already=not self.exists))
        self.epoch += self.exists
        self.exists = self.rng.random() < 0.3
        self.log.clear()
        if self.exists:
            self.history.append(created(now + 0.4, now + 0.5, topic_id=self.epoch))


def topic_of(history: History) -> Part:
    return next(parts(TOPIC, sorted(history, key=lambda each: each.call)))


def outcome_of(problem: Problem) -> Outcome:
    found = search(problem.items, problem.initial, problem.model, steps_max=STEPS_MAX)
    assert found.outcome is not Outcome.UNDECIDED
    if found.outcome is Outcome.LINEARIZABLE:
        assert is_an_order(problem, found.order)
    return found.outcome


def spoiled_storm(seed: int) -> tuple[Part, set[int]]:
    """Return a history with wrong answers, limited to features that the reference has."""
    rng = Random(seed)
    history = spoiled(spoiled(Storm(seed).run(), rng), rng)
    for each in history:
        each.first = min(each.first, 0)
        if each.kind == "subscribe":
            each.offset = 0
        if each.kind == "get":
            each.topic_id = max(each.topic_id, 1)
        if each.kind in ("delete", "unsubscribe"):
            each.topic_id = 0  # the answers to these never name an epoch
    return topic_of(history), {each.topic_id for each in history} - {0}


@given(st.integers(0, 1 << 32))
def test_legal_history_with_unknown_epochs_is_linearizable(seed: int) -> None:
    assert outcome_of(topic_of(Storm(seed).run()).problem()) is Outcome.LINEARIZABLE


@given(st.integers(0, 1 << 32))
def test_search_with_unknown_epochs_agrees_with_the_reference(seed: int) -> None:
    part, epochs = spoiled_storm(seed)
    legal = has_an_order(part.problem(narrow=False), epochs)
    for narrow in (False, True):
        assert legal == (outcome_of(part.problem(narrow=narrow)) is Outcome.LINEARIZABLE)


@given(st.integers(0, 1 << 32))
def test_legal_history_stays_legal_if_operations_are_omitted(seed: int) -> None:
    """Otherwise a finding could show operations that do not contradict each other."""
    part, rng = topic_of(Storm(seed).run()), Random(seed)
    loose = frozenset(id(each) for each in part.answered() if rng.random() < 0.5)
    assert outcome_of(part.problem(loose)) is Outcome.LINEARIZABLE


def test_storms_with_unknown_epochs_include_legal_and_illegal_histories() -> None:
    """Otherwise the tests above would prove little."""
    outcomes = Counter(outcome_of(spoiled_storm(seed)[0].problem()) for seed in range(100))
    assert min(outcomes[Outcome.LINEARIZABLE], outcomes[Outcome.IMPOSSIBLE]) > 10, outcomes


def test_search_does_not_repeat_an_unanswered_put_without_end() -> None:
    """The put may create a new epoch each time, because the topic may end without an answer."""
    unseen = got(23, 1, "z", topic_id=0)
    history = [created(0, 1), deleted(17, None), lost_put(22, "x", "y"), unseen]
    verdict = check(history, steps_max=2000)
    assert verdict.broken, verdict
