"""Collect messages, one or many at a time, and pack them into a batch."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import chain

from oncecast.wire.batch_layout import (
    BYTES_MAX,
    COLUMNS,
    FRAME_BYTES,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    KEY_BYTES_MAX,
    MESSAGES_MAX,
    NAME_BYTES_MAX,
    NO_KEY,
    Oversized,
    Parts,
    seal,
    seal_columns,
)

ZSTD_FROM = 1024  # minimum size of a batch that is compressed

# Maximum overhead of a message: two lengths, a count and a time.
_MESSAGE_BYTES = 20
_PAIR_BYTES = 8


class Builder:
    """Collects messages for one batch.

    Most messages have no key or headers and share the first message's time. Adding one of these
    costs two appends. Keys, headers and differing times are stored by index.
    """

    __slots__ = ("_headers", "_keys", "_lengths", "_most", "_time", "_times", "_values", "bytes")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._most = min(bytes_max, BYTES_MAX)
        self.bytes = FRAME_BYTES  # upper bound on the batch size
        self._values: list[bytes] = []
        self._lengths: list[int] = []
        self._keys: dict[int, bytes] = {}
        self._headers: dict[int, list[tuple[bytes, bytes]]] = {}
        self._times: dict[int, int] = {}
        self._time: int | None = None  # time of the first message

    def __len__(self) -> int:
        return len(self._values)

    def add(
        self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None, timestamp: int
    ) -> int:
        """Add a message and return its index. On error, the builder is unchanged."""
        if type(value) is not bytes:
            value = to_bytes("value", value)
        index = len(self._values)
        length = len(value)
        size = self.bytes + _MESSAGE_BYTES + length
        if size > self._most or index >= MESSAGES_MAX:
            raise _oversized(index + 1, size, self._most)
        if key is not None or headers or timestamp != self._time:
            size = self._add_rest(index, size, key, headers, timestamp)
        self._values.append(value)
        self._lengths.append(length)
        self.bytes = size
        return index

    def extend(self, values: Sequence[bytes], timestamp: int) -> int:
        """Add messages without keys or headers, and return the index of the first."""
        if not set(map(type, values)) <= {bytes}:
            values = [to_bytes("value", value) for value in values]
        lengths = list(map(len, values))
        index = len(self._values)
        count = index + len(values)
        size = self.bytes + _MESSAGE_BYTES * len(values) + sum(lengths)
        if size > self._most or count > MESSAGES_MAX:
            raise _oversized(count, size, self._most)
        if timestamp != self._time and values:
            self._set_times(range(index, count), to_time(timestamp))
        self._values += values
        self._lengths += lengths
        self.bytes = size
        return index

    def build(self, *, zstd: int | None = None, zstd_from: int = ZSTD_FROM) -> bytes:
        """Return the batch, compressed if `zstd` is set. The builder is unchanged."""
        parts = Parts(value_lengths=_pack("I", self._lengths), values=b"".join(self._values))
        if self._times or self._keys or self._headers:
            parts = self._with_rest(parts)
        return seal_columns(parts, self._time or 0, zstd=zstd, zstd_from=zstd_from)

    def _add_rest(
        self,
        index: int,
        size: int,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        timestamp: int,
    ) -> int:
        """Validate and add a key, headers or a differing time. Return the new size."""
        pairs = _to_pairs(headers) if headers else []
        for name, value in pairs:
            size += _PAIR_BYTES + len(name) + len(value)
        if key is not None:
            if type(key) is not bytes:
                key = to_bytes("key", key)
            limit("key", len(key), KEY_BYTES_MAX)
            size += len(key)
        if size > self._most:
            raise _oversized(index + 1, size, self._most)
        if timestamp != self._time:
            self._set_times(range(index, index + 1), to_time(timestamp))
        if key is not None:
            self._keys[index] = key
        if pairs:
            self._headers[index] = pairs
        return size

    def _set_times(self, indexes: range, timestamp: int) -> None:
        if self._time is None:
            self._time = timestamp
        else:
            for index in indexes:
                self._times[index] = timestamp

    def _with_rest(self, parts: Parts) -> Parts:
        count = len(self._values)
        if self._times:
            times = [self._time or 0] * count
            for index, time in self._times.items():
                times[index] = time
            parts = parts._replace(times=_pack("q", times))
        if self._keys:
            lengths = [NO_KEY] * count
            for index, key in self._keys.items():
                lengths[index] = len(key)
            parts = parts._replace(
                key_lengths=_pack("I", lengths), keys=b"".join(self._keys.values())
            )
        if self._headers:
            counts = [0] * count
            for index, found in self._headers.items():
                counts[index] = len(found)
            names, values = zip(*chain.from_iterable(self._headers.values()), strict=True)
            parts = parts._replace(
                header_counts=_pack("I", counts),
                name_lengths=_pack("I", list(map(len, names))),
                header_lengths=_pack("I", list(map(len, values))),
                names=b"".join(names),
                headers=b"".join(values),
            )
        return parts


def of_values(values: Sequence[bytes], time: int, *, zstd: int | None = None) -> bytes:
    """Return a batch of values that share one time and have no keys or headers."""
    lengths, joined = _pack("I", list(map(len, values))), b"".join(values)
    if zstd is not None:
        parts = Parts(value_lengths=lengths, values=joined)
        return seal_columns(parts, time, zstd=zstd, zstd_from=ZSTD_FROM)
    return seal(COLUMNS, 0, len(values), time, (len(joined), 0, 0, 0, 0), (lengths, joined))


def _pack(code: str, numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def to_bytes(what: str, given: object) -> bytes:
    """Return a copy of a bytes-like value, because the original could change before `build`."""
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"{what} is {type(given).__name__}, not bytes; encode it first")
    return bytes(given)


def to_time(given: object) -> int:
    if not isinstance(given, int):
        raise TypeError(
            f"timestamp is {type(given).__name__}, not int; pass microseconds since 1970"
        )
    limit("timestamp", abs(given), 2**63 - 1)
    return given


def _to_pairs(headers: Mapping[str, bytes]) -> list[tuple[bytes, bytes]]:
    if not isinstance(headers, Mapping):
        raise TypeError(
            f"headers is {type(headers).__name__}, not a dict; pass a dict of str to bytes"
        )
    limit("number of headers", len(headers), HEADERS_MAX)
    pairs = []
    for name, value in headers.items():
        if type(value) is not bytes:
            value = to_bytes(f"header {name!r}", value)
        if len(value) > HEADER_BYTES_MAX:
            limit(f"header {name!r}", len(value), HEADER_BYTES_MAX)
        pairs.append((_to_name(name), value))
    return pairs


def _to_name(given: str) -> bytes:
    if not isinstance(given, str):
        raise TypeError(f"header name is {type(given).__name__}, not str; decode it first")
    try:
        name = given.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"header name {given!r} is not valid Unicode; choose another name"
        ) from None
    if not name:
        raise ValueError("a header has an empty name; give it a name of 1 to 255 bytes")
    limit("header name", len(name), NAME_BYTES_MAX)
    return name


def limit(what: str, size: int, most: int) -> None:
    if size > most:
        raise Oversized(f"{what}: {size:,} (limit {most:,})")


def _oversized(count: int, size: int, most: int) -> Oversized:
    return Oversized(
        f"the batch would have {count:,} messages and {size:,} bytes (limits {MESSAGES_MAX:,} and "
        f"{most:,}); build this batch and start another, or split the message"
    )
