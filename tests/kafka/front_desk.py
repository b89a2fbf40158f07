"""A front end without a session. It takes requests from Kafka clients, and records its effects."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.client.session import local
from oncecast.kafka import messages as m
from oncecast.kafka.events import Connected, Handled, Hangup, Received, Reply
from oncecast.kafka.frontend import FrontEnd
from oncecast.kafka.layout import Body, codec
from oncecast.kernel.protocol import Ask, Emit, Later, NodeId, Value
from oncecast.wire.frames import RingView, View
from tests.kafka.bodies import request_bytes

OF_REQUEST = {api.request: api for api in m.APIS}


class FrontDesk:
    def __init__(self, **options: Any) -> None:
        self.front = FrontEnd(NodeId("front"), Random(1), host="127.0.0.1", port=9092, **options)
        self.ring = RingView(0, "node", (), (), None)  # the answer to questions about the ring
        self.apis: dict[tuple[int, int], tuple[m.Api, int]] = {}
        self.asked: list[Any] = []
        self.replies: list[tuple[int, int, Any]] = []  # (connection, correlation id, response)
        self.hung_up: list[int] = []
        self.handled: list[int] = []
        self.timers: dict[Value, float] = {}
        self.sent = 0

    def connect(self, connection: int = 1) -> None:
        self.front.request(Connected(connection, "127.0.0.1"))

    def send(self, request: Body, connection: int = 1, version: int | None = None) -> int:
        """Send a request, and return its correlation id."""
        api = OF_REQUEST[type(request)]
        number = api.last if version is None else version
        self.sent += 1
        self.apis[connection, self.sent] = api, number
        self.front.request(
            Received(connection, request_bytes(api, number, request, correlation=self.sent))
        )
        self._drain()
        return self.sent

    def send_raw(self, data: bytes, connection: int = 1) -> None:
        self.front.request(Received(connection, data))
        self._drain()

    def answer(self, outcome: Value, asked: Any = None) -> None:
        """Answer the oldest request to the session, or the given one."""
        request = self.asked.pop(0) if asked is None else asked
        if asked is not None:
            self.asked.remove(asked)
        ticket = request.ticket
        if isinstance(request, local.Produce):
            event: Any = local.NotStored(ticket, outcome)  # type: ignore[arg-type]
            if isinstance(outcome, local.Stored):
                event = local.Stored(ticket, outcome.offset, outcome.kept)
        elif isinstance(request, local.Do) or not hasattr(outcome, "id"):
            event = local.Finished(ticket, outcome)  # type: ignore[arg-type]
        else:
            event = local.Shown(ticket, outcome)  # type: ignore[arg-type]
        self.front.observe(event)
        self._drain()

    def wait(self, seconds: float) -> None:
        """Let time pass, and fire the timers that are due."""
        self.front.now += seconds
        for timer, due in sorted(self.timers.items(), key=lambda each: each[1]):
            if due <= self.front.now:
                del self.timers[timer]
                self.front.timeout(timer)  # type: ignore[arg-type]
        self._drain()

    @property
    def commands(self) -> list[Any]:
        """Return the commands and scans that wait for an answer."""
        return [self._content(each) for each in self.asked]

    def _content(self, asked: Any) -> Any:
        if isinstance(asked, local.Do):
            return asked.command
        return asked.scan if isinstance(asked, local.Survey) else asked

    def reply(self) -> Any:
        """Return the only reply since the last call."""
        assert len(self.replies) == 1, self.replies
        return self.replies.pop()[2]

    def _drain(self) -> None:
        for effect in self.front.drain():
            match effect:
                case Ask(local.Ring(ticket)):
                    self.front.observe(local.Shown(ticket, self.ring))
                    self._drain()
                case Ask(request):
                    self.asked.append(request)
                case Emit(Reply(connection, data)):
                    correlation = int.from_bytes(data[4:8], "big")
                    assert int.from_bytes(data[:4], "big") == len(data) - 4
                    api, version = self.apis[connection, correlation]
                    flexible = version >= api.flexible
                    read = codec(api.response, version, flexible).read
                    body, end = read(data, 9 if flexible else 8)
                    assert end == len(data)
                    self.replies.append((connection, correlation, body))
                case Emit(Handled(connection)):
                    self.handled.append(connection)
                case Emit(Hangup(connection)):
                    self.hung_up.append(connection)
                case Later(delay, timer):
                    self.timers[timer] = self.front.now + delay
                case _:
                    raise AssertionError(effect)


def desk(**options: Any) -> FrontDesk:
    made = FrontDesk(**options)
    made.connect()
    return made


def no_topics() -> View:
    return View(0, (), False, "node", "0")
