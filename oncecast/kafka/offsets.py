"""Committed offsets of consumer groups. They are the cursors of subscriptions.

The subscription of a group has the group's name. Before the first commit of a generation, the front
end attaches to the subscription. This fences commits of earlier generations, including those that
arrive through another front end. The metadata string of a commit is not stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from oncecast.kafka.backend import Backend, code_of, refused
from oncecast.kafka.errors import Code
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire import commands as do
from oncecast.wire import errors
from oncecast.wire.frames import View
from oncecast.wire.results import Acked, Attached, Sought

TIMEOUT = 15.0
# Maximum positions that the front end remembers; it attaches again for other positions.
HELD_MAX = 100_000
NOT_COMMITTED = -1

Then = Callable[[Code], None]


class Position:
    """The epoch and the cursor of a subscription, as attached for one generation."""

    __slots__ = ("cursor", "epoch", "holder")

    def __init__(self, holder: str, epoch: int, cursor: int) -> None:
        self.holder, self.epoch, self.cursor = holder, epoch, cursor


class Offsets:
    def __init__(self, host: Protocol, backend: Backend) -> None:
        self._host, self._backend = host, backend
        self._held: OrderedDict[tuple[str, str], Position] = OrderedDict()
        self._seeks = 0

    def commit(
        self, group: str, holder: str, topic: str, offset: int, then: Then, *, again: bool = True
    ) -> None:
        """Commit an offset. `holder` identifies the generation that commits it.

        With `again`, the front end subscribes again if the subscription has been deleted.
        """

        def moved(outcome: Value) -> None:
            if isinstance(outcome, errors.NotSubscribed) and again:
                self.forget(group, topic)
                self.commit(group, holder, topic, offset, then, again=False)
            else:
                then(self._code(group, topic, outcome))

        def attached(position: Position | Code) -> None:
            if isinstance(position, Position):
                self._move(group, topic, position, offset, moved)
            else:
                then(position)

        self.attach(group, holder, topic, offset, attached)

    def attach(
        self,
        group: str,
        holder: str,
        topic: str,
        offset: int,
        then: Callable[[Position | Code], None],
    ) -> None:
        """Call `then` with the position of this holder, or with an error code.

        `offset` is the first offset of the group if it has not committed one.
        """
        position = self._held.get((group, topic))
        if position is not None and position.holder == holder:
            self._held.move_to_end((group, topic))
            then(position)
            return

        def attached(outcome: Value) -> None:
            if not isinstance(outcome, Attached):
                then(code_of(outcome))
                return
            position = Position(holder, outcome.epoch, outcome.cursor)
            self._held[group, topic] = position
            while len(self._held) > HELD_MAX:
                self._held.popitem(last=False)
            then(position)

        def subscribed(outcome: Value) -> None:
            if refused(outcome):
                then(code_of(outcome))
            else:
                self._backend.do(do.Attach(topic, group, holder), attached, TIMEOUT)

        subscribe = do.Subscribe(topic, group, do.FromOffset(max(offset, 0)), 0)
        self._backend.do(subscribe, subscribed, TIMEOUT)

    def forget(self, group: str, topic: str) -> None:
        """Attach again before the next commit."""
        self._held.pop((group, topic), None)

    def _code(self, group: str, topic: str, outcome: Value) -> Code:
        match outcome:
            case Acked() | Sought():
                return Code.NONE
            case errors.Fenced() | errors.Repositioned():
                self.forget(group, topic)
                return Code.ILLEGAL_GENERATION
            case _:
                return code_of(outcome)

    def _move(
        self,
        group: str,
        topic: str,
        position: Position,
        offset: int,
        then: Callable[[Value], None],
    ) -> None:
        def moved(outcome: Value) -> None:
            match outcome:
                case Acked(cursor):
                    position.cursor = max(position.cursor, cursor)
                case Sought(epoch, cursor):
                    position.epoch, position.cursor = epoch, cursor
                case _:
                    pass
            then(outcome)

        if offset >= position.cursor:
            # Set before the ack is answered, so that a lower offset committed meanwhile is a seek.
            position.cursor = offset
            self._backend.do(do.Ack(topic, group, position.epoch, offset), moved, TIMEOUT)
            return
        self._seeks += 1
        token = f"{position.holder}.{self._seeks}"
        seek = do.Seek(topic, group, do.FromOffset(offset), 0, token, position.epoch)
        self._backend.do(seek, moved, TIMEOUT)

    def committed(self, group: str, topic: str, then: Callable[[int, Code], None]) -> None:
        """Call `then` with the committed offset of the group, or NOT_COMMITTED."""

        def seen(outcome: Value) -> None:
            if not isinstance(outcome, View):
                code = code_of(outcome)
                missing = code == Code.UNKNOWN_TOPIC_OR_PARTITION
                then(NOT_COMMITTED, Code.NONE if missing else code)
                return
            cursors = [
                each.cursor
                for view in outcome.topics
                for each in view.subscriptions
                if each.name == group
            ]
            then(cursors[0] if cursors else NOT_COMMITTED, Code.NONE)

        self._backend.look(seen, TIMEOUT, topic=topic, subscriptions=True)

    def drop(self, group: str, topic: str, then: Callable[[Value], None]) -> None:
        """Delete the committed offset of the group."""
        self._held.pop((group, topic), None)
        self._backend.do(do.Unsubscribe(topic, group, 0), then, TIMEOUT)
