"""What a node becomes that is told to join: what those are whom it joins.

A replica joins a group; a process joins a ring, with a group of its own. A node that has been one
of them stays that: its directory says so, and nobody is asked.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from oncecast.client.client import Client
from oncecast.errors import BadSetting, OncecastError, TlsUnusable
from oncecast.network.incidents import line
from oncecast.node.config import Settings, addresses
from oncecast.node.derived import check_exposure, tls_of
from oncecast.node.directory import MEMBERS, RING

logger = logging.getLogger("oncecast.node")
network = logging.getLogger("oncecast.network")

ANSWER = 3.0  # seconds that one of them has to say what it is
PAUSE = 0.2  # until they are asked again


async def is_of_ring(settings: Settings) -> bool:
    """Whether this node shall be a process of a ring; waits until somebody says what they are."""
    data = Path(settings.data)
    others = [each for each in addresses(settings.join) if each not in own(settings)]
    if (data / RING).exists():
        return True
    if (data / MEMBERS).exists() or not others:
        return settings.own_group
    check_exposure(settings)  # before it waits for anybody
    who, ring = await ask(settings, others)
    if settings.own_group and not ring:
        raise BadSetting(
            f"own_group: {who} is a replica of a group, and no process of a ring; "
            "leave own_group out to join its group"
        )
    return ring


def own(settings: Settings) -> tuple[str, str]:
    return settings.listen, settings.advertise


async def ask(settings: Settings, others: list[str]) -> tuple[str, bool]:
    """The first that answers, and whether it is a process of a ring."""
    network.addFilter(matters)
    try:
        return await first_answer(settings, others)
    finally:
        network.removeFilter(matters)


def matters(record: logging.LogRecord) -> bool:
    """Why somebody cannot be reached is told once; the network would say it with every try."""
    return record.levelno > logging.INFO


async def first_answer(settings: Settings, others: list[str]) -> tuple[str, bool]:
    told: dict[str, str] = {}
    while True:
        for each in others:
            try:
                return each, await is_process(settings, each)
            except TlsUnusable:
                raise
            except OncecastError as error:
                if told.get(each) != str(error):  # once is enough
                    told[each] = str(error)
                    logger.info(line("waits", {"for": each, "why": error}))
        await asyncio.sleep(PAUSE)


async def is_process(settings: Settings, address: str) -> bool:
    tls, cluster = tls_of(settings), settings.cluster
    async with Client(
        address, timeout=ANSWER, connect_timeout=ANSWER, tls=tls, cluster=cluster
    ) as client:
        return bool((await client.ring()).processes)
