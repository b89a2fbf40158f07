"""docs/network.md matches the code."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import fields

from oncecast.network import framing
from oncecast.network.incidents import LINES_AT_ONCE
from oncecast.network.options import KiB, MiB, Options

PAGE = (Path(__file__).parent.parent.parent / "docs" / "network.md").read_text()
UNITS = {"KiB": KiB, "MiB": MiB}


def documented_options() -> dict[str, str]:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    return dict(rows)


def test_every_option_is_documented_with_its_default() -> None:
    for field in fields(Options):
        cell = documented_options()[field.name].strip("`")
        number, _, unit = cell.partition(" ")
        if isinstance(field.default, str):
            assert cell == field.default
        else:
            assert float(number) * UNITS.get(unit, 1) == field.default, field.name


def test_network_page_documents_exactly_the_existing_options() -> None:
    assert set(documented_options()) == {field.name for field in fields(Options)}


def test_network_page_documents_the_wire_format() -> None:
    assert framing.MAGIC.hex(" ") in PAGE
    assert f"wire format, now {framing.FORMAT}" in PAGE
    for name in ("GREETING", "MESSAGE", "PING", "PONG", "BYE"):
        assert f"| {getattr(framing, name)} | {name} |" in PAGE
    assert f"may send {framing.HELLO_BYTES_MAX // KiB} KiB" in PAGE
    assert f"a burst of at most {LINES_AT_ONCE} events" in PAGE
