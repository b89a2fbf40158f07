"""Escapes characters that a terminal could take as a command, or that hide text."""

from __future__ import annotations


def escaped(text: str, keep: str = "") -> str:
    """Return the text with every unprintable character, except those in `keep`, as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
