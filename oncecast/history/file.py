"""Histories as files of JSON lines, one file per client process. `merged` combines them.

The first line is a header. An operation has a line with its `id` when it is called, and another
line with the fields of its answer when it returns. An operation that returns immediately, or never,
has one line. `read` ignores an incomplete last line, which a killed process left. A restarted
process may append to its file. Its part begins with another header.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from oncecast.errors import BadHistory
from oncecast.history.operation import DIGEST_BYTES, History, Operation

FORMAT = 1
HEADER = "oncecast-history"
KEYS = {each.name: each.encode_name for each in msgspec.structs.fields(Operation)}


class Writer:
    """The sink of a recorder. If the stream is unbuffered, a killed process loses no operation."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._encode = msgspec.json.Encoder().encode
        self._last = 0
        self._ids: dict[int, tuple[int, Operation]] = {}  # calls without an answer yet
        if stream.seekable() and stream.tell():
            stream.write(b"\n")  # end the incomplete line of a killed process
        self._put({HEADER: FORMAT})

    def whole(self, operation: Operation) -> None:
        self._put(operation)

    def called(self, operation: Operation) -> None:
        self._last += 1
        self._ids[id(operation)] = self._last, operation
        self._put({"id": self._last, **_fields(operation)})

    def returned(self, operation: Operation, answer: dict[str, Any]) -> None:
        number, _ = self._ids.pop(id(operation))
        self._put({"id": number, **{KEYS[name]: value for name, value in answer.items()}})

    def _put(self, line: Any) -> None:
        self._stream.write(self._encode(line) + b"\n")


def write(history: Iterable[Operation], stream: BinaryIO) -> None:
    """Write a complete history to the stream."""
    writer = Writer(stream)
    for operation in history:
        writer.whole(operation)


def read(lines: Iterable[bytes], name: str = "history") -> History:
    """Return the operations of one file. Raise BadHistory with `name` and the line number."""
    found: list[tuple[int, dict[str, Any]]] = []  # line number and fields of each call
    pending: dict[int, dict[str, Any]] = {}
    damage, headed = "", False
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # the process was killed while it wrote this line
        if line == b"\n":
            continue
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            damage = damage or f"{name}, line {number}: not a JSON object: {error}"
            continue
        if HEADER in fields or not (headed or damage):
            _check_header(fields, name)
            pending.clear()
            damage, headed = "", True  # a killed process wrote the damaged line
            continue
        if damage:
            break
        id_ = fields.pop("id", None)
        if id_ in pending:
            pending.pop(id_).update(fields)
            continue
        if id_ is not None and "call" not in fields:
            damage = f"{name}, line {number}: answers call {id_}, which is not in the file"
            break
        found.append((number, fields))
        if id_ is not None:
            pending[id_] = fields
    if damage:
        raise BadHistory(damage)
    return [_operation(fields, f"{name}, line {number}") for number, fields in found]


def merged(histories: Iterable[History]) -> History:
    """Return the operations of all clients, ordered by the times of their calls."""
    return sorted((each for one in histories for each in one), key=lambda each: each.call)


def _check_header(fields: dict[str, Any], name: str) -> None:
    if HEADER not in fields:
        raise BadHistory(
            f"{name}: not a history", f"its first line must contain the key {HEADER!r}"
        )
    if fields[HEADER] != FORMAT:
        raise BadHistory(
            f"{name}: history format {fields[HEADER]!r} (this version reads {FORMAT})",
            "use the version of oncecast that wrote the file",
        )


def _fields(operation: Operation) -> dict[str, Any]:
    default = Operation("", "put", "", 0.0)
    fields = msgspec.structs.asdict(operation)
    required = ("client", "kind", "topic", "call")
    return {
        KEYS[name]: value
        for name, value in fields.items()
        if name in required or value != getattr(default, name)
    }


def _operation(fields: dict[str, Any], where: str) -> Operation:
    try:
        operation = msgspec.convert(fields, Operation)
    except msgspec.ValidationError as error:
        raise BadHistory(f"{where}: {error}") from None
    call, returned, digests = operation.call, operation.returned, len(operation.digests)
    if returned is not None and returned < call:
        raise BadHistory(
            f"{where}: the operation returned at {returned} s, before its call at {call} s"
        )
    if digests % DIGEST_BYTES:
        raise BadHistory(
            f"{where}: the digests are {digests} bytes long, which is not a multiple of "
            f"{DIGEST_BYTES}"
        )
    return operation
