"""Durable exactly-once publish/subscribe, from one process to a replicated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from oncecast import blocking, errors
    from oncecast.client.arrow import read_arrow
    from oncecast.client.client import (
        EARLIEST,
        NEW,
        Client,
        connect,
        from_offset,
        from_time,
    )
    from oncecast.client.dead_letters import DeadLetter, DeadLetters
    from oncecast.client.embedded import embedded
    from oncecast.client.jobs import Job, SharedSubscription
    from oncecast.client.parcel import Receipt
    from oncecast.client.scanning import Slice
    from oncecast.client.shared import Shared
    from oncecast.client.subscription import Subscription
    from oncecast.client.transactions import Transaction
    from oncecast.client.worker import worker
    from oncecast.coordination.node import join
    from oncecast.network.tls import Tls
    from oncecast.streams.protocols.policies import KEEP_ALL, Durability, QoS, Reliability
    from oncecast.wire.message import Message
    from oncecast.wire.retention import Policy

# Load these names on first use, so that `import oncecast` and `oncecast --help` are fast.
_DEFINED_IN = {
    "Durability": "oncecast.streams.protocols.policies",
    "EARLIEST": "oncecast.client.client",
    "KEEP_ALL": "oncecast.streams.protocols.policies",
    "NEW": "oncecast.client.client",
    "Client": "oncecast.client.client",
    "DeadLetter": "oncecast.client.dead_letters",
    "DeadLetters": "oncecast.client.dead_letters",
    "Job": "oncecast.client.jobs",
    "Message": "oncecast.wire.message",
    "Policy": "oncecast.wire.retention",
    "QoS": "oncecast.streams.protocols.policies",
    "Receipt": "oncecast.client.parcel",
    "Reliability": "oncecast.streams.protocols.policies",
    "Shared": "oncecast.client.shared",
    "SharedSubscription": "oncecast.client.jobs",
    "Slice": "oncecast.client.scanning",
    "Subscription": "oncecast.client.subscription",
    "Tls": "oncecast.network.tls",
    "Transaction": "oncecast.client.transactions",
    "connect": "oncecast.client.client",
    "embedded": "oncecast.client.embedded",
    "from_offset": "oncecast.client.client",
    "from_time": "oncecast.client.client",
    "join": "oncecast.coordination.node",
    "read_arrow": "oncecast.client.arrow",
    "worker": "oncecast.client.worker",
}
_MODULES = {"blocking": "oncecast.blocking", "errors": "oncecast.errors"}

__all__ = [
    "EARLIEST",
    "KEEP_ALL",
    "NEW",
    "Client",
    "DeadLetter",
    "DeadLetters",
    "Durability",
    "Job",
    "Message",
    "Policy",
    "QoS",
    "Receipt",
    "Reliability",
    "Shared",
    "SharedSubscription",
    "Slice",
    "Subscription",
    "Tls",
    "Transaction",
    "__version__",
    "blocking",
    "connect",
    "embedded",
    "errors",
    "from_offset",
    "from_time",
    "join",
    "read_arrow",
    "worker",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        found: object = import_module(_MODULES[name])
    elif name in _DEFINED_IN:
        found = getattr(import_module(_DEFINED_IN[name]), name)
    else:
        raise AttributeError(f"module 'oncecast' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
