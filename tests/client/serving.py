"""Run a node in this process, on a free port, for client tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from oncecast.node.config import Settings
from oncecast.node.server import Server

PATIENCE = 30.0


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, and fail if it hangs."""
    asyncio.run(asyncio.wait_for(work, PATIENCE))


@asynccontextmanager
async def serving(path: Path, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """Yield the address of a node."""
    async with Server(Settings(data=str(path / "node"), listen=listen)) as server:
        yield server.me
