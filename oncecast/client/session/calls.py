"""Calls: asked again until they are answered or their time is over (the Lazy Pirate pattern).

A call may be sent as often as it takes. Its copies carry the same sequence, expected epoch or
token, so only one of them changes anything. The first answer counts; later answers are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from oncecast.client.session.local import NEVER, NoAnswer, Outcome
from oncecast.client.session.patience import Patience
from oncecast.kernel.protocol import Value
from oncecast.wire.commands import ONCE, PublishStaged, Stage
from oncecast.wire.errors import Fenced, NotHere, Overloaded
from oncecast.wire.frames import (
    Answer,
    Call,
    ClientCommand,
    Govern,
    GroupView,
    LeaveRing,
    Look,
    LookGroup,
    LookRing,
    RingView,
    Scan,
    Scanned,
    View,
)

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession
    from oncecast.client.session.whereabouts import Whereabouts

Then = Callable[[Outcome], None]


class Waiting:
    """A call without an answer so far; most are about a topic, others are for home."""

    __slots__ = ("deadline", "message", "patience", "refusal", "then", "timeout", "topic")

    def __init__(
        self, session: ClientSession, message: Value, then: Callable[..., None], timeout: float
    ) -> None:
        self.message, self.then, self.timeout = message, then, timeout
        asked = message.command if isinstance(message, Call) else message
        self.topic: str = getattr(asked, "topic", "")
        self.deadline = session.now + timeout
        self.patience = Patience(session, self.topic)
        self.refusal: Overloaded | None = None  # the last word of a node that was busy


class Calls:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._waiting: dict[int, Waiting] = {}
        # Unlike those of any earlier life, whose answers may still be under way.
        self._last = session.rng.getrandbits(48)

    def topics(self) -> list[str]:
        return [waiting.topic for waiting in self._waiting.values()]

    def new_id(self) -> int:
        self._last += 1
        return self._last

    def do(self, command: ClientCommand, then: Then, timeout: float = NEVER) -> int:
        """Returns the id by which it can be forgotten."""
        id_ = self.new_id()
        if type(command) in ONCE:
            token = f"{self._session.life}.{id_}"
            command = msgspec.structs.replace(command, token=token)
        self._begin(id_, Call(id_, command), then, timeout)
        return id_

    def publish(self, command: PublishStaged, then: Then, timeout: float = NEVER) -> None:
        """Publish staged parts, unless the source has another epoch than `command.expected`.

        A client that is told another epoch asks again with that one. A copy of the command that
        arrives after a refusal names an epoch of the past.
        """
        deadline = self._session.now + timeout

        def answered(outcome: Outcome) -> None:
            match outcome:
                case Fenced(epoch):
                    again = msgspec.structs.replace(command, expected=epoch)
                    self.do(again, answered, deadline - self._session.now)
                case NoAnswer(_, led):
                    then(NoAnswer(timeout, led))
                case _:
                    then(outcome)

        self.do(command, answered, timeout)

    def forget(self, id_: int) -> None:
        """Nobody waits for its answer any more, and it is not asked again."""
        self._waiting.pop(id_, None)

    def look(
        self,
        look: Look | Scan | LookGroup | Govern | LookRing | LeaveRing,
        then: Callable[..., None],
        timeout: float = NEVER,
    ) -> None:
        self._begin(look.id, look, then, timeout)

    def _begin(self, id_: int, message: Value, then: Callable[..., None], timeout: float) -> None:
        waiting = self._waiting[id_] = Waiting(self._session, message, then, timeout)
        self._send(waiting)

    def answered(self, answer: Answer, way: Whereabouts) -> None:
        waiting = self._waiting.get(answer.id)
        if waiting is None:
            return
        if type(answer.result) is NotHere:  # quicker than isinstance, where it is another
            self._session.ways.not_here(waiting.topic, way)
        elif isinstance(waiting.message, LookRing | LeaveRing):
            pass  # only a view answers it
        elif isinstance(answer.result, Overloaded):
            waiting.refusal = answer.result
            waiting.patience.pause()  # it is asked again when its time has come
        else:
            del self._waiting[answer.id]
            waiting.then(answer.result)

    def shown(self, view: View | Scanned | GroupView | RingView) -> None:
        waiting = self._waiting.get(view.id)
        if waiting is not None and not isinstance(waiting.message, Call):
            del self._waiting[view.id]
            waiting.then(view)

    def resend(self, about: Callable[[str], bool]) -> None:
        """All that was under way about these topics is gone."""
        for waiting in self._waiting.values():
            if about(waiting.topic):
                self._send(waiting)

    def tick(self, now: float) -> None:
        for id_, waiting in list(self._waiting.items()):
            if now >= waiting.deadline:
                del self._waiting[id_]
                led = self._session.ways.of(waiting.topic).led
                waiting.then(waiting.refusal or NoAnswer(waiting.timeout, led))
            elif waiting.patience.over(now):
                waiting.patience.attempts += 1
                self._send(waiting)
            else:
                self._session.due(waiting.deadline)

    def _send(self, waiting: Waiting) -> None:
        session, message = self._session, waiting.message
        session.send(session.ways.of(waiting.topic).node, message, after=0)
        command = message.command if isinstance(message, Call) else None
        waiting.patience.begin(command.size if isinstance(command, Stage) else 0)
        session.due(waiting.deadline)
