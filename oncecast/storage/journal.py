"""A stack's journal: it writes the protocols' records and restores them.

Each record belongs to one protocol. A snapshot replaces all records of its protocol up to a number.
After a restart, the journal restores each protocol's snapshot and then the later records, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from oncecast.errors import Corrupt, DiskFull, Malformed, WrongFormat
from oncecast.kernel.codec import Codec
from oncecast.kernel.protocol import Append, Chunked, Snapshot, Trim, Value
from oncecast.kernel.stack import Stack
from oncecast.storage import snapshot
from oncecast.storage.disk import Disk
from oncecast.storage.log import SEGMENT_BYTES, Log, Unsynced


class Saved(NamedTuple):
    """A protocol's encoded state at record `number`."""

    protocol: str
    number: int
    chunks: list[bytes]


class Flush:
    """A group of records and snapshots to sync. `run` blocks and may run in another thread."""

    def __init__(self, disk: Disk, unsynced: Unsynced | None, snapshots: list[Saved]) -> None:
        self.disk, self.unsynced, self.snapshots = disk, unsynced, snapshots
        self.saved: list[Saved] = []

    def run(self) -> None:
        if self.unsynced is not None:
            self.unsynced.sync()
        # Sync the log first: a snapshot must not be newer than the last synced record.
        for taken in self.snapshots:
            with suppress(DiskFull):  # the node can still restart from the older snapshot
                snapshot.save(self.disk, taken.number, taken.chunks, name=taken.protocol)
                self.saved.append(taken)


class Journal:
    def __init__(self, disk: Disk, log: Log, stack: Stack, snapshots: dict[str, int]) -> None:
        self.log = log
        self._disk = disk
        records = Codec(kinds(stack, "Record"))
        self._encode, self._decode = records.encode, records.decode
        self._encode_state = Codec(kinds(stack, "State")).encode
        self._owner = {kind: stack.protocols[layer].name for kind, layer in owners(stack, "State")}
        self._taken: list[Saved] = []
        self._snapshots = snapshots  # the record number of each protocol's newest snapshot on disk
        self._trimmed = False  # whether a protocol has trimmed since the last truncation
        self._trims = {stack.protocols[layer].name: 0 for _, layer in owners(stack, "Record")}

    @classmethod
    def open(cls, disk: Disk, stack: Stack, *, segment_bytes: int = SEGMENT_BYTES) -> Journal:
        """Recover the log, restore the stack and return the journal.

        Raise Corrupt if a protocol needs a damaged record, unless the stack heals and the lost
        record numbers are known.
        """
        snapshots = restore_snapshots(disk, stack)
        behind = min((snapshots.get(name, 0) for name in recorders(stack)), default=0)
        log = Log.open(disk, segment_bytes=segment_bytes, scan_from=behind + 1)
        for damage in log.recovery.damage:
            last = max(damage.first, behind + 1) if damage.last is None else damage.last
            clear = damage.first > 0 and damage.last is not None
            # Other damage is harmless: no record is lost, a snapshot covers it, or the stack heals.
            if last >= damage.first and last > behind and not (stack.heals and clear):
                raise Corrupt(damage.file, damage.offset, damage.first, last, damage.fact)
        newest = max(snapshots.values(), default=0)
        if newest > log.last:
            raise WrongFormat(
                f"log files are missing: a snapshot covers record {newest}, but the log ends at "
                f"record {log.last}",
                "restore the missing files, or use an empty directory",
            )
        restore_records(log, stack, snapshots, behind)
        journal = cls(disk, log, stack, snapshots)
        stack.restored(log.last, journal.read)
        return journal

    @property
    def synced(self) -> int:
        """Return the number of the last record on disk."""
        return self.log.synced

    @property
    def pending_bytes(self) -> int:
        return self.log.pending_bytes

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the records and snapshots that are not yet part of a flush."""
        waiting = self.log.pending_bytes
        if self._taken:
            waiting += sum(len(chunk) for saved in self._taken for chunk in saved.chunks)
        return waiting

    @property
    def waiting(self) -> bool:
        """Return whether any records or snapshots are not yet part of a flush."""
        return bool(self.log.pending_bytes or self._taken)

    def take(self, effect: Append | Snapshot | Trim) -> None:
        """Add an effect from the stack to the next flush."""
        if isinstance(effect, Append):
            here = self.log.append(self._encode(effect.record))
            assert here == effect.number, f"the log gave record {effect.number} the number {here}"
        elif isinstance(effect, Snapshot):
            state = effect.state
            chunks = in_chunks(self._encode_state, state)
            self._taken.append(Saved(self._owner[type(state)], effect.number, chunks))
        else:
            protocol = effect.protocol
            self._trims[protocol] = max(self._trims[protocol], effect.number)
            self._trimmed = True

    def read(self, number: int) -> Value:
        """Read, check and decode a written record, and return it."""
        return readable(self._decode, self.log.read(number), f"record {number}")

    def begin(self) -> Flush:
        taken, self._taken = self._taken, []
        return Flush(self._disk, self.log.write(), taken)

    def finish(self, flush: Flush) -> None:
        """Complete a flush in the owner's thread, after `flush.run` has returned."""
        if flush.unsynced is not None:
            self.log.synced_to(flush.unsynced)
        for saved in flush.saved:
            self._snapshots[saved.protocol] = saved.number
        if flush.saved or self._trimmed:
            self._trimmed = False
            self.log.truncate(self._needed())

    def _needed(self) -> int:
        """Return the first record number that a protocol needs, now or after a restart."""
        return min(
            (
                min(trimmed, self._snapshots.get(protocol, 0) + 1)
                for protocol, trimmed in self._trims.items()
            ),
            default=0,
        )

    def mark(self) -> None:
        """Write a marker stating that all records are synced. Call this when the node is idle."""
        if not self.waiting and self.log.mark():
            self.sync()

    def sync(self) -> None:
        flush = self.begin()
        flush.run()
        self.finish(flush)

    def close(self) -> None:
        self.sync()
        self.log.close()

    def abandon(self) -> None:
        """Close the files without writing, as in a crash."""
        self.log.abandon()


