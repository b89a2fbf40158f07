"""docs/machine.md lists all commands, results, refusals and limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from oncecast.broker.moves import AnyCommand
from oncecast.wire.errors import REFUSALS
from oncecast.wire.limits import LIMITS
from oncecast.wire.results import Done

PAGE = (Path(__file__).parents[2] / "docs" / "machine.md").read_text()


def signature(kind: type[msgspec.Struct]) -> str:
    return f"{kind.__name__}({', '.join(kind.__struct_fields__)})"


@pytest.mark.parametrize("kind", [*get_args(AnyCommand), *get_args(Done)])
def test_page_lists_each_command_and_result_with_its_fields(kind: type[msgspec.Struct]) -> None:
    assert f"`{signature(kind)}`" in PAGE


def test_page_lists_exactly_the_existing_error_codes() -> None:
    """SVC-7"""
    table = PAGE.partition("## Commands")[2].partition("`start` is")[0]
    rows = [line.rsplit("|", 2)[1] for line in table.splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}
    assert named == {kind.error.code for kind in REFUSALS}


def test_page_lists_exactly_the_existing_limits_with_their_defaults() -> None:
    """SVC-7"""
    table = PAGE.partition("## Limits")[2]
    named = {
        (name, int(value)) for name, value in re.findall(r"^\| `(\w+)` \| (\d+) ", table, re.M)
    }
    assert named == {(name, getattr(LIMITS, name)) for name in LIMITS.__struct_fields__}
