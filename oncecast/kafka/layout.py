"""The Kafka wire format, derived from the type annotations of message classes.

A class declares each field once, with its wire type and the versions that contain it:

    class FetchPartition(Body):
        index: int32
        leader_epoch: Annotated[int32, since(9)] = -1

    read, write = codec(FetchPartition, version=11, flexible=False)
    partition, end = read(data, 0)

`flexible` selects the compact encoding of newer versions: lengths are varints, and each struct ends
with tagged fields. Reading skips unknown tagged fields, and writing adds none.

Every length is checked against the remaining bytes before anything is allocated. So reading a
request needs at most a small multiple of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    NamedTuple,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from oncecast.errors import Malformed

Read = Callable[[bytes, int], tuple[Any, int]]  # data and position -> value and next position
Write = Callable[[bytearray, Any], None]

VARINT_BYTES_MAX = 5  # maximum size of an unsigned 32-bit number


class Codec(NamedTuple):
    read: Read
    write: Write


class Wire(NamedTuple):
    """A primitive wire type: its codec in old and in flexible versions."""

    plain: Codec
    flexible: Codec


class since(NamedTuple):  # noqa: N801  # reads as a word in annotations
    """The first and last versions that contain a field."""

    first: int
    last: int = 0x7FFF


class _Nullable(NamedTuple):
    """An array that may be null."""


nullable = _Nullable()


@dataclass_transform(kw_only_default=True)
class Body:
    """Base class of requests, responses and their parts. Subclasses are dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)


# Numbers.


def _number(form: str) -> Wire:
    packed = struct.Struct(">" + form)
    size, unpack, pack = packed.size, packed.unpack_from, packed.pack

    def read(data: bytes, at: int) -> tuple[Any, int]:
        end = at + size
        if end > len(data):
            raise _short(size, len(data) - at)
        return unpack(data, at)[0], end

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Wire(Codec(read, write), Codec(read, write))


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint."""
    value = shift = 0
    for end in range(at, min(at + VARINT_BYTES_MAX, len(data))):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, end + 1
        shift += 7
    raise Malformed(f"the varint at byte {at} is longer than {VARINT_BYTES_MAX} bytes")


def write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# Strings and bytes. A length of -1 means null; flexible versions store the length plus one.

_SHORT, _LONG = _number("h").plain, _number("i").plain


def _compact_length(data: bytes, at: int) -> tuple[int, int]:
    length, at = read_varint(data, at)
    return length - 1, at


def _write_compact_length(out: bytearray, value: int) -> None:
    write_varint(out, value + 1)


_COMPACT = Codec(_compact_length, _write_compact_length)


def _sized(length: Codec, *, text: bool, null: bool) -> Codec:
    read_length, write_length = length

    def read(data: bytes, at: int) -> tuple[Any, int]:
        size, at = read_length(data, at)
        if size < 0:
            if null and size == -1:
                return None, at
            raise Malformed(f"the length {size} is not allowed here")
        end = at + size
        if end > len(data):
            raise _short(size, len(data) - at)
        found = data[at:end]
        if not text:
            return found, end
        try:
            return found.decode(), end
        except UnicodeDecodeError as error:
            raise Malformed(f"the string at byte {at} is not valid UTF-8") from error

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_length(out, -1)
        else:
            data = value.encode() if text else value
            write_length(out, len(data))
            out += data

    return Codec(read, write)


def _sized_wire(length: Codec, *, text: bool, null: bool) -> Wire:
    return Wire(_sized(length, text=text, null=null), _sized(_COMPACT, text=text, null=null))


def _short(needed: int, left: int) -> Malformed:
    return Malformed(f"{needed} bytes are declared, but only {max(left, 0)} bytes remain")


boolean = Annotated[bool, _number("?")]
int8 = Annotated[int, _number("b")]
int16 = Annotated[int, _number("h")]
int32 = Annotated[int, _number("i")]
int64 = Annotated[int, _number("q")]
string = Annotated[str, _sized_wire(_SHORT, text=True, null=False)]
nullable_string = Annotated[str | None, _sized_wire(_SHORT, text=True, null=True)]
binary = Annotated[bytes, _sized_wire(_LONG, text=False, null=False)]
nullable_binary = Annotated[bytes | None, _sized_wire(_LONG, text=False, null=True)]


# Structs and arrays.


def codec(kind: type[Body], version: int, flexible: bool) -> Codec:
    """Return the codec of a class in this version."""
    made = _made.get((kind, version, flexible))
    if made is None:
        made = _made[kind, version, flexible] = _make(kind, version, flexible)
    return made


_made: dict[tuple[type[Body], int, bool], Codec] = {}


def _make(kind: type[Body], version: int, flexible: bool) -> Codec:
    fields: list[tuple[str, Codec]] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, extras = _taken_apart(hint)
        versions = next((each for each in extras if isinstance(each, since)), since(0))
        if versions.first <= version <= versions.last:
            fields.append((name, _codec_of(base, extras, version, flexible)))
    readers = tuple((name, each.read) for name, each in fields)
    writers = tuple((name, each.write) for name, each in fields)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        found = {}
        for name, read_field in readers:
            found[name], at = read_field(data, at)
        if flexible:
            at = skip_tagged(data, at)
        return kind(**found), at

    def write(out: bytearray, value: Any) -> None:
        for name, write_field in writers:
            write_field(out, getattr(value, name))
        if flexible:
            out.append(0)

    return Codec(read, write)


def _taken_apart(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type without `Annotated`, and its annotations."""
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        return base, tuple(extras)
    return hint, ()


def _codec_of(base: Any, extras: tuple[Any, ...], version: int, flexible: bool) -> Codec:
    wire = next((each for each in extras if isinstance(each, Wire)), None)
    if wire is not None:
        return wire.flexible if flexible else wire.plain
    members = [each for each in get_args(base) if each is not type(None)]
    if get_origin(base) is not tuple and members:  # `tuple[...] | None`
        base = members[0]
    if get_origin(base) is tuple:
        item = _codec_of(*_taken_apart(get_args(base)[0]), version, flexible)
        return _array(item, _COMPACT if flexible else _LONG, null=nullable in extras)
    return codec(base, version, flexible)


def _array(item: Codec, length: Codec, *, null: bool) -> Codec:
    read_length, write_length = length
    read_item, write_item = item

    def read(data: bytes, at: int) -> tuple[Any, int]:
        size, at = read_length(data, at)
        if size < 0:
            if null and size == -1:
                return None, at
            raise Malformed(f"the array length {size} is not allowed here")
        if size > len(data) - at:  # Every element has at least one byte.
            raise _short(size, len(data) - at)
        found = []
        for _ in range(size):
            value, at = read_item(data, at)
            found.append(value)
        return tuple(found), at

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_length(out, -1)
        else:
            write_length(out, len(value))
            for each in value:
                write_item(out, each)

    return Codec(read, write)


def skip_tagged(data: bytes, at: int) -> int:
    count, at = read_varint(data, at)
    if count > len(data) - at:
        raise _short(count, len(data) - at)
    for _ in range(count):
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        if size > len(data) - at:
            raise _short(size, len(data) - at)
        at += size
    return at
