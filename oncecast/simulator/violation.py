"""The exception of a checker."""

from __future__ import annotations


class Violation(AssertionError):
    """A guarantee was broken. `evidence` has a checker's findings, for tools that draw them."""

    evidence: object = None
