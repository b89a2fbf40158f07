"""Wire and disk types have explicit tags, so renaming a class does not change a format."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import msgspec

import oncecast
from oncecast.kernel.protocol import Protocol, Value

PINNED = Path(__file__).with_name("tags.txt")
# Encoded by hand, not by the codec of a protocol.
BY_HAND = (
    "oncecast.broker.moves",
    "oncecast.broker.state",
    "oncecast.coordination.register",
    "oncecast.network.handshake",
)
WITHOUT = ("oncecast.spark", "oncecast.__main__")  # no wire types, and Spark is slow to import


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(oncecast.__path__, "oncecast."):
        if not found.name.startswith(WITHOUT):
            yield found.name


def subclasses(of: type) -> Iterator[type]:
    each: type
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def walk(found: object, seen: dict[type[msgspec.Struct], None]) -> None:
    """Add the struct types in the type expression `found` to `seen`."""
    if isinstance(found, type) and issubclass(found, msgspec.Struct):
        if found in seen:
            return
        seen[found] = None
    if isinstance(found, type) and issubclass(found, msgspec.Struct | tuple):
        for hint in typing.get_type_hints(found).values():
            walk(hint, seen)
    for part in typing.get_args(found):
        walk(part, seen)


def encoded() -> list[type[msgspec.Struct]]:
    """Return each tagged type that is sent or stored."""
    for name in modules():
        import_module(name)
    seen: dict[type[msgspec.Struct], None] = {}
    for protocol in subclasses(Protocol):
        if protocol.__module__.startswith("oncecast."):
            for role in ("Message", "Record", "State"):
                walk(getattr(protocol, role), seen)
    for value in subclasses(Value):
        if value.__module__ in BY_HAND:
            walk(value, seen)
    tagged = (each for each in seen if each.__struct_config__.tag is not None)
    return sorted(tagged, key=lambda each: (each.__module__, each.__qualname__))


def parts(hint: object) -> Iterator[object]:
    """Yield a type expression and everything that it is built from."""
    yield hint
    for part in typing.get_args(hint):
        yield from parts(part)


def explicit_tag(type_: type) -> str | None:
    node = ast.parse(dedent(inspect.getsource(type_))).body[0]
    assert isinstance(node, ast.ClassDef)
    for keyword in node.keywords:
        if keyword.arg == "tag" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def test_every_encoded_type_has_an_explicit_tag() -> None:
    """A renamed class keeps its tag and therefore its format."""
    assert [each.__qualname__ for each in encoded() if explicit_tag(each) is None] == []


def test_no_encoded_type_contains_a_view_of_the_receive_buffer() -> None:
    """The next read overwrites the buffer, so a view would change after it was decoded."""
    views = [
        each.__qualname__
        for each in encoded()
        for hint in typing.get_type_hints(each).values()
        if {memoryview, msgspec.Raw} & set(parts(hint))
    ]
    assert views == []


def test_tags_match_those_written_by_older_versions() -> None:
    """Never edit a line of tags.txt: data directories contain these tags. Add lines only."""
    tags = sorted({str(each.__struct_config__.tag) for each in encoded()})
    assert tags == PINNED.read_text().split()
