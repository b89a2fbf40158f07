"""The OpenAPI document describes every route, and schemathesis finds no difference (WEB-1)."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from pathlib import Path

import pytest

from oncecast.web import Limits, application
from oncecast.web.openapi import document
from oncecast.web.routes import BASE, OPERATIONS
from oncecast.web.server import Listener
from tests.client.serving import serving

CONFIGURATION = Path(__file__).parent / "schemathesis.toml"
QUICK = Limits(wait_seconds=0.05, tail_seconds=0.2)


def test_every_operation_is_described_once() -> None:
    """WEB-1"""
    paths = document(OPERATIONS, BASE)["paths"]
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert described == {(each.path, each.method) for each in OPERATIONS}
    assert len(described) == len(OPERATIONS)
    ids = [each["operationId"] for methods in paths.values() for each in methods.values()]
    assert len(set(ids)) == len(ids)


def test_every_name_in_a_path_is_a_parameter() -> None:
    """WEB-1"""
    for each in OPERATIONS:
        named = {one.name for one in each.parameters if one.where == "path"}
        assert set(re.findall(r"{(\w+)}", each.path)) == named, each.path


@pytest.mark.long
@pytest.mark.parametrize(
    ("examples", "phases"),
    [(1, "fuzzing"), pytest.param(40, "coverage,fuzzing", marks=pytest.mark.soak)],
)
def test_schemathesis_finds_no_difference(tmp_path: Path, examples: int, phases: str) -> None:
    """WEB-1: every answer has a documented status and form, whatever the request is."""

    async def work() -> tuple[int | None, str]:
        async with serving(tmp_path) as node:
            app = application(node, limits=QUICK)
            async with Listener(app, "127.0.0.1", 0) as listener:
                program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
                assert program is not None
                process = await asyncio.create_subprocess_exec(
                    program,
                    f"--config-file={CONFIGURATION}",
                    "run",
                    f"{listener.address}{BASE}/openapi.json",
                    f"--max-examples={examples}",
                    "--header=Oncecast-Request: 1",
                    f"--phases={phases}",
                    "--seed=1",
                    "--no-color",
                    cwd=tmp_path,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
                out, _ = await process.communicate()
                return process.returncode, out.decode()

    status, text = asyncio.run(asyncio.wait_for(work(), 60 + 20 * examples))
    assert status == 0, text[-8000:]
