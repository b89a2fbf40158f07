"""Pack a recording into a few bytes for the page.

    zlib( length of the header, 4 bytes, little-endian | header, as JSON | columns )

The header names the columns and holds all strings once. A column is a sequence of whole numbers:
zigzag varints, or varints of the differences of successive numbers. Times are microseconds since
the begin of the recording. page/format.js reads this format.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from oncecast.playback.recording import NETWORK, NONE, Recording, State

FORMAT = 1
FATES = ("got", "lost", "cut", "down", "unsent", "held", "open")
DELTA = frozenset(
    ("steps.time", "messages.left", "messages.sent", "changes.step", "votes.step", "ops.call")
)
ABSENT = -1  # of a number that a state no longer has


def pack(recording: Recording) -> bytes:
    columns = Columns(recording)
    offset, blobs, places = 0, [], {}
    for name, numbers in columns.numbers.items():
        blob = varints(differences(numbers) if name in DELTA else numbers)
        places[name] = [offset, len(blob), len(numbers), name in DELTA]
        offset += len(blob)
        blobs.append(blob)
    header = msgspec.json.encode({**columns.header(), "columns": places})
    return zlib.compress(len(header).to_bytes(4, "little") + header + b"".join(blobs), 9)


def differences(numbers: Sequence[int]) -> list[int]:
    befores = (0, *numbers)
    return [number - before for before, number in zip(befores, numbers, strict=False)]


def varints(numbers: Iterable[int]) -> bytes:
    """Encode numbers in groups of 7 bits, lowest first; 0, -1, 1, -2 become 0, 1, 2, 3."""
    packed = bytearray()
    for number in numbers:
        left = number * 2 if number >= 0 else -number * 2 - 1
        while left > 0x7F:
            packed.append(left & 0x7F | 0x80)
            left >>= 7
        packed.append(left)
    return bytes(packed)


class Pool(dict[str, int]):
    """The strings of a recording, with their numbers."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Columns:
    """A recording as columns of numbers."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.strings, self.words = Pool({"": 0}), Pool({"": 0})
        self.nodes = Pool({node: at for at, node in enumerate((NETWORK, *recording.nodes))})
        self.keys: dict[str, dict[str, Any]] = {}
        self.numbers: dict[str, list[int]] = {}
        self._rows = {number: row for row, number in enumerate(sorted(recording.messages))}
        self._add_steps()
        self._add_messages()
        self._add_changes()
        self._add_votes()
        self._add_operations()

    def _us(self, time: float) -> int:
        return NONE if time < 0 else round((time - self.recording.begin) * 1e6)

    def _row(self, step: int) -> int:
        """Return the row of a step, or -1 if it was dropped."""
        return max(NONE, step - self.recording.first)

    def _put(self, table: str, **columns: Iterable[int]) -> None:
        for name, numbers in columns.items():
            self.numbers[f"{table}.{name}"] = list(numbers)

    def _add_steps(self) -> None:
        steps, words, strings = self.recording.steps, self.words, self.strings
        causes = enumerate(self._row(each.cause) for each in steps)
        self._put(
            "steps",
            time=[self._us(each.time) for each in steps],
            node=[self.nodes[each.node] for each in steps],
            kind=[words[each.kind] for each in steps],
            name=[words[each.name] for each in steps],
            text=[strings[each.text] for each in steps],
            back=[0 if cause == NONE else row - cause for row, cause in causes],
            message=[self._rows.get(each.message, NONE) for each in steps],
            effects=[len(each.effects) for each in steps],
        )
        self._put("effects", text=[strings[text] for each in steps for text in each.effects])

    def _add_messages(self) -> None:
        messages, words = self.recording.messages, self.words
        rows = [messages[number] for number in sorted(messages)]
        left = [self._us(max(each.left, self.recording.begin)) for each in rows]
        due = zip(left, (self._us(each.due) for each in rows), strict=True)
        self._put(
            "messages",
            name=[words[each.name] for each in rows],
            sender=[self.nodes[each.sender] for each in rows],
            to=[self.nodes[each.to] for each in rows],
            text=[self.strings[each.text] for each in rows],
            sent=[self._row(each.sent) for each in rows],
            left=[NONE if each.left < 0 else at for each, at in zip(rows, left, strict=True)],
            took=[NONE if at < 0 else max(0, at - begun) for begun, at in due],
            got=[self._row(each.got) for each in rows],
            fate=[FATES.index(each.fate) for each in rows],
        )

    def _add_changes(self) -> None:
        changes = self.recording.changes
        for each in changes:
            known = self.keys.setdefault(each.key, {"number": len(self.keys), "text": False})
            known["text"] |= isinstance(each.value, str) and each.value != ""
        self._put(
            "changes",
            step=[self._row(each.step) for each in changes],
            node=[self.nodes[each.node] for each in changes],
            key=[self.keys[each.key]["number"] for each in changes],
            value=[self._value(each.key, each.value) for each in changes],
        )

    def _value(self, key: str, value: State) -> int:
        if self.keys[key]["text"]:
            return self.strings[str(value)]
        return value if isinstance(value, int) else ABSENT

    def _add_votes(self) -> None:
        votes = self.recording.votes
        self._put(
            "votes",
            step=[self._row(each.step) for each in votes],
            node=[self.nodes[each.node] for each in votes],
            slot=[each.slot for each in votes],
            ballot=[self.words[each.ballot] for each in votes],
            text=[self.strings[each.text] for each in votes],
            checksum=[each.checksum for each in votes],
        )

    def _add_operations(self) -> None:
        operations = self.recording.operations
        self._put(
            "ops",
            client=[self.words[each.client] for each in operations],
            kind=[self.words[each.kind] for each in operations],
            text=[self.strings[each.text] for each in operations],
            call=[self._us(each.call) for each in operations],
            returned=[self._us(each.returned) for each in operations],
            error=[self.strings[each.error] for each in operations],
            blamed=[int(each.blamed) for each in operations],
        )

    def header(self) -> dict[str, Any]:
        recording = self.recording
        return {
            "format": FORMAT,
            "title": recording.title,
            "source": recording.source,
            "facts": recording.facts,
            "notes": recording.notes,
            "begin": recording.begin,
            "end": self._us(recording.end),
            "dropped": recording.first,
            "nodes": list(self.nodes),
            "words": list(self.words),
            "strings": list(self.strings),
            "keys": [{"key": key, "text": each["text"]} for key, each in self.keys.items()],
            "fates": FATES,
            "faults": [self._fault(each) for each in recording.faults],
            "violation": self._violation(),
        }

    def _fault(self, fault: Any) -> dict[str, Any]:
        return {
            "kind": fault.kind,
            "begin": self._us(max(fault.begin, self.recording.begin)),
            "end": self._us(fault.end),
            "senders": [self.nodes[each] for each in fault.senders],
            "receivers": [self.nodes[each] for each in fault.receivers],
            "both": fault.both,
            "amount": fault.amount,
        }

    def _violation(self) -> dict[str, Any] | None:
        violation = self.recording.violation
        if violation is None:
            return None
        return {
            "text": violation.text,
            "time": self._us(violation.time),
            "step": self._row(violation.step),
            "chain": [self._row(each) for each in violation.chain],
            "slots": violation.slots,
            "related": [row for row in map(self._row, violation.related) if row != NONE],
        }