def in_chunks(encode: Callable[[Value], bytes], state: Value) -> list[bytes]:
    """Encode a state as a list of chunks. The chunks of a large state are not copied."""
    if not isinstance(state, Chunked):
        return [encode(state)]
    return [encode(msgspec.structs.replace(state, chunks=())), *state.chunks]


def owners(stack: Stack, role: str) -> list[tuple[type[Value], int]]:
    return list(stack.wiring.owners(role).items())


def kinds(stack: Stack, role: str) -> tuple[type[Value], ...]:
    return tuple(stack.wiring.owners(role))


def recorders(stack: Stack) -> list[str]:
    """Return the names of the protocols that append records."""
    return [protocol.name for protocol in stack.protocols if protocol.Record is not None]


def restore_snapshots(disk: Disk, stack: Stack) -> dict[str, int]:
    """Restore each protocol's newest snapshot; return the record number of each snapshot."""
    decode = Codec(kinds(stack, "State")).decode
    numbers: dict[str, int] = {}
    for protocol in stack.protocols:
        if protocol.State is None:
            continue
        found = snapshot.load(disk, name=protocol.name)
        if found is not None:
            number, chunks = found
            state = readable(decode, next(chunks), f"snapshot {protocol.name} at {number}")
            if isinstance(state, Chunked):
                state = msgspec.structs.replace(state, chunks=tuple(chunks))
            stack.restore(number, state)
            numbers[protocol.name] = number
    return numbers


def restore_records(log: Log, stack: Stack, snapshots: dict[str, int], behind: int) -> None:
    decode = Codec(kinds(stack, "Record")).decode
    covered = {
        kind: snapshots.get(stack.protocols[layer].name, 0)
        for kind, layer in owners(stack, "Record")
    }
    start = max(behind + 1, log.first)
    while start <= log.last:
        try:
            for number, encoded in log.scan(start):
                record = readable(decode, encoded, f"record {number}")
                if number > covered[type(record)]:
                    stack.restore(number, record)
            return
        except Corrupt as damage:
            if not stack.heals:
                raise
            stack.damaged(max(damage.first, start), damage.last)
            start = damage.last + 1


def readable(decode: Callable[[bytes], Value], encoded: bytes, what: str) -> Value:
    try:
        return decode(encoded)
    except Malformed as error:
        raise WrongFormat(
            f"{what}: the checksum is valid but the record format is unknown ({error.message})",
            "use the version of oncecast that wrote the record, or start in an empty directory",
        ) from error
