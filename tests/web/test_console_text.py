"""Check the texts and files of the console without a browser."""

from __future__ import annotations

import re

from oncecast.web.files import FOLDER, KINDS
from tools.check_prose import RULES


def texts(source: str) -> list[str]:
    """Return the comments and strings of a module."""
    found = re.findall(r"(?m://[^\n]*)|/\*(?s:.*?)\*/|`[^`]*`|\"(?:[^\"\\\n]|\\.)*\"", source)
    return [each.strip('/*`" \n') for each in found]


def test_texts_follow_the_writing_rules() -> None:
    """WEB-2"""
    found = [
        f"{file.name}: {text}"
        for file in sorted(FOLDER.rglob("*.js"))
        for text in texts(file.read_text())
        for rule in RULES
        if rule.pattern.search(text)
    ]
    assert found == []


def test_files_load_nothing_from_elsewhere() -> None:
    """WEB-2: no other hosts, no inline scripts or styles, and nothing parsed as HTML."""
    forbidden = re.compile(
        r"https?://(?!www\.w3\.org/)|innerHTML|outerHTML|insertAdjacentHTML|document\.write"
        r"|\beval\(|new Function|<script>|<style|\sstyle=|\son[a-z]+="
    )
    for file in sorted(FOLDER.rglob("*")):
        if file.is_file():
            assert file.suffix in KINDS, file
            assert forbidden.findall(file.read_text()) == [], file
