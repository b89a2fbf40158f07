"""Searches for an order of operations that respects time and that the model allows.

This is the search of Wing and Gong (JPDC 1993) with Lowe's memory of failed configurations (CCPE
2017), as in Porcupine. Take any operation that was called before all remaining operations have
returned, apply it to the model, and continue. If no operation can be taken, backtrack. A
configuration is the set of taken operations and the state of the model.

These rules keep the search short:

- Operations with a known order share a lane. Only the first operation of a lane can be taken.
- An item that only reads is taken as soon as possible, without backtracking, because waiting cannot
  help. The same holds for an item that changes nothing now, if another item can replace it later.
  It waits for optional items that would have to come before it.
- Otherwise the item that is due first is tried first.
- If the model says that an item comes too late, the search backtracks immediately. The same holds
  if the state has passed the last stage of any remaining item, even one that cannot be taken yet.
- A guess is an optional item without any evidence. The search first makes no guess, then one,
  then two, and so on. An optional put that fills a known gap is a guess only if it skips others.
- A configuration fails if it equals a failed one and has spent at least as much. The failed one
  could have taken the same items.
- An item that is skipped in its lane can never be taken, so it counts as spent.
- Among items that are alike, only the item that was called first is tried.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple
from typing import Protocol as Interface

STEPS_MAX = 5_000_000
FEW_STEPS = 50  # maximum steps per item in the first round, for each number of guesses
ANY_NUMBER = -1
GUESSES = (0, 1, 2, 4, 8, ANY_NUMBER)

Stage = tuple[int, int]


class Model(Interface):
    """Decides which items a state allows. States are hashable and immutable."""

    def step(self, state: Any, effect: Any) -> tuple[Any, ...]:
        """Return the possible next states, or none if the item is not allowed now."""

    def late(self, state: Any, effect: Any) -> bool:
        """Return whether an item that is not allowed now will never be allowed."""

    def guess(self, state: Any, effect: Any, skips: bool) -> bool:
        """Return whether an optional item that is allowed has no evidence.

        `skips`: taking it would omit earlier items of its chain.
        """

    def stage(self, state: Any) -> Stage | None:
        """Return the progress of the state, or None if it is unknown. See `Item.stage`."""

    def spent(self, state: Any) -> tuple[Any, frozenset[int]]:
        """Return the state without its spent items, and the spent items.

        If two states differ only in their spent items, the state that has spent less allows
        everything that the other state allows.
        """


class Item(NamedTuple):
    """An element of the order, to be taken between its `call` and its `due` time."""

    effect: Any  # passed to the model
    call: float
    due: float = inf
    must: bool = True  # whether the item is mandatory; otherwise it is optional
    chain: Hashable = None  # items of one chain are taken in the order of their calls
    often: bool = False  # whether it may be taken any number of times
    reads: bool = False  # whether no later item depends on this item
    twin: bool = False  # whether another item can make the same change later
    rank: int = 0  # items with a lower rank are tried first
    guess: bool = False  # whether there can never be evidence for the item
    # Items with the same value, if it is not None, differ only in their calls, in their last stages
    # and in what they spend. They are optional and never due. Consider those with the same last
    # stage: a state allows all or none that it has spent, and all or none that it has not spent.
    like: Hashable = None
    spends: int = 0  # the number that `Model.spent` contains after this item
    # The item can only be taken at this stage, or to begin a stage with this first number. Stages
    # only grow. This saves most calls of the model.
    stage: Stage | None = None
    last: Stage | None = None  # the item cannot be taken at a later stage


class Outcome(Enum):
    LINEARIZABLE = "linearizable"
    IMPOSSIBLE = "impossible"
    UNDECIDED = "undecided"


class Found(NamedTuple):
    """The `order` of all items if there is one, or else the farthest point of the search."""

    outcome: Outcome
    steps: int
    order: list[Item]
    stuck: list[Item]  # the possible next items at the farthest point
    state: Any
    guesses: bool = False  # whether more guesses might have helped
    until: float = inf  # items called later than this time were not considered


def search(
    items: Sequence[Item], initial: Any, model: Model, *, steps_max: int = STEPS_MAX
) -> Found:
    steps, limit = 0, FEW_STEPS * max(1000, len(items))
    levels = list(GUESSES)
    while True:
        for guesses in list(levels):
            found = _Search(items, initial, model, min(limit, steps_max - steps), guesses).run()
            steps += found.steps
            if found.outcome is Outcome.LINEARIZABLE or steps >= steps_max:
                return found._replace(steps=steps)
            if found.outcome is Outcome.IMPOSSIBLE:
                if not found.guesses:
                    return found._replace(steps=steps)
                levels.remove(guesses)  # every valid order would need more guesses
        limit *= 10


Choice = tuple[int, int, Any, bool]  # lane, position in the lane, new state, is a guess
first = itemgetter(0)


class _Spent(NamedTuple):
    """The optional items that a configuration has used."""

    extra: int
    doubled: frozenset[int]
    guesses: int  # number of remaining guesses
    latest: float

    def covers(self, other: _Spent) -> bool:
        """Return whether `other` has spent at least as much as this one."""
        return (
            self.latest <= other.latest
            and self.guesses >= other.guesses
            and not self.extra & ~other.extra
            and self.doubled <= other.doubled
        )


class _Frame(NamedTuple):
    """The remaining choices of a step, and the configuration before it."""

    choices: Iterator[Choice]
    lane: int
    position: int
    state: Any
    low: int
    taken: int
    extra: int
    latest: float
    guesses: int
    done: int  # number of leading items, by their last stages, that were taken


class _Search:
    def __init__(
        self, items: Sequence[Item], initial: Any, model: Model, steps_max: int, guesses: int
    ) -> None:
        self._model, self._steps_max = model, steps_max
        self._guesses = guesses  # number of remaining guesses
        self._more = False  # whether more guesses would have allowed more choices
        self._lanes = lanes(items)
        self._heads = [0] * len(self._lanes)
        must = sorted((item for item in items if item.must), key=attrgetter("due"))
        self._dues = [item.due for item in must]
        self._rank = {id(item): rank for rank, item in enumerate(must)}
        self._ending = ending(items)
        self._done = 0  # number of leading items of `_ending` that are taken
        rest = (id(item) for item in items if not item.must)
        self._bit = {item: 1 << n for n, item in enumerate(rest)}
        self._optional_dues = sorted(item.due for item in items if not item.must)
        self._state = initial
        self._low = 0  # all mandatory items below this rank are taken
        self._taken = 0  # a bit for each rank from `low` on
        self._extra = 0  # a bit for each optional item that was taken
        self._latest = -inf  # the latest call time of a taken item
        self._order: list[Item] = []
        self._steps = 0
        self._failed: dict[Any, list[_Spent]] = {}
        self._farthest = -1
        self._until = -inf
        self._stuck: list[Item] = []
        self._stuck_state = initial

    def run(self) -> Found:
        frames: list[_Frame] = []
        total = len(self._dues)
        choices = self._choices()
        while self._low < total:
            if self._steps > self._steps_max:
                return self._found(Outcome.UNDECIDED)
            choice = next(choices, None)
            if choice is not None:
                frame = self._take(choice, choices)
                if self._failed and self._has_failed():
                    self._back(frame)
                    continue
                if self._order[-1].often:  # prevents taking it in an endless loop
                    self._fail()
                frames.append(frame)
                choices = self._choices()
                continue
            self._note_stuck()
            if not frames:
                return self._found(Outcome.IMPOSSIBLE)
            self._fail()
            frame = frames.pop()
            self._back(frame)
            choices = frame.choices
        return Found(Outcome.LINEARIZABLE, self._steps, self._order, [], self._state)

    # -- choices --

    def _choices(self) -> Iterator[Choice]:
        """Return a single choice that is always safe, or else all possible choices."""
        model, state = self._model, self._state
        stage = model.stage(state)
        if stage is not None and self._has_passed(stage):
            return iter(())
        possible: list[tuple[Any, Choice]] = []
        tried: dict[Hashable, None] = {}
        for lane, at, item in self._open():
            if stage is not None and is_at_another(item, stage):
                continue
            if item.guess and not self._guesses:
                self._more = True
                continue
            if item.like is not None and self._is_tried(item, tried):
                continue
            self._steps += 1
            new = model.step(state, item.effect)
            if not new:
                if item.must and model.late(state, item.effect):
                    return iter(())
                continue
            if new[0] is state and len(new) == 1:
                if (item.reads or item.twin) and self._shuts_out_nothing(item):
                    return iter(((lane, at, state, False),))
                if not item.must:
                    continue
            guess = self._is_guess(item, skips=at > self._heads[lane])
            if guess and not self._guesses:
                self._more = True
                continue
            order = (not item.must, guess, item.rank, item.due, item.call, lane, at)
            possible += [(order, (lane, at, each, guess)) for each in new]
        if len(possible) > 1:
            possible.sort(key=first)
        return iter([choice for _, choice in possible])

    def _has_passed(self, stage: Stage) -> bool:
        """Return whether an item that is not taken yet had to be taken before this stage."""
        return self._done < len(self._ending) and self._ending[self._done][0] < stage

    def _is_tried(self, item: Item, tried: dict[Hashable, None]) -> bool:
        """Return whether an item like this one was already tried. Remember that it was."""
        # A put may begin a stage that is too late for another put.
        alike = (item.like, item.last, item.spends in self._model.spent(self._state)[1])
        if alike in tried:
            return True
        tried[alike] = None
        return False

    def _is_guess(self, item: Item, *, skips: bool) -> bool:
        if item.guess or item.must:
            return item.guess
        return self._model.guess(self._state, item.effect, skips)

    def _shuts_out_nothing(self, item: Item) -> bool:
        """Return whether every remaining optional item can still come after this item."""
        dues, before = self._optional_dues, bisect_left(self._optional_dues, self._latest)
        return before == len(dues) or item.call <= dues[before]

    def _open(self) -> Iterator[tuple[int, int, Item]]:
        """Yield the lane, position and item of each item that can be taken next."""
        if self._low == len(self._dues):
            return
        horizon = self._dues[self._low]
        self._until = max(self._until, horizon)
        all_lanes = self._lanes
        for lane, at in enumerate(self._heads):
            members = all_lanes[lane]
            while at < len(members):
                item = members[at]
                if item.call > horizon:
                    break
                if item.must:
                    yield lane, at, item
                    break
                if self._latest <= item.due:
                    yield lane, at, item
                at += 1

    # -- steps --

    def _take(self, choice: Choice, choices: Iterator[Choice]) -> _Frame:
        lane, at, state, guess = choice
        item = self._lanes[lane][at]
        frame = _Frame(
            choices,
            lane,
            self._heads[lane],
            self._state,
            self._low,
            self._taken,
            self._extra,
            self._latest,
            self._guesses,
            self._done,
        )
        self._state = state
        self._latest = max(self._latest, item.call)
        self._order.append(item)
        if guess and self._guesses > 0:
            self._guesses -= 1
        if item.often:
            return frame
        self._heads[lane] = at + 1
        if item.must:
            self._taken |= 1 << (self._rank[id(item)] - self._low)
            while self._taken & 1:
                self._taken >>= 1
                self._low += 1
            self._advance()
        for gone in self._lanes[lane][frame.position : at + 1]:
            if not gone.must:
                self._extra |= self._bit[id(gone)]
        return frame

    def _advance(self) -> None:
        ending, done = self._ending, self._done
        while done < len(ending) and self._is_taken(ending[done][1]):
            done += 1
        self._done = done

    def _is_taken(self, item: Item) -> bool:
        after = self._rank[id(item)] - self._low
        return after < 0 or bool(self._taken >> after & 1)

    def _back(self, frame: _Frame) -> None:
        self._heads[frame.lane] = frame.position
        self._state, self._low = frame.state, frame.low
        self._taken, self._extra = frame.taken, frame.extra
        self._latest, self._guesses = frame.latest, frame.guesses
        self._order.pop()
        self._done = frame.done

    # -- configurations that have failed --

    def _has_failed(self) -> bool:
        key, spent = self._configuration()
        return any(each.covers(spent) for each in self._failed.get(key, ()))

    def _fail(self) -> None:
        key, spent = self._configuration()
        failed = self._failed.setdefault(key, [])
        if failed:
            failed[:] = [each for each in failed if not spent.covers(each)]
        failed.append(spent)

    def _configuration(self) -> tuple[Any, _Spent]:
        state, doubled = self._model.spent(self._state)
        spent = _Spent(self._extra, doubled, self._guesses, self._latest)
        return (self._low, self._taken, state), spent

    # -- results --

    def _note_stuck(self) -> None:
        taken = self._low + self._taken.bit_count()
        if taken > self._farthest:
            self._farthest = taken
            self._stuck = [item for _, _, item in self._open()]
            self._stuck_state = self._state

    def _found(self, outcome: Outcome) -> Found:
        where = (self._stuck, self._stuck_state)
        return Found(outcome, self._steps, [], *where, self._more, self._until)


def is_at_another(item: Item, stage: Stage) -> bool:
    """Return whether the item can only be taken at another stage."""
    if item.stage is not None and item.stage[0] == stage[0]:
        return item.stage[1] != stage[1]
    return item.last is not None and item.last < stage


def ending(items: Sequence[Item]) -> list[tuple[Stage, Item]]:
    """Return (stage, item) for each mandatory item with a fixed or last stage, by stage."""
    lasts = ((item.last or item.stage, item) for item in items if item.must)
    return sorted(((last, item) for last, item in lasts if last is not None), key=first)


def lanes(items: Sequence[Item]) -> list[list[Item]]:
    """Return a lane for each chain. Other items share as few lanes as their times allow."""
    chains: dict[Hashable, list[Item]] = {}
    rest: list[list[Item]] = []
    free: list[tuple[float, int]] = []  # due time of the last item of a lane, and the lane
    for item in sorted(items, key=lambda each: each.call):
        if item.chain is not None:
            chains.setdefault(item.chain, []).append(item)
        elif not item.must:
            rest.append([item])  # a lane of its own, because it may be skipped
        elif free and free[0][0] < item.call:
            _, lane = heappop(free)
            rest[lane].append(item)
            heappush(free, (item.due, lane))
        else:
            rest.append([item])
            heappush(free, (item.due, len(rest) - 1))
    return [*chains.values(), *rest]
