"""A model of a subscription's possible answers: only the current epoch moves the cursor.

Acks that are sent with other requests get no answer. Until an answer shows it, the cursor may be at
any offset that was acknowledged in its epoch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf
from typing import NamedTuple, TypeAlias

from oncecast.history.operation import NO_SUCH_TOPIC, NOT_SUBSCRIBED, Operation
from oncecast.wire.commands import FromOffset

ANYWHERE = -1  # an unknown cursor


class SubscriptionState(NamedTuple):
    exists: bool
    topic_id: int = 0  # 0 if unknown
    epoch: int = 0  # the last known epoch
    loose: bool = False  # whether the current epoch is later than the last known one
    cursor: int = 0


States: TypeAlias = tuple[SubscriptionState, ...]

ABSENT = SubscriptionState(False)
NOTHING: frozenset[int] = frozenset()


class Move(NamedTuple):
    """The effect of an operation on a subscription. An `answered` move must fit its answer."""

    operation: Operation
    answered: bool = True
    cursor: int = 0  # the cursor in the answer to a look
    epoch: int = 0
    seen: bool = True  # whether the answer to a look contains the subscription
    first: int = -1  # the first kept offset, or -1 if unknown
    unknown: bool = False  # whether an epoch that no client knows of may have begun by then

    def silent(self) -> Move:
        return self._replace(answered=False)


class SubscriptionModel:
    """The rules of a subscription. `sought` has the epochs of answered seeks."""

    def __init__(self, sought: set[int]) -> None:
        self.sought = sought
        self._acks: dict[int, list[tuple[int, float]]] = {}  # offsets and call times, by epoch

    def acknowledged(self, epoch: int, upto: int, call: float) -> None:
        """Record that an ack is in flight from time `call` on."""
        insort(self._acks.setdefault(epoch, []), (upto, call))

    def step(self, state: SubscriptionState, move: Move) -> States:
        operation = move.operation
        if operation.error in (NO_SUCH_TOPIC, NOT_SUBSCRIBED):
            return () if state.exists else (state,)
        match operation.kind:
            case "subscribe":
                return tuple(self._subscribe(state, move))
            case "unsubscribe":
                return self._unsubscribe(state, move)
            case "delete":
                if state.exists:
                    return (ABSENT._replace(epoch=state.epoch),)
                return (state,) if move.answered else ()
            case "attach":
                return tuple(self._attach(state, move))
            case "moved":
                return self._moved(state, move)
            case "ack" | "leave":
                return self._ack(state, operation)
            case "seek":
                return self._seek(state, move)
            case "look" | "scan":
                return self._look(state, move)
            case _:
                raise AssertionError(f"a {operation.kind} has no effect on a subscription")

    def late(self, state: SubscriptionState, move: Move) -> bool:
        """Return whether the operation belongs to an older epoch, because epochs only grow."""
        operation = move.operation
        if not move.answered or operation.error:
            return False
        match operation.kind:
            case "attach" | "seek":
                return 0 < operation.epoch < state.epoch
            case "look":
                return move.seen and operation.views is not None and move.epoch < state.epoch
            case _:
                return False

    def guess(self, state: SubscriptionState, move: Move, skips: bool) -> bool:
        return not move.answered

    def stage(self, state: SubscriptionState) -> None:
        return None

    def spent(self, state: SubscriptionState) -> tuple[SubscriptionState, frozenset[int]]:
        return state, NOTHING

    def _subscribe(self, state: SubscriptionState, move: Move) -> Iterator[SubscriptionState]:
        operation = move.operation
        if not state.exists:
            topic_id = operation.topic_id if move.answered else 0
            cursor = operation.offset if move.answered else ANYWHERE
            yield SubscriptionState(True, topic_id, state.epoch, True, cursor)
        elif move.answered and operation.already and fits(operation.topic_id, state.topic_id):
            yield from self._reach(named(state, operation.topic_id), operation.offset, operation)

    def _unsubscribe(self, state: SubscriptionState, move: Move) -> States:
        if state.exists:
            return (ABSENT._replace(epoch=state.epoch),)
        return (state,) if move.answered and move.operation.already else ()

    # -- readers --

    def _attach(self, state: SubscriptionState, move: Move) -> Iterator[SubscriptionState]:
        operation = move.operation
        if not state.exists or not fits(operation.topic_id, state.topic_id):
            return
        if not move.answered:
            if operation.epoch > state.epoch:
                cursor = ANYWHERE if operation.start is not None else state.cursor
                yield state._replace(epoch=operation.epoch, loose=False, cursor=cursor)
            return
        if operation.epoch and operation.epoch <= state.epoch:
            # A reader that is moved before its attach is answered learns the new position.
            moved = operation.epoch == state.epoch and (move.unknown or state.epoch in self.sought)
            if not moved:
                return
        state = named(state, operation.topic_id)
        epoch, offset = operation.epoch or state.epoch, operation.offset
        if not isinstance(operation.start, FromOffset):
            for now in self._reach(state, offset, operation):
                yield now._replace(epoch=epoch, loose=False)
            return
        asked = operation.start.offset
        if offset == asked and state.cursor <= asked:
            # The cursor is at or below `asked`, and uncertain if acks of this epoch are in flight.
            ahead = next(self._ahead(state, state.cursor + 1, operation), asked + 1) <= asked
            cursor = ANYWHERE if ahead else state.cursor
            yield state._replace(epoch=epoch, loose=False, cursor=cursor)
        # The cursor was beyond `asked` and moved back as far as the kept messages allow.
        if offset == asked or (offset > asked and any(self._keeps(state, move))):
            yield state._replace(epoch=epoch, loose=False, cursor=offset)

    def _moved(self, state: SubscriptionState, move: Move) -> States:
        """Apply a seek that a reader has observed, possibly as the only client."""
        operation = move.operation
        if operation.epoch <= state.epoch:
            return (state,)
        if not move.unknown or not state.exists:
            return ()
        return (state._replace(epoch=operation.epoch, loose=False, cursor=operation.offset),)

    def _ack(self, state: SubscriptionState, ack: Operation) -> States:
        if not state.exists or not fits(ack.topic_id, state.topic_id):
            return ()
        if state.cursor == ANYWHERE or state.cursor >= ack.upto:
            return (state,)
        if ack.epoch and (ack.epoch != state.epoch or state.loose):
            return ()
        return (state._replace(cursor=ack.upto),)

    def _seek(self, state: SubscriptionState, move: Move) -> States:
        operation = move.operation
        if not state.exists:
            return ()
        lost = state._replace(loose=True, cursor=ANYWHERE)
        if not move.answered:
            if operation.done and operation.epoch > state.epoch:
                return (lost, lost._replace(epoch=operation.epoch, loose=False))
            return (lost,)
        if operation.epoch and operation.epoch <= state.epoch:
            return ()
        if not any(self._keeps(state, move)):
            return ()
        epoch = operation.epoch or state.epoch
        return (state._replace(epoch=epoch, loose=False, cursor=operation.offset),)

    # -- answers --

    def _look(self, state: SubscriptionState, move: Move) -> States:
        operation = move.operation
        if not move.seen:
            return () if state.exists else (state,)
        if operation.views is None:
            return tuple(self._keeps(state, move))
        if not state.exists or not fits(operation.topic_id, state.topic_id):
            return ()
        if move.first > move.cursor or move.epoch < state.epoch:
            return ()
        state = named(state, operation.topic_id)
        if move.epoch == state.epoch:
            return tuple(self._reach(state, move.cursor, operation))
        if not (state.loose or move.unknown):
            return ()
        # An ack in the new epoch moved the cursor, or an earlier ack in the old epoch did.
        later = state._replace(epoch=move.epoch, loose=False)
        before = [now.cursor for now in self._reach(state, move.cursor, operation)]
        if before:
            return (later._replace(cursor=before[0]),)
        return tuple(self._reach(later, move.cursor, operation))

    def _keeps(self, state: SubscriptionState, move: Move) -> Iterator[SubscriptionState]:
        """Yield the state if every message from its cursor on is still kept."""
        if not state.exists or state.cursor == ANYWHERE or state.cursor >= move.first:
            yield state
            return
        for upto in self._ahead(state, move.first, move.operation):
            yield state._replace(cursor=upto)
            return

    # -- acks in flight --

    def _reach(
        self, state: SubscriptionState, offset: int, by: Operation
    ) -> Iterator[SubscriptionState]:
        """Yield the state with its cursor at `offset`, if the cursor can be there."""
        if state.cursor == offset:
            yield state
            return
        reachable = state.cursor < offset == next(self._ahead(state, offset, by), -1)
        if reachable or state.cursor == ANYWHERE:
            yield state._replace(cursor=offset)

    def _ahead(self, state: SubscriptionState, offset: int, by: Operation) -> Iterator[int]:
        """Yield the offsets from `offset` on that were acknowledged before `by` returned."""
        if state.loose:
            return
        due = by.call if by.returned is None else by.returned
        acks = self._acks.get(state.epoch, [])
        for at in range(bisect_left(acks, (offset, -inf)), len(acks)):
            upto, call = acks[at]
            if call <= due:
                yield upto


def fits(one: int, other: int) -> bool:
    return not one or not other or one == other


def named(state: SubscriptionState, topic_id: int) -> SubscriptionState:
    return state if state.topic_id or not topic_id else state._replace(topic_id=topic_id)
