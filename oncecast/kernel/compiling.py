"""Markers for the optional compiled build, and a check for whether it is in use.

`make fast` compiles the modules that tools/compiled_modules.toml lists.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader, PathFinder
from typing import TYPE_CHECKING

from oncecast import kernel

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return a decorator that does nothing. The compiler reads its arguments."""
        return lambda kind: kind


def build() -> str:
    """Return "compiled" if Python loads the compiled modules, and "pure Python" otherwise."""
    spec = PathFinder.find_spec("stack", kernel.__path__)
    loader = None if spec is None else spec.loader
    return "compiled" if isinstance(loader, ExtensionFileLoader) else "pure Python"
