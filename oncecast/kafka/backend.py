"""Send the front end's commands and scans to the cluster, with a callback for each outcome."""

from __future__ import annotations

from collections.abc import Callable

from oncecast.client.session import local
from oncecast.kafka.errors import Code
from oncecast.kernel.protocol import Protocol, Value
from oncecast.wire import errors
from oncecast.wire.frames import ArcView, ClientCommand, Scan

Then = Callable[[Value], None]  # receives a result, a view, a refusal or NoAnswer

CODES: dict[type[Value], Code] = {
    errors.InvalidTopic: Code.INVALID_TOPIC_EXCEPTION,
    errors.InvalidName: Code.INVALID_REQUEST,
    errors.InvalidArgument: Code.INVALID_REQUEST,
    errors.TooLarge: Code.MESSAGE_TOO_LARGE,
    errors.TooMany: Code.THROTTLING_QUOTA_EXCEEDED,
    errors.NoSuchTopic: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.Gap: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.Unopened: Code.UNKNOWN_PRODUCER_ID,
    errors.OutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.Fenced: Code.INVALID_PRODUCER_EPOCH,
    errors.NotAcknowledged: Code.INVALID_PRODUCER_ID_MAPPING,
    errors.NotSubscribed: Code.GROUP_ID_NOT_FOUND,
    errors.Overloaded: Code.REQUEST_TIMED_OUT,
    errors.Partitioned: Code.NOT_LEADER_OR_FOLLOWER,
    errors.BadBatch: Code.CORRUPT_MESSAGE,
    errors.Denied: Code.TOPIC_AUTHORIZATION_FAILED,
    errors.LevelTooLow: Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    local.NoAnswer: Code.REQUEST_TIMED_OUT,
}


def code_of(outcome: Value) -> Code:
    """Return the error code for a refusal or NoAnswer."""
    return CODES.get(type(outcome), Code.UNKNOWN_SERVER_ERROR)


def refused(outcome: Value) -> bool:
    """Return whether the outcome is a refusal or NoAnswer."""
    return isinstance(outcome, errors.Refusal | local.NoAnswer)


class Backend:
    """Sends requests to the client session of the same stack. `host` is the front end."""

    def __init__(self, host: Protocol) -> None:
        self._host = host
        self._tickets = 0
        self._waiting: dict[int, Then] = {}
        self.watch: Then = lambda outcome: None  # called with each refusal, before the callback

    def do(self, command: ClientCommand, then: Then, timeout: float) -> None:
        self._host.ask(local.Do(self._ticket(then), command, timeout))

    def scan(self, scan: Scan, then: Then, timeout: float) -> None:
        self._host.ask(local.Survey(self._ticket(then), scan, timeout))

    def look(self, then: Then, timeout: float, *, topic: str, subscriptions: bool = False) -> None:
        """Ask for one topic."""
        show = local.Show(self._ticket(then), topic, "", "", 1, subscriptions, timeout)
        self._host.ask(show)

    def list(
        self, then: Then, timeout: float, *, arc: ArcView | None, after: str, subscriptions: bool
    ) -> None:
        """Ask the group, or a group of the ring, for a page of its topics after `after`."""
        ticket = self._ticket(then)
        self._host.ask(local.Show(ticket, "", "", after, 1000, subscriptions, timeout, arc))

    def find_broker(
        self, topic: str, then: Then, timeout: float, arc: ArcView | None = None
    ) -> None:
        """Ask for the leader of a topic's owner, or of a group of a ring."""
        self._host.ask(local.ShowBroker(self._ticket(then), topic, timeout, arc))

    def ring(self, then: Then, timeout: float) -> None:
        """Ask for the groups of the ring. There are none outside a ring."""
        self._host.ask(local.Ring(self._ticket(then), timeout=timeout))

    def produce(self, topic: str, count: int, batch: bytes, then: Then) -> None:
        """Put a batch of a producer without idempotence, under the session's own name."""
        self._host.ask(local.Produce(self._ticket(then), topic, count, batch))

    def observe(self, event: local.Finished | local.Shown | local.Stored | local.NotStored) -> None:
        then = self._waiting.pop(event.ticket, None)
        if then is None:
            return
        match event:
            case local.Finished(_, outcome):
                self.watch(outcome)
                then(outcome)
            case local.Shown(_, view):
                then(view)
            case local.Stored():
                then(event)
            case local.NotStored(_, why):
                self.watch(why)
                then(why)

    def _ticket(self, then: Then) -> int:
        self._tickets += 1
        self._waiting[self._tickets] = then
        return self._tickets
