"""The blocking interface of oncecast, for programs without an event loop.

with oncecast.blocking.connect("127.0.0.1:7400") as client:
    client.put("news", b"hello")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.client.blocking import (
    Client,
    DeadLetters,
    SharedSubscription,
    Subscription,
    Transaction,
    connect,
    embedded,
)

if TYPE_CHECKING:
    from oncecast.coordination.blocking import Node, join

__all__ = [
    "Client",
    "DeadLetters",
    "Node",
    "SharedSubscription",
    "Subscription",
    "Transaction",
    "connect",
    "embedded",
    "join",
]


def __getattr__(name: str) -> object:
    """Load groups, locks and queues on first use."""
    if name not in ("Node", "join"):
        raise AttributeError(f"module 'oncecast.blocking' has no attribute {name!r}")
    from oncecast.coordination import blocking

    return getattr(blocking, name)
