"""Add the compiled files of build/fast to a wheel, if ONCECAST_COMPILED is set to 1.

`make wheels` sets it for one of its two wheels. That wheel fits only the platform and Python
version that built it, and its name says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COPY = "build/fast"


class CompiledFiles(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("ONCECAST_COMPILED") == "1":
            copy = Path(self.root) / COPY
            files = sorted((copy / "oncecast").rglob("*.so"))
            assert files, f"{copy} has no compiled file; run `make wheels`"
            build_data["force_include"] = {str(each): str(each.relative_to(copy)) for each in files}
            build_data["pure_python"], build_data["infer_tag"] = False, True
