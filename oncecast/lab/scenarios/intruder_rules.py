"""The permissions in the intruder storm, stated independently of the code that enforces them.

root       administrator, created before the first intruder
honest     everything on the honest topics, under all names
mallory    put, read, ack and manage on topics `mallory*`, names `mallory*`
oscar      read on topics `mallory*`, put on `mallory-o*`, names `mallory*` and `oscar*`
(none)     a stranger without a login: nothing
"""

from __future__ import annotations

from typing import Any

from oncecast.kernel.protocol import NodeId, Value
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.security.values import Credentials, Rule
from oncecast.wire import commands as do
from oncecast.wire.errors import Denied
from oncecast.wire.frames import (
    Answer,
    Call,
    Fetch,
    FlowEnded,
    Govern,
    LeaveRing,
    Look,
    LookAccess,
    LookBroker,
    LookGroup,
    LookRing,
    Scan,
    Tune,
    Work,
    WorkEnded,
)
from oncecast.wire.partitions import AddGroup, Enlist, LeaveGroup, RemoveGroup, SetPartitions
from oncecast.wire.ring_transactions import ResolveTransaction
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import EndTransaction

ROOT, HONEST, MALLORY, OSCAR, STRANGER = ("root", "honest", "mallory", "oscar", "stranger")
HOSTILE = tuple(CLIENT + name for name in (MALLORY, OSCAR, STRANGER))
KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
HONEST_TOPICS = ("topic", "aging")
ROAMING = Rule(HONEST, ("put", "read", "ack", "manage"), "roaming-*")

RULES = (
    *[Rule(HONEST, ("put", "read", "ack", "manage"), topic) for topic in HONEST_TOPICS],
    ROAMING,
    Rule(HONEST, (), name="*"),
    Rule(MALLORY, ("put", "read", "ack", "manage"), "mallory*"),
    Rule(MALLORY, (), name="mallory*"),
    Rule(OSCAR, ("read",), "mallory*"),
    Rule(OSCAR, ("put",), "mallory-o*"),
    Rule(OSCAR, (), name="mallory*"),
    Rule(OSCAR, (), name="oscar*"),
)
COMMANDS: tuple[do.AccessCommand, ...] = (
    do.AddUser(ROOT, KEYS, admin=True),
    *[do.AddUser(name, KEYS) for name in (HONEST, MALLORY, OSCAR)],
    *map(do.Allow, RULES),
)

TOPICS = {
    MALLORY: dict.fromkeys(("put", "read", "ack", "manage"), "mallory"),
    OSCAR: {"read": "mallory", "put": "mallory-o"},
}
NAMES = {MALLORY: ("mallory",), OSCAR: ("mallory", "oscar")}
NAME_FIELDS = ("producer", "subscription", "source")

PUTS = (do.OpenProducer, do.Put, do.TimedPut, do.CloseProducer, do.Stage)
OF_SOURCE = (do.PublishStaged, do.DropStaged, do.CloseSource)
SUBSCRIBES = (do.Subscribe, do.SubscribeShared, do.Unsubscribe)
GROUPS = (AddGroup, RemoveGroup, Enlist, LeaveGroup)
READS = (*SUBSCRIBES, *GROUPS, do.Attach, do.Detach, do.Seek, Fetch, Work, Scan)
MANAGES = (do.CreateTopic, do.SetPolicy, do.DeleteTopic, SetPartitions)
VERBS: dict[type, str] = {
    **dict.fromkeys((*PUTS, *OF_SOURCE), "put"),
    **dict.fromkeys(READS, "read"),
    **dict.fromkeys(MANAGES, "manage"),
    **dict.fromkeys((do.Ack, Settle), "ack"),
}


def principal_of(client: NodeId) -> str:
    for name in (ROOT, MALLORY, OSCAR):
        if client.startswith(CLIENT + name):
            return name
    return "" if client.startswith(CLIENT + STRANGER) or not client.startswith(CLIENT) else HONEST


def is_hostile(client: NodeId) -> bool:
    return client.startswith(HOSTILE)


def may(principal: str, verb: str, topic: str) -> bool:
    prefix = TOPICS.get(principal, {}).get(verb)
    return prefix is not None and topic.startswith(prefix)


def may_see(principal: str, topic: str) -> bool:
    return may(principal, "read", topic) or may(principal, "manage", topic)


def may_use(principal: str, name: str) -> bool:
    return name.startswith(NAMES.get(principal, ())) if name else True


def may_end(principal: str, transaction: EndTransaction) -> bool:
    """Return whether the principal may put and acknowledge what the transaction names."""
    return all(may(principal, "put", each.topic) for each in transaction.outputs) and all(
        may(principal, "ack", each.topic) and may_use(principal, each.subscription)
        for each in transaction.inputs
    )


def is_foreign(principal: str, frame: Value) -> bool:
    """Return whether an intruder's request needs a permission that no rule grants."""
    asked: Any = frame.fetch if isinstance(frame, Tune) else frame
    asked = asked.command if isinstance(asked, Call) else asked
    if isinstance(asked, Govern | LookAccess | LeaveRing | do.AccessCommand):
        return True
    if isinstance(asked, LookGroup | LookBroker):
        return principal not in TOPICS
    if isinstance(asked, Look | LookRing):
        topic = asked.topic if isinstance(asked, Look) else asked.tree
        return not may_see(principal, topic) if topic else principal not in TOPICS
    if not all(may_use(principal, getattr(asked, name, "")) for name in NAME_FIELDS):
        return True
    if isinstance(asked, do.SubscribeShared) and asked.settings is not None:
        dead_letters = asked.settings.dead_letters
        if dead_letters and not may(principal, "put", dead_letters):
            return True
    opens = isinstance(asked, do.OpenSource | EndTransaction | ResolveTransaction)
    if opens and "put" not in TOPICS.get(principal, {}):
        return True
    if isinstance(asked, EndTransaction):
        return not may_end(principal, asked)
    if isinstance(asked, do.OpenSource | ResolveTransaction):
        return False
    verb = VERBS[type(asked)]
    if isinstance(asked, OF_SOURCE) and not asked.topic:
        return verb not in TOPICS.get(principal, {})
    return not may(principal, verb, asked.topic)


def refusals(frame: Any) -> tuple[Value, ...]:
    """Return the only refusals that reveal nothing, because they depend on the request alone."""
    fetch = frame.fetch if isinstance(frame, Tune) else frame
    if isinstance(fetch, Work):
        where = (fetch.topic, fetch.subscription, fetch.worker)
        return (WorkEnded(*(("", "", "") if any(map(too_long, where)) else where), Denied()),)
    if not isinstance(fetch, Fetch):
        return (Answer(frame.id, Denied()),)
    named = FlowEnded(fetch.topic, fetch.subscription, fetch.epoch, Denied())
    nameless = FlowEnded("", "", fetch.epoch, Denied())
    return (nameless,) if any(map(too_long, (fetch.topic, fetch.subscription))) else (named,)


def too_long(name: str) -> bool:
    return len(name.encode()) > 255
