"""`oncecast load` needs little memory."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec

from oncecast.cli.load.loader import IN_FLIGHT_BYTES, Load
from oncecast.cli.main import build_parser
from oncecast.cli.progress import Progress
from oncecast.client.client import Client
from oncecast.client.parcel import Receipt


class Node:
    """A client that stores nothing and counts the bytes in flight."""

    name = "p"

    def __init__(self) -> None:
        self.in_flight = self.most = 0

    async def put(self, topic: str, value: bytes, **options: Any) -> Receipt:
        self.in_flight += len(value)
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= len(value)
        return Receipt(0, kept=True)


def test_load_limits_bytes_in_flight_and_discards_values() -> None:
    """CLI-2"""
    words = f"load --publishes 5 --producers 1 --size {IN_FLIGHT_BYTES // 2}"
    load, node = Load(build_parser().parse_args(words.split()), None), Node()
    load.began, load.progress = time.monotonic(), Progress("load", 5)
    asyncio.run(load._produce(cast(Client, node), load.plans[0]))
    assert node.most == IN_FLIGHT_BYTES
    assert len(load.put_times) == len(load.put_at) == 5
    assert len(msgspec.json.encode(list(load.put_at))) < 1000
