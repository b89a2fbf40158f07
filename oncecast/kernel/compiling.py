"""The optional compiled build: marks for its compiler, and a test whether it is running.

`make fast` compiles the hot modules with mypyc.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from os.path import dirname, exists, join
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that returns its class unchanged. Only the compiler reads it."""
        return lambda kind: kind


def build() -> str:
    """Return "compiled" if this Python loads the compiled modules, or "pure Python"."""
    stack = join(dirname(__file__), "stack")
    return "compiled" if any(exists(stack + each) for each in EXTENSION_SUFFIXES) else "pure Python"
