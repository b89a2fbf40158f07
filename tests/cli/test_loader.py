"""The automated client takes no more memory than its work needs."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec

from oncecast.cli.load.loader import UNDER_WAY_BYTES, Load
from oncecast.cli.main import build_parser
from oncecast.cli.progress import Progress
from oncecast.client.client import Client
from oncecast.client.parcel import Receipt


class Node:
    """Stores nothing, and remembers how much was under way to it."""

    name = "p"

    def __init__(self) -> None:
        self.under_way = self.most = 0

    async def put(self, topic: str, value: bytes, **options: Any) -> Receipt:
        self.under_way += len(value)
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= len(value)
        return Receipt(0, kept=True)


def test_load_of_large_messages_has_few_under_way_and_keeps_none() -> None:
    """CLI-2"""
    words = f"load --publishes 5 --producers 1 --size {UNDER_WAY_BYTES // 2}"
    load, node = Load(build_parser().parse_args(words.split()), None), Node()
    load.began, load.progress = time.monotonic(), Progress("load", 5)
    asyncio.run(load._produce(cast(Client, node), load.plans[0]))
    assert node.most == UNDER_WAY_BYTES
    assert len(load.put_times) == len(load.put_at) == 5
    assert len(msgspec.json.encode(list(load.put_at))) < 1000
