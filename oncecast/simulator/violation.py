"""The exception of a checker."""

from __future__ import annotations


class Violation(AssertionError):
    """A guarantee was broken."""
