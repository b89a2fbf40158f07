"""Short texts for values: messages, requests, records, timers and effects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from oncecast.dht.identifiers import BYTES, Position
from oncecast.kernel.protocol import (
    Append,
    Ask,
    Effect,
    Emit,
    Later,
    Snapshot,
    Trim,
    Unwatch,
    Value,
    Watch,
)
from oncecast.replication.ballot import Ballot
from oncecast.replication.messages import CHECK, COMMAND, CONFIG, NOOP, Item
from oncecast.replication.quorum import Config, Member

BYTES_SHOWN = 20
TEXT_SHOWN = 48
ITEMS_SHOWN = 4
DEPTH_MAX = 6
LARGE = 1 << 53  # larger numbers are random identifiers
KINDS = {COMMAND: "command", NOOP: "no-op", CONFIG: "membership", CHECK: "check"}


def name_of(value: Any) -> str:
    """Return the type of a value, or nothing for a plain value."""
    return type(value).__name__ if isinstance(value, Value) else ""


def fields_of(value: Any) -> str:
    """Return the fields of a value, without the name of its type."""
    if not isinstance(value, Value):
        return "" if value is None else brief(value)
    return _fields(value, 0)


def _fields(value: Any, depth: int) -> str:
    return " ".join(
        f"{name}={brief(getattr(value, name), depth + 1)}" for name in value.__struct_fields__
    )


# Long because it is one table.
def brief(thing: Any, depth: int = 0) -> str:
    """Return a short text for any value."""
    if depth > DEPTH_MAX:
        return "…"
    match thing:
        case Ballot(round, node):
            return ballot_text(thing) if round or node else "none"
        case Item():
            return item_text(thing)
        case Member(node, incarnation):
            return f"{node}~{incarnation & 0xFFFF:x}"
        case Config():
            members = " ".join(thing.nodes())
            return f"members({members}) version={thing.version} size={thing.size}"
        case Position(id, node):
            return f"{node}@{id[:2].hex()}"
        case Value() | msgspec.Struct():
            return f"{type(thing).__name__}({_fields(thing, depth)})"
        case Enum():
            return thing.name.lower()
        case bool() | None:
            return str(thing).lower()
        case int():
            return f"#{thing & 0xFFFF:04x}" if abs(thing) >= LARGE else str(thing)
        case float():
            return f"{thing:.6g}"
        case bytes():
            return bytes_text(thing)
        case str():
            return thing if len(thing) <= TEXT_SHOWN else f"{thing[:TEXT_SHOWN]}…"
        case tuple() if hasattr(thing, "_fields"):
            pairs = zip(thing._fields, thing, strict=True)
            inside = " ".join(f"{name}={brief(value, depth + 1)}" for name, value in pairs)
            return f"{type(thing).__name__}({inside})"
        case tuple() | list():
            more = [f"… {len(thing)} in all"] if len(thing) > ITEMS_SHOWN else []
            return (
                f"[{', '.join([*(brief(each, depth + 1) for each in thing[:ITEMS_SHOWN]), *more])}]"
            )
        case Mapping():
            items = [f"{brief(key)}: {brief(value, depth + 1)}" for key, value in thing.items()]
            more = [f"… {len(items)} in all"] if len(items) > ITEMS_SHOWN else []
            return f"{{{', '.join([*items[:ITEMS_SHOWN], *more])}}}"
        case _:
            return type(thing).__name__


def ballot_text(ballot: Ballot) -> str:
    return f"{ballot.round}.{ballot.node}" if ballot.round else ""


def bytes_text(data: bytes) -> str:
    """Return printable text as it is, an identifier by its start, and other bytes as hex."""
    shown = data[:BYTES_SHOWN]
    if shown.isascii() and shown.decode("ascii").isprintable():
        text = f"'{shown.decode('ascii')}'"
    elif len(data) == BYTES:
        return f"@{data[:2].hex()}"
    else:
        text = f"0x{data[:4].hex()}" + ("…" if len(data) > 4 else "")
    return f"{text} {len(data)} B" if len(data) > BYTES_SHOWN else text


def item_text(item: Item) -> str:
    """Return the value of a slot. Commands are decoded, because they are MessagePack."""
    kind = KINDS.get(item.kind, str(item.kind))
    if item.kind == NOOP or not item.data:
        return kind
    try:
        decoded = msgspec.msgpack.decode(item.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"{kind} {bytes_text(item.data)}"
    return f"{kind} {brief(decoded)}"


def effect_text(effect: Effect) -> str:
    """Return the text of an effect. Sends are recorded as messages, so they have none."""
    match effect:
        case Emit(event, _):
            return f"emits {brief(event)}"
        case Ask(request, _):
            return f"asks {brief(request)}"
        case Append(record, number):
            return f"appends record {number}: {brief(record)}"
        case Snapshot(state, number):
            return f"saves a snapshot of records up to {number}: {name_of(state)}"
        case Trim(_, number):
            return f"trims its log before record {number}"
        case Later(delay, timer):
            return f"sets timer {brief(timer)} in {delay:.3g} s"
        case Watch(peer):
            return f"watches {peer}"
        case Unwatch(peer):
            return f"stops watching {peer}"
        case _:
            return ""
