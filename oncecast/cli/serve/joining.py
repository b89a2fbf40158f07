"""Decide whether a joining node becomes a replica of a group or a process of a ring.

A new node asks the peers in `join`. A peer answers only if it accepts the new node, so a node
without the cluster secret keeps waiting. After a restart, the data directory decides.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from oncecast.client.options import ClientOptions
from oncecast.client.running import Running
from oncecast.errors import BadSetting, NotConnected, OncecastError, Refused, TlsUnusable
from oncecast.network.incidents import line
from oncecast.node.config import Settings, addresses
from oncecast.node.derived import check_exposure, secret_of, tls_of
from oncecast.node.directory import MEMBERS, RING

logger = logging.getLogger("oncecast.node")
network = logging.getLogger("oncecast.network")

ANSWER = 3.0  # seconds to wait for an answer from a peer
PAUSE = 0.2  # seconds between rounds of questions


async def is_of_ring(settings: Settings) -> bool:
    """Return whether this node is a process of a ring. Wait until a peer answers."""
    data = Path(settings.data)
    others = [each for each in addresses(settings.join) if each not in own(settings)]
    if (data / RING).exists():
        return True
    if (data / MEMBERS).exists() or not others:
        return settings.own_group
    check_exposure(settings)  # fail before waiting for a peer
    peer, ring = await ask(settings, others)
    if settings.own_group and not ring:
        raise BadSetting(
            f"own_group: {peer} is a replica of a group, not a process of a ring; "
            "omit own_group to join its group"
        )
    return ring


def own(settings: Settings) -> tuple[str, str]:
    return settings.listen, settings.advertise


async def ask(settings: Settings, others: list[str]) -> tuple[str, bool]:
    """Return the first peer that answers, and whether it is a process of a ring."""
    network.addFilter(matters)
    try:
        return await first_answer(settings, others)
    finally:
        network.removeFilter(matters)


def matters(record: logging.LogRecord) -> bool:
    """Return whether to log a network event. `tell` logs once why a peer is unreachable."""
    return record.levelno > logging.INFO


async def first_answer(settings: Settings, others: list[str]) -> tuple[str, bool]:
    logged: dict[str, str] = {}
    while True:
        for each in others:
            try:
                return each, await is_process(settings, each)
            except (TlsUnusable, BadSetting):
                raise
            except OncecastError as error:
                if logged.get(each) != str(error):  # log each reason once
                    logged[each] = str(error)
                    tell(each, error)
        await asyncio.sleep(PAUSE)


def tell(peer: str, error: OncecastError) -> None:
    """Log why the node is waiting.

    Log a refusal as a warning, because an operator must act on it.
    """
    why, level = str(error), logging.INFO
    if isinstance(error, Refused) or (isinstance(error, NotConnected) and error.refused):
        reason = why.removeprefix(f"cannot connect to {peer}: ")
        why, level = f"{peer} refused this node: {reason}", logging.WARNING
    logger.log(level, line("waits", {"for": peer, "why": why}))


async def is_process(settings: Settings, address: str) -> bool:
    options = ClientOptions(
        address=address,
        timeout=ANSWER,
        connect_timeout=ANSWER,
        tls=tls_of(settings),
        secret=secret_of(settings.cluster_secret_file),
        cluster=settings.cluster,
        node=settings.advertise or settings.listen,
    )
    async with Running(options) as client:
        return bool((await client.cluster.ring()).processes)
