"""The permissions that each command and frame needs: a verb on a topic, and the use of a name.

This is the only list. A test fails if a type that clients may send is missing.
docs/security.md has the same table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncecast.kernel.protocol import Value
from oncecast.security.access import ACK, ADMIN, KNOWN, MANAGE, PUT, PUTS, READ, SEE
from oncecast.wire import commands as do
from oncecast.wire.frames import (
    Call,
    Fetch,
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
)
from oncecast.wire.partitions import AddGroup, Enlist, LeaveGroup, RemoveGroup, SetPartitions
from oncecast.wire.ring_transactions import (
    DecideTransaction,
    PrepareTransaction,
    ResolveTransaction,
)
from oncecast.wire.sharing import Settle
from oncecast.wire.transactions import EndTransaction

# A verb, a topic and a name. An empty field needs no permission.
Need = tuple[str, str, str]
Needs = Callable[[Any], Need]


def of_topic(verb: str) -> Needs:
    return lambda asked: (verb, asked.topic, "")


def of_producer(asked: do.OpenProducer | do.Put | do.CloseProducer) -> Need:
    return PUT, asked.topic, asked.producer


def of_subscription(asked: Any) -> Need:
    return READ, asked.topic, asked.subscription


def of_ack(asked: do.Ack | Settle) -> Need:
    return ACK, asked.topic, asked.subscription


def of_stage(asked: do.Stage) -> Need:
    return PUT, asked.topic, asked.source


def of_source(asked: do.PublishStaged | do.DropStaged | do.CloseSource) -> Need:
    """Return the permission needed for staged parts. The guard also checks their topics."""
    return PUT if asked.topic else PUTS, asked.topic, asked.source


def of_transaction(asked: do.OpenSource | EndTransaction | ResolveTransaction) -> Need:
    """Return the permission needed for a transaction. The guard also checks what it names."""
    return PUTS, "", asked.source


def of_admin(asked: Value) -> Need:
    return ADMIN, "", ""


def of_known(asked: Value) -> Need:
    return KNOWN, "", ""


COMMANDS: dict[type, Needs] = {
    do.CreateTopic: of_topic(MANAGE),
    do.SetPolicy: of_topic(MANAGE),
    do.DeleteTopic: of_topic(MANAGE),
    do.OpenProducer: of_producer,
    do.Put: of_producer,
    do.TimedPut: of_producer,
    do.CloseProducer: of_producer,
    do.Subscribe: of_subscription,
    do.Unsubscribe: of_subscription,
    do.Attach: of_subscription,
    do.Detach: of_subscription,
    do.Seek: of_subscription,
    do.Ack: of_ack,
    do.SubscribeShared: of_subscription,
    Settle: of_ack,
    do.Stage: of_stage,
    do.PublishStaged: of_source,
    do.DropStaged: of_source,
    do.CloseSource: of_source,
    do.OpenSource: of_transaction,
    EndTransaction: of_transaction,
    SetPartitions: of_topic(MANAGE),
    AddGroup: of_subscription,
    RemoveGroup: of_subscription,
    Enlist: of_subscription,
    LeaveGroup: of_subscription,
    PrepareTransaction: of_transaction,
    DecideTransaction: of_transaction,
    ResolveTransaction: of_transaction,
    do.AddUser: of_admin,
    do.RemoveUser: of_admin,
    do.CreateToken: of_admin,
    do.RevokeToken: of_admin,
    do.Allow: of_admin,
    do.Disallow: of_admin,
}


def of_call(call: Call) -> Need:
    return COMMANDS[type(call.command)](call.command)


def of_tune(tune: Tune) -> Need:
    return of_subscription(tune.fetch)


def of_look(look: Look) -> Need:
    """Return the permission needed for a Look. The gateway hides topics the client may not see."""
    return (SEE, look.topic, "") if look.topic else (KNOWN, "", "")


def of_ring(look: LookRing) -> Need:
    return (SEE, look.tree, "") if look.tree else (KNOWN, "", "")


# Fetch and Tune also acknowledge messages. ACK is checked separately when a cursor would move.
FRAMES: dict[type, Needs] = {
    Call: of_call,
    Fetch: of_subscription,
    Tune: of_tune,
    Work: of_subscription,
    Look: of_look,
    Scan: of_topic(READ),
    LookGroup: of_known,
    Govern: of_admin,
    LookAccess: of_admin,
    LookBroker: of_known,
    LookRing: of_ring,
    LeaveRing: of_admin,
}
