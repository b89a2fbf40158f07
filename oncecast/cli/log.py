"""`oncecast log verify DIR` and `oncecast log dump DIR`: check and print a node's log.

Both commands only read. They take no lock, so they can run while the node is writing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import complain, is_of_output
from oncecast.cli.output import as_json
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.storage.disk import Disk
    from oncecast.storage.examine import Findings

    Show = Callable[[argparse.Namespace, Findings], None]

_PREVIEW = 80
_RETRIES = 5


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    log = commands.add_parser("log", help="check and print a node's log", description=__doc__)
    verbs = log.add_subparsers(title="commands", metavar="COMMAND", required=True)

    verify = verbs.add_parser(
        "verify", help="verify all checksums; exit with status 1 if any is wrong"
    )
    verify.add_argument("--json", action="store_true", help="print the result as one JSON object")
    verify.set_defaults(run=partial(_examined, show=_verify))

    dump = verbs.add_parser("dump", help="print one line per record")
    dump.add_argument(
        "--from",
        metavar="N",
        dest="start",
        type=int,
        default=1,
        help="first record to print (default: 1)",
    )
    dump.add_argument(
        "--to",
        metavar="N",
        dest="stop",
        type=int,
        help="last record to print (default: the last one in the log)",
    )
    dump.add_argument("--json", action="store_true", help="print one JSON object per record")
    dump.set_defaults(run=partial(_examined, show=_dump))

    for verb in (verify, dump):
        verb.add_argument("directory", metavar="DIR", type=Path, help="data directory of a node")


def _examined(arguments: argparse.Namespace, show: Show) -> int:
    from oncecast.errors import Corrupt, StorageError
    from oncecast.storage.disk import OsDisk

    try:
        disk = OsDisk(arguments.directory, read_only=True)
        try:
            findings = _look(disk)
            if not findings.segments and not findings.blank:
                what = f"{arguments.directory}: no log found; use a node's data directory"
                return complain(what, ExitStatus.NOT_FOUND)
            show(arguments, findings)
        finally:
            disk.close()
    except Corrupt as corrupt:
        return complain(corrupt)
    except StorageError as error:
        return complain(error, ExitStatus.NOT_FOUND)
    except OSError as error:
        if is_of_output(error):
            raise
        return complain(f"{arguments.directory}: {error}; check the permissions")
    for damage in findings.damage:
        complain(f"damage: {damage}")
    return ExitStatus.FAILURE if findings.damage else ExitStatus.OK


def _look(disk: Disk) -> Findings:
    """Inspect the log. Report only damage that is found twice.

    A running node's log can look damaged for a moment, while the node is writing.
    """
    from oncecast.storage.examine import examine

    for _ in range(_RETRIES):
        try:
            findings = examine(disk)
            if findings.damage:
                before, findings = findings, examine(disk)
                findings.damage = [each for each in findings.damage if each in before.damage]
        except FileNotFoundError:
            continue
        return findings
    return examine(disk)


# verify


def _verify(arguments: argparse.Namespace, findings: Findings) -> None:
    report = _report(arguments.directory, findings)
    if arguments.json:
        print(as_json(report))
        return
    print(f"{'segment':<14}{'first':>12}{'last':>12}{'bytes':>14}{'allocated':>14}")
    for each in report["segments"]:
        print(
            f"{each['file']:<14}{each['first']:>12}{each['last']:>12}"
            f"{each['bytes']:>14}{each['allocated']:>14}"
        )
    print(f"\nrecords {report['first']} to {report['last']}, synced up to {report['synced']}")
    if findings.torn_bytes:
        print(
            f"{findings.torn_bytes} unsynced bytes at the end; the node drops them when it starts"
        )
    print(f"damaged in {len(findings.damage)} places" if findings.damage else "no damage")


def _report(directory: Path, findings: Findings) -> dict[str, Any]:
    ends = [each.first for each in findings.segments[1:]] + [findings.next]
    segments = [
        {
            "file": each.name,
            "first": each.first,
            "last": min(end, findings.next) - 1,
            "bytes": each.end,
            "allocated": each.allocated,
        }
        for each, end in zip(findings.segments, ends, strict=True)
    ]
    return {
        "directory": str(directory),
        "first": findings.first,
        "last": findings.next - 1,
        "synced": findings.proven,
        "torn_bytes": findings.torn_bytes,
        "segments": segments,
        "damage": findings.damage,
    }


# dump


def _dump(arguments: argparse.Namespace, findings: Findings) -> None:
    last = findings.next - 1 if arguments.stop is None else min(arguments.stop, findings.next - 1)
    for number, record in _records(findings, max(arguments.start, findings.first), last):
        print(_json(number, record) if arguments.json else _line(number, record))


def _records(findings: Findings, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Yield the intact records from `first` to `last`."""
    from oncecast.storage import store

    ends = [each.first for each in findings.segments[1:]] + [findings.next]
    for segment, end in zip(findings.segments, ends, strict=True):
        if end <= first or segment.first > last:
            continue
        for found in segment.walk():
            if (
                isinstance(found, store.Block)
                and found.kind == store.RECORDS
                and found.body is not None
            ):
                for number, record in enumerate(
                    store.unpack(found.body, found.records), found.first
                ):
                    if first <= number <= last:
                        yield number, record
        segment.close()


def _line(number: int, record: bytes) -> str:
    value = _decoded(record)
    preview = record.hex(" ", 4) if value is None else repr(value)
    if len(preview) > _PREVIEW:
        preview = preview[: _PREVIEW - 1] + "…"
    return f"{number:>10} {len(record):>9} B  {_crc(record)}  {preview}"


def _json(number: int, record: bytes) -> str:
    line = {"number": number, "bytes": len(record), "crc32c": _crc(record)}
    try:
        value = _decoded(record)
        if value is not None:
            return as_json({**line, "value": value})
    except TypeError:  # JSON does not allow keys of this type
        pass
    return as_json({**line, "hex": record.hex()})


def _decoded(record: bytes) -> Any:
    """Return the dict or list in a msgpack record, or None for other records.

    A scalar proves nothing, because any byte is a valid msgpack scalar.
    """
    import msgspec

    try:
        value = msgspec.msgpack.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
    return value if isinstance(value, dict | list) else None


def _crc(record: bytes) -> str:
    import google_crc32c

    return f"{google_crc32c.value(record):08x}"
