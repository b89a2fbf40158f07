"""Run the curl commands in docs/http.md in order, and compare their output (WEB-1)."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.live.test_serve import PATIENCE
from tests.live.web_process import placed
from tools.check_docs import ROOT, blocks

PAGE = ROOT / "docs" / "http.md"
ADDRESS = "127.0.0.1:8400"


def commands() -> list[tuple[str, str]]:
    """Return each curl command on the page with the output that follows it."""
    found: list[tuple[str, str]] = []
    for block in blocks(PAGE.read_text()):
        if block.language == "console":
            for each in block.text.split("$ ")[1:]:
                command, _, output = each.partition("\n")
                if command.startswith("curl "):
                    found.append((command, output.strip()))
    return found


@pytest.mark.long
def test_curl_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    """WEB-1"""
    assert len(commands()) > 8
    with placed(tmp_path / "data") as place:
        for command, output in commands():
            words = shlex.split(command.replace(ADDRESS, place.address))
            done = subprocess.run(
                [words[0], "--silent", *words[1:]],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            pattern = ".*".join(map(re.escape, output.split("...")))
            assert re.fullmatch(pattern, done.stdout.strip(), re.DOTALL), (command, done.stdout)
