"""Is there an order of the operations, in accord with time, in which the model allows each one?

The search of Wing and Gong (JPDC 1993), with Lowe's memory of failed configurations (CCPE 2017), as
Porcupine does it: take any operation that was called before all operations left have returned,
apply it to the model, go on; where nothing can be taken, go back. A configuration is the set of
operations that were taken, and the model's state. Three things keep it short:

- Operations that are ordered anyway share a lane, and only the first of a lane can be taken.
- What only reads, and can be taken, is taken at once with no way back: to wait could not help.
- Otherwise the operation that has to be taken soonest is tried first.
- Where the model says of an operation that it comes too late, the search goes back at once.
- A guess is an item that may be left out and that nothing speaks for. The search first makes none,
  then one, then two, and so on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from heapq import heappop, heappush
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple
from typing import Protocol as Interface

STEPS_MAX = 5_000_000
FEW_STEPS = 20_000  # for each number of guesses, before all are tried with more
ANY_NUMBER = -1
GUESSES = (0, 1, 2, 4, 8, ANY_NUMBER)


class Model(Interface):
    """States are hashable and never change."""

    def step(self, state: Any, what: Any) -> tuple[Any, ...]:
        """Return the states that it may lead to; none if it is not allowed now."""

    def late(self, state: Any, what: Any) -> bool:
        """Return whether something that is not allowed now never will be."""

    def guess(self, state: Any, what: Any) -> bool:
        """Return whether nothing speaks for something that is allowed and may be left out."""


class Item(NamedTuple):
    """What a search takes, between its `call` and when it is `due`."""

    what: Any  # for the model
    call: float
    due: float = inf
    must: bool = True  # otherwise it may be left out
    chain: Hashable = None  # items of one chain are taken in the order of their calls
    often: bool = False  # it may be taken any number of times
    reads: bool = False  # nothing that comes later needs it
    rank: int = 0  # those of a lower rank are tried first


class Outcome(Enum):
    LINEARIZABLE = "linearizable"
    IMPOSSIBLE = "impossible"
    UNDECIDED = "undecided"


class Found(NamedTuple):
    """`order` of all items, if there is one; otherwise where the search came farthest."""

    outcome: Outcome
    steps: int
    order: list[Item]
    stuck: list[Item]  # of these one would have had to be next
    state: Any
    guesses: bool = False  # more of them might have helped
    until: float = inf  # nothing that was called later was looked at


Choice = tuple[int, int, Any, bool]  # lane, position in it, new state, and whether it is a guess
first = itemgetter(0)


class _Frame(NamedTuple):
    """What it takes to go back: the choices that are left, and all as it was."""

    choices: Iterator[Choice]
    lane: int
    position: int
    state: Any
    low: int
    taken: int
    extra: int
    latest: float
    guesses: int


def search(
    items: Sequence[Item], initial: Any, model: Model, *, steps_max: int = STEPS_MAX
) -> Found:
    steps, limit = 0, FEW_STEPS
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
                levels.remove(guesses)  # it takes more of them
        limit *= 10


class _Search:
    def __init__(
        self, items: Sequence[Item], initial: Any, model: Model, steps_max: int, guesses: int
    ) -> None:
        self._items, self._model, self._steps_max = items, model, steps_max
        self._guesses = guesses  # that are left
        self._more = False  # with more guesses there would have been more choices
        must = sorted((i for i, item in enumerate(items) if item.must), key=lambda i: items[i].due)
        self._dues = [items[i].due for i in must]
        self._rank = {i: rank for rank, i in enumerate(must)}
        rest = (i for i, item in enumerate(items) if not item.must)
        self._bit = {i: 1 << n for n, i in enumerate(rest)}
        self._lanes = lanes(items)
        self._heads = [0] * len(self._lanes)
        self._state = initial
        self._low = 0  # all that must be taken, and is due before this rank, is taken
        self._taken = 0  # a bit for each rank from `low` on
        self._extra = 0  # a bit for each taken item that need not be
        self._latest = -inf  # the last call of what is taken
        self._order: list[int] = []
        self._steps = 0
        self._failed: set[Any] = set()
        self._farthest = -1
        self._until = -inf
        self._stuck: list[int] = []
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
                often = self._items[self._lanes[choice[0]][choice[1]]].often
                frame = self._take(choice, choices)
                if (self._failed or often) and self._key() in self._failed:
                    self._back(frame)
                    continue
                if often:  # lest it be taken in circles
                    self._failed.add(self._key())
                frames.append(frame)
                choices = self._choices()
                continue
            self._note_stuck()
            if not frames:
                return self._found(Outcome.IMPOSSIBLE)
            self._failed.add(self._key())
            frame = frames.pop()
            self._back(frame)
            choices = frame.choices
        order = [self._items[i] for i in self._order]
        return Found(Outcome.LINEARIZABLE, self._steps, order, [], self._state)

    # -- choices --

    def _choices(self) -> Iterator[Choice]:
        """What cannot harm, or else all that is possible."""
        items, state, step = self._items, self._state, self._model.step
        possible: list[tuple[Any, Choice]] = []
        for lane, at in self._open():
            item = items[self._lanes[lane][at]]
            self._steps += 1
            new = step(state, item.what)
            if len(new) == 1 and new[0] is state:
                if item.reads:
                    return iter(((lane, at, state, False),))
                if not item.must:
                    continue
            if not new:
                if item.must and self._model.late(state, item.what):
                    return iter(())
                continue
            guess = not item.must and self._model.guess(state, item.what)
            if guess and not self._guesses:
                self._more = True
                continue
            order = (not item.must, guess, item.rank, item.due, lane, at)
            possible += [(order, (lane, at, each, guess)) for each in new]
        possible.sort(key=first)
        return iter([choice for _, choice in possible])

    def _open(self) -> list[tuple[int, int]]:
        """What was called before anything that is left has returned."""
        if self._low == len(self._dues):
            return []
        items, horizon = self._items, self._dues[self._low]
        self._until = max(self._until, horizon)
        found: list[tuple[int, int]] = []
        for lane, at in enumerate(self._heads):
            members = self._lanes[lane]
            while at < len(members):
                item = items[members[at]]
                if item.call > horizon:
                    break
                if item.must or self._latest <= item.due:
                    found.append((lane, at))
                if item.must:
                    break
                at += 1
        return found

    # -- there and back --

    def _take(self, choice: Choice, choices: Iterator[Choice]) -> _Frame:
        lane, at, state, guess = choice
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
        )
        index = self._lanes[lane][at]
        item = self._items[index]
        self._state = state
        self._latest = max(self._latest, item.call)
        self._order.append(index)
        if guess and self._guesses > 0:
            self._guesses -= 1
        if item.often:
            return frame
        self._heads[lane] = at + 1
        if item.must:
            self._taken |= 1 << (self._rank[index] - self._low)
            while self._taken & 1:
                self._taken >>= 1
                self._low += 1
        else:
            self._extra |= self._bit[index]
        return frame

    def _back(self, frame: _Frame) -> None:
        self._heads[frame.lane] = frame.position
        self._state, self._low = frame.state, frame.low
        self._taken, self._extra = frame.taken, frame.extra
        self._latest, self._guesses = frame.latest, frame.guesses
        self._order.pop()

    def _key(self) -> Any:
        return self._low, self._taken, self._extra, self._guesses, self._state

    # -- the end --

    def _note_stuck(self) -> None:
        taken = self._low + self._taken.bit_count()
        if taken > self._farthest:
            self._farthest = taken
            self._stuck = [self._lanes[lane][at] for lane, at in self._open()]
            self._stuck_state = self._state

    def _found(self, outcome: Outcome) -> Found:
        stuck = [self._items[i] for i in self._stuck]
        return Found(outcome, self._steps, [], stuck, self._stuck_state, self._more, self._until)


def lanes(items: Sequence[Item]) -> list[list[int]]:
    """A lane for each chain; the other items share as few lanes as their times allow."""
    chains: dict[Hashable, list[int]] = {}
    rest: list[list[int]] = []
    free: list[tuple[float, int]] = []  # when the last of a lane is due, and the lane
    for index in sorted(range(len(items)), key=lambda i: items[i].call):
        item = items[index]
        if item.chain is not None:
            chains.setdefault(item.chain, []).append(index)
        elif not item.must:
            rest.append([index])  # if it is skipped, nothing may wait behind it
        elif free and free[0][0] < item.call:
            _, lane = heappop(free)
            rest[lane].append(index)
            heappush(free, (item.due, lane))
        else:
            rest.append([index])
            heappush(free, (item.due, len(rest) - 1))
    return [*chains.values(), *rest]
