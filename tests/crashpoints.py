"""Crash points are named moments at which a process may die without breaking exactly-once.

A crash point is right before or after a call to a named function. The same catalogue serves the
simulator and real processes. A simulated process loses its memory and its unsynced writes there; a
real process kills itself with SIGKILL. The program itself does not know about crash points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

from oncecast.client.session.local import Produce, Stored
from oncecast.kernel.protocol import Emit, Send, Value
from oncecast.replication.events import Decided, Propose
from oncecast.storage import store
from oncecast.wire import commands as do
from oncecast.wire.frames import Answer, Call, Delivery, Fetch
from oncecast.wire.results import Appended

When = Callable[..., bool]
OnReached = Callable[[Any], None]  # gets the arguments of the call


def always(*arguments: Any) -> bool:
    return True


class Location(NamedTuple):
    """A call to `function`, "module:name", whose arguments satisfy `when`."""

    function: str
    after: bool
    when: When = always
    left: bool = False  # wait until the message has left a real process


class Point(NamedTuple):
    process: str  # "publisher", "node" or "subscriber"
    name: str
    outcome: str
    location: Location  # where the simulator crashes the process
    elsewhere: Location | None = None  # in a real process, if it differs
    action: str = "crash"
    disk: str = ""  # which unsynced writes survive; random if empty

    def __str__(self) -> str:
        return f"{self.process}: {self.name}"

    @property
    def live(self) -> Location:
        return self.elsewhere or self.location


# -- conditions on the arguments of a call --


def is_put(message: Value) -> bool:
    return isinstance(message, Call) and isinstance(message.command, do.Put)


def is_receipt(message: Value) -> bool:
    return isinstance(message, Answer) and isinstance(message.result, Appended)


def is_get(message: Value) -> bool:
    return isinstance(message, Fetch)


def is_ack(message: Value) -> bool:
    """Return whether `message` carries an ack, alone or with a get."""
    if isinstance(message, Call):
        return isinstance(message.command, do.Ack)
    return isinstance(message, Fetch) and message.ack > 0


def hears(wanted: Callable[[Value], bool]) -> When:
    return lambda protocol, sender, message: wanted(message)


def releases(wanted: Callable[[Value], bool]) -> When:
    return lambda node, output: isinstance(output, Send) and wanted(output.message)


def sends(wanted: Callable[[Value], bool]) -> When:
    return lambda transport, to, message: wanted(message)


def proposes_put(group: Any, request: Value) -> bool:
    return isinstance(request, Propose) and holds(do.Put, request.value)


def decides(command: type[Value]) -> When:
    return lambda service, event: isinstance(event, Decided) and holds(command, event.value)


def holds(command: type[Value], value: bytes) -> bool:
    tag = command.__name__.encode()
    return tag in value[: len(tag) + 4]


def reports_stored(node: Any, output: Any) -> bool:
    return isinstance(output, Emit) and isinstance(output.event, Stored)


def frees_put(gate: Any, synced: int) -> bool:
    return any(isinstance(each, Send) and is_put(each.message) for each in gate.held)


def writes_records(flush: Any) -> bool:
    return flush.unsynced is not None


def is_snapshot(disk: Any, old: str, new: str) -> bool:
    return new.endswith(".snap")


def cuts(log: Any, before: int) -> bool:
    return len(log._segments) > 1 and log._segments[1].first <= min(before, log.synced)


CLIENT = "oncecast.client.session.client:ClientSession"
RELEASES = "oncecast.simulator.simnode:SimulatedNode._let_go"
SENDS = "oncecast.network.transport:Transport.send"
DECIDED = "oncecast.broker.service:Service.observe"
SYNC = "oncecast.storage.journal:Flush.run"
SIMULATED = "tests.lab.scenarios.crash_world:TransactionalSubscriber"
REAL = "tests.live.result_store:ResultStore"


def before(function: str, when: When = always) -> Location:
    return Location(function, False, when)


def after(function: str, when: When = always) -> Location:
    return Location(function, True, when)


def sent(wanted: Callable[[Value], bool]) -> tuple[Location, Location]:
    """Return the moments after the message was sent: simulated and real."""
    return after(RELEASES, releases(wanted)), Location(SENDS, True, sends(wanted), left=True)


NOT_PUT = "the message is not in the topic, and no caller has received an acknowledgement"
FROM_OUTBOX = "the next process finds the message in the outbox and puts the message once"
ASKS = "the next process asks for the last stored sequence number and puts only later messages"
ASKED_AGAIN = "the client gets no answer and repeats the put; the topic stores the message once"
ALREADY = "the message is stored; the client repeats the put and learns that it was stored already"
NO_HARM = "the older snapshot and the log since then restore the same state"
FROM_DATABASE = "the next process resumes from its database, so the effect happens once"

POINTS = [
    # -- publisher --
    Point("publisher", "sequence assigned", NOT_PUT,
          after(CLIENT + ".request", lambda session, request: isinstance(request, Produce))),
    Point("publisher", "stored", FROM_OUTBOX,
          before("oncecast.storage.gate:Gate.release", frees_put)),
    Point("publisher", "sent", ASKS, *sent(is_put)),
    Point("publisher", "ack lost", ASKS, before(CLIENT + ".receive", hears(is_receipt))),
    Point("publisher", "ack received, not recorded", ASKS,
          after(CLIENT + ".receive", hears(is_receipt))),
    Point("publisher", "application notified, not recorded", ASKS,
          after(RELEASES, reports_stored), after("oncecast.client.putting:Putting.stored")),
    Point("publisher", "restart with the old epoch",
          "puts of the old process are refused with Fenced, no matter when they arrive",
          before(RELEASES, releases(is_put)), action="deliver late"),
    Point("publisher", "two processes at once",
          "the newer process continues, and the older one gets Fenced; no message is stored twice",
          after(RELEASES, releases(is_put)), after(SENDS, sends(is_put)), action="start a twin"),
    # -- node --
    Point("node", "received", ASKED_AGAIN,
          before("oncecast.broker.gateway:Gateway.receive", hears(is_put))),
    Point("node", "proposed", ASKED_AGAIN,
          after("oncecast.replication.paxos:Paxos.request", proposes_put)),
    Point("node", "accepted by the only replica", ALREADY, after(SYNC, writes_records)),
    Point("node", "chosen, not applied", ALREADY, before(DECIDED, decides(do.Put))),
    Point("node", "applied, not answered", ALREADY, after(DECIDED, decides(do.Put))),
    Point("node", "answered", "the acknowledged message remains on disk", *sent(is_receipt)),
    Point("node", "snapshot half written", NO_HARM,
          before("oncecast.storage.snapshot:_put", lambda *written: store.END in written[3:4])),
    Point("node", "snapshot not renamed", NO_HARM,
          before("oncecast.simulator.disk:SimulatedDisk.rename", is_snapshot),
          before("oncecast.storage.disk:OsDisk.rename", is_snapshot)),
    Point("node", "log not trimmed", "the snapshot tells where to start the replay of the log",
          before("oncecast.storage.log:Log.truncate", cuts)),
    Point("node", "collection decided", "the ack is on disk; disk space is freed later",
          before(DECIDED, decides(do.Acks))),
    Point("node", "collection applied", "only messages acked by all subscriptions are deleted",
          after("oncecast.broker.index:Index.drop_below")),
    Point("node", "restart with a stale disk", "unsynced writes are lost; " + ASKED_AGAIN,
          before(SYNC, writes_records),
          before("oncecast.storage.log:Log.write", lambda log: log.pending_bytes > 0),
          disk="stale"),
    Point("node", "restart with a torn disk", "the torn tail is truncated; " + ASKED_AGAIN,
          before(SYNC, writes_records), disk="torn"),
    # -- subscriber --
    Point("subscriber", "get sent", "the next process resumes from its database or its cursor",
          *sent(is_get)),
    Point("subscriber", "data received",
          "the message is delivered again, marked redelivered if the application may have seen it",
          after(CLIENT + ".receive", hears(lambda message: isinstance(message, Delivery)))),
    Point("subscriber", "handler runs", FROM_DATABASE,
          before(SIMULATED + ".handle"), before(REAL + ".handle")),
    Point("subscriber", "effect done, not committed", "the database rolls back; " + FROM_DATABASE,
          before(SIMULATED + ".commit"), before(REAL + ".commit")),
    Point("subscriber", "committed, not acked", "the effect is in the database and is not repeated",
          after(SIMULATED + ".commit"), after(REAL + ".commit")),
    Point("subscriber", "ack lost", "the node keeps the message until the next ack covers it",
          before(RELEASES, releases(is_ack)), before(SENDS, sends(is_ack))),
    Point("subscriber", "fenced in the handler",
          "the ack is refused with Fenced, and the commit detects the newer process",
          before(SIMULATED + ".handle"), before(REAL + ".handle"), action="start a twin"),
]  # fmt: skip

BY_NAME = {str(point): point for point in POINTS}


# -- hooks at the points --


@contextmanager
def planted(location: Location, on_reached: OnReached) -> Iterator[None]:
    """Call `on_reached` at that location while the context lasts."""
    module, _, path = location.function.partition(":")
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        matches = location.when(*arguments, **options)
        if matches and not location.after:
            on_reached(arguments)
        result = original(*arguments, **options)
        if matches and location.after:
            on_reached(arguments)
        return result

    with patch.object(owner, name, wrapped):
        yield


@contextmanager
def all_planted(
    points: Iterable[Point], on_reached: Callable[[Point, Any], None]
) -> Iterator[None]:
    with ExitStack() as stack:
        for point in dict.fromkeys(points):
            stack.enter_context(planted(point.location, partial(on_reached, point)))
        yield
