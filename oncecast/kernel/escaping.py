"""Escape control characters that a terminal might act on, and characters that hide text."""

from __future__ import annotations


def escaped(text: str, keep: str = "") -> str:
    """Return the text with every unprintable character escaped, except the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
