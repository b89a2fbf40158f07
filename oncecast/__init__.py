"""Durable exactly-once publish/subscribe, from one process to a replicated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from oncecast.client import blocking, errors
    from oncecast.client.client import (
        EARLIEST,
        NEW,
        Client,
        connect,
        from_offset,
        from_time,
    )
    from oncecast.client.embedded import embedded
    from oncecast.client.parcel import Receipt
    from oncecast.client.scanning import Slice
    from oncecast.client.subscription import Subscription
    from oncecast.pubsub.batch import Message
    from oncecast.pubsub.retention import Policy

# Loaded when first used: `import oncecast` and `oncecast --help` stay quick.
_HOMES = {
    "EARLIEST": "oncecast.client.client",
    "NEW": "oncecast.client.client",
    "Client": "oncecast.client.client",
    "Message": "oncecast.pubsub.batch",
    "Policy": "oncecast.pubsub.retention",
    "Receipt": "oncecast.client.parcel",
    "Slice": "oncecast.client.scanning",
    "Subscription": "oncecast.client.subscription",
    "connect": "oncecast.client.client",
    "embedded": "oncecast.client.embedded",
    "from_offset": "oncecast.client.client",
    "from_time": "oncecast.client.client",
}
_MODULES = {"blocking": "oncecast.client.blocking", "errors": "oncecast.client.errors"}

__all__ = [
    "EARLIEST",
    "NEW",
    "Client",
    "Message",
    "Policy",
    "Receipt",
    "Slice",
    "Subscription",
    "__version__",
    "blocking",
    "connect",
    "embedded",
    "errors",
    "from_offset",
    "from_time",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        found: object = import_module(_MODULES[name])
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'oncecast' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
