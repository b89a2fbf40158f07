"""Print text from other users and nodes without letting a terminal execute escape sequences.

Names, payloads and error messages come from the network. Escape sequences in them could change a
terminal's title, clipboard or earlier output, so they are escaped on a terminal. Output to a file
or pipe is unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    import argparse

LAYOUT = "\n\t"  # harmless in a payload


def on_terminal(text: str, out: TextIO | None = None, keep: str = "\n") -> str:
    """Return the text, escaped if `out` (default: standard output) is a terminal."""
    return escaped(text, keep) if (out or sys.stdout).isatty() else text


def as_json(fields: Any) -> str:
    """Return one line of JSON. Also escape control characters that JSON leaves as they are."""
    import msgspec

    text = msgspec.json.encode(fields).decode()
    if text.isprintable():
        return text
    import json

    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def add_raw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--raw",
        action="store_true",
        help="print payloads unchanged, including control characters on a terminal",
    )


def print_values(values: Iterable[bytes], *, raw: bool = False) -> None:
    """Print payloads, one per line. On a terminal, escape control characters unless `raw`."""
    sys.stdout.flush()  # earlier output goes first
    out = sys.stdout.buffer
    if raw or not sys.stdout.isatty():
        out.write(b"".join(value + b"\n" for value in values))
    else:
        for value in values:
            text = escaped(value.decode(errors="backslashreplace"), LAYOUT)
            out.write(text.encode(sys.stdout.encoding, "backslashreplace") + b"\n")
    out.flush()
