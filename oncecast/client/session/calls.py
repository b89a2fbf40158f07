"""Repeat calls until they are answered or time out (the Lazy Pirate pattern).

All copies of a call carry the same sequence, expected epoch or token, so only one of them has an
effect. The session uses the first answer and drops later ones. If a later copy is denied, an
earlier one may have run, so the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from oncecast.client.session.alarm import Alarm
from oncecast.client.session.identity import Identity
from oncecast.client.session.local import NEVER, NoAnswer, Outcome
from oncecast.client.session.patience import Patience
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire.commands import (
    ONCE,
    Attach,
    OpenProducer,
    OpenSource,
    PublishStaged,
    Seek,
    Stage,
)
from oncecast.wire.errors import Denied, Fenced, NotHere, Overloaded
from oncecast.wire.frames import (
    AccessView,
    Answer,
    BrokerView,
    Call,
    ClientCommand,
    Govern,
    GroupView,
    LeaveRing,
    Look,
    LookAccess,
    LookBroker,
    LookGroup,
    LookRing,
    RingView,
    Scan,
    Scanned,
    View,
)
from oncecast.wire.transactions import EndTransaction

if TYPE_CHECKING:
    from oncecast.client.session.route import Route
    from oncecast.client.session.routes import Routes

Then = Callable[[Outcome], None]
# Calls that the session makes for itself. If a copy is executed again, nothing changes for the
# application.
ITS_OWN = (OpenProducer, Attach, OpenSource)


class Waiting:
    """A pending call. The topic is empty for calls about the group or the ring."""

    __slots__ = ("deadline", "message", "patience", "refusal", "sends", "then", "timeout", "topic")

    def __init__(
        self,
        message: Value,
        topic: str,
        then: Callable[..., None],
        timeout: float,
        deadline: float,
        patience: Patience,
    ) -> None:
        self.message, self.topic, self.then = message, topic, then
        self.timeout, self.deadline, self.patience = timeout, deadline, patience
        self.refusal: Overloaded | None = None  # the last answer from a busy node
        self.sends = 0  # number of copies sent so far

    @property
    def may_have_run(self) -> bool:
        """Return whether an earlier copy may have changed something, or may still do so."""
        message = self.message
        if isinstance(message, Call):
            changes = not isinstance(message.command, ITS_OWN)
        else:
            changes = isinstance(message, Govern | LeaveRing)
        return changes and self.sends > 1


class Calls:
    def __init__(self, host: Protocol, identity: Identity, alarm: Alarm, routes: Routes) -> None:
        self._host, self._identity, self._alarm, self._routes = host, identity, alarm, routes
        self._waiting: dict[int, Waiting] = {}
        # Random, because answers to the calls of an earlier process may still arrive.
        self._last = host.rng.getrandbits(48)

    def topics(self) -> list[str]:
        return [waiting.topic for waiting in self._waiting.values()]

    def new_id(self) -> int:
        self._last += 1
        return self._last

    def do(self, command: ClientCommand, then: Then, timeout: float = NEVER) -> int:
        """Send `command` and call `then` with its outcome. Return an id for `forget`."""
        id_ = self.new_id()
        if type(command) in ONCE:
            token = f"{self._identity.incarnation}.{id_}"
            command = msgspec.structs.replace(command, token=token)
        self._begin(id_, Call(id_, command), then, timeout)
        return id_

    def replace_epoch(
        self, command: PublishStaged | OpenSource | Seek, then: Then, timeout: float = NEVER
    ) -> None:
        """Execute `command` if `expected` is the current epoch of the source or subscription.

        If the node reports a different epoch, try again with that one. A late copy of the first
        command then carries an old epoch and has no effect. The group recognizes a copy that took
        effect before: by the number of a publish, and by the token of a seek.
        """
        deadline = self._host.now + timeout

        def answered(outcome: Outcome) -> None:
            match outcome:
                case Fenced(epoch):
                    again = msgspec.structs.replace(command, expected=epoch)
                    self.do(again, answered, deadline - self._host.now)
                case NoAnswer(_, led, denied):
                    then(NoAnswer(timeout, led, denied))
                case _:
                    then(outcome)

        self.do(command, answered, timeout)

    def forget(self, id_: int) -> None:
        """Stop repeating a call and ignore its answer."""
        self._waiting.pop(id_, None)

    def look(
        self,
        look: Look | Scan | LookGroup | Govern | LookAccess | LookBroker | LookRing | LeaveRing,
        then: Callable[..., None],
        timeout: float = NEVER,
        pinned: str = "",  # the name that selects the route, if the request has no topic
    ) -> None:
        self._begin(look.id, look, then, timeout, pinned)

    def _begin(
        self,
        id_: int,
        message: Value,
        then: Callable[..., None],
        timeout: float,
        pinned: str = "",
    ) -> None:
        asked = message.command if isinstance(message, Call) else message
        topic: str = pinned or getattr(asked, "topic", "")
        patience = Patience(self._host, self._alarm, self._routes, topic)
        deadline = self._host.now + timeout
        waiting = Waiting(message, topic, then, timeout, deadline, patience)
        self._waiting[id_] = waiting
        self._send(waiting)

    def answered(self, answer: Answer, route: Route) -> None:
        waiting = self._waiting.get(answer.id)
        if waiting is None:
            return
        if type(answer.result) is NotHere:  # faster than isinstance
            self._routes.not_here(waiting.topic, route)
        elif isinstance(answer.result, Overloaded):
            waiting.refusal = answer.result
            waiting.patience.pause()  # `tick` resends the call.
        elif isinstance(waiting.message, LookRing | LeaveRing) and not isinstance(
            answer.result, Denied
        ):
            pass  # Wait for the view: it is the only valid answer.
        else:
            del self._waiting[answer.id]
            unknown = isinstance(answer.result, Denied) and waiting.may_have_run
            waiting.then(NoAnswer(waiting.timeout, denied=True) if unknown else answer.result)

    def shown(self, view: View | Scanned | GroupView | RingView | AccessView | BrokerView) -> None:
        waiting = self._waiting.get(view.id)
        if waiting is not None and not isinstance(waiting.message, Call):
            del self._waiting[view.id]
            waiting.then(view)

    def resend(self, about: Callable[[str], bool]) -> None:
        """Resend the calls for topics that match the predicate `about`."""
        for waiting in self._waiting.values():
            if about(waiting.topic):
                self._send(waiting)

    def tick(self, now: float) -> None:
        for id_, waiting in list(self._waiting.items()):
            if now >= waiting.deadline:
                del self._waiting[id_]
                led = self._routes.of(waiting.topic).led
                waiting.then(waiting.refusal or NoAnswer(waiting.timeout, led))
            elif waiting.patience.over(now):
                waiting.patience.attempts += 1
                self._send(waiting)
            else:
                self._alarm.due(waiting.deadline)

    def _send(self, waiting: Waiting) -> None:
        message = waiting.message
        waiting.sends += 1
        self._host.send(self._routes.of(waiting.topic).node, message, after=0)
        command = message.command if isinstance(message, Call) else None
        waiting.patience.begin(size_of(command))
        self._alarm.due(waiting.deadline)


def size_of(command: ClientCommand | None) -> int:
    """Return the bytes that the node must store before it can answer."""
    if isinstance(command, EndTransaction):
        return sum([each.size for each in command.outputs])
    return command.size if isinstance(command, Stage) else 0
