"""Random requests and responses in the Kafka protocol, and their bytes."""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from oncecast.kafka.layout import Body, Wire, codec, since
from oncecast.kafka.messages import Api

TEXT = "abz-.0ü€😀"


def encoded(body: Body, version: int, *, flexible: bool = False) -> bytes:
    out = bytearray()
    codec(type(body), version, flexible).write(out, body)
    return bytes(out)


def request_bytes(api: Api, version: int, request: Body, correlation: int = 7) -> bytes:
    """Return a request as a Kafka client sends it, without the length."""
    header = api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
    header += correlation.to_bytes(4, "big") + b"\x00\x02me"
    flexible = version >= api.flexible
    tagged = b"\x00" if flexible else b""
    return header + tagged + encoded(request, version, flexible=flexible)


def random_body(kind: type[Body], version: int, rng: Random) -> Any:
    """Return an instance of `kind` with random values in all fields of this version."""
    fields = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, extras = taken_apart(hint)
        versions = next((each for each in extras if isinstance(each, since)), since(0))
        if versions.first <= version <= versions.last:
            fields[name] = random_value(base, extras, version, rng)
    return kind(**fields)


def taken_apart(hint: Any) -> tuple[Any, list[Any]]:
    base, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return base, extras


def random_value(base: Any, extras: list[Any], version: int, rng: Random) -> Any:
    members = get_args(base)
    if type(None) in members:
        if rng.random() < 0.2:
            return None
        base = next(each for each in members if each is not type(None))
    if get_origin(base) is tuple:
        item, more = taken_apart(get_args(base)[0])
        return tuple(random_value(item, more, version, rng) for _ in range(rng.randrange(3)))
    if base is int:
        wire = next(each for each in extras if isinstance(each, Wire))
        out = bytearray()
        wire.plain.write(out, 0)
        high = 1 << (8 * len(out) - 1)
        return rng.choice([0, -1, high - 1, -high, rng.randrange(-high, high)])
    if base is bool:
        return rng.random() < 0.5
    if base is str:
        return "".join(rng.choices(TEXT, k=rng.randrange(6)))
    if base is bytes:
        return rng.randbytes(rng.randrange(9))
    return random_body(base, version, rng)
