"""What the commands of the toolkit share: how they join a group, and what keeps them from it."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from oncecast.cli.connecting import seconds, told

if TYPE_CHECKING:
    from oncecast.coordination import Node

    Work = Callable[[argparse.Namespace], Awaitable[int]]

KEEPER = "127.0.0.1:7500"
ANYWHERE = "127.0.0.1:0"
JOIN_WITHIN = 5.0  # seconds; keepers that were started a moment ago are waited for
# A command that has just joined hears within two heartbeats what there is.
HEARTBEAT, SUSPECT_AFTER = 0.2, 2.0

NO_KEEPER = "start them with `oncecast keep`, or name others with --peers or ONCECAST_PEERS"


def add_joining(parser: argparse.ArgumentParser, listen: str = ANYWHERE) -> None:
    parser.add_argument(
        "--peers",
        metavar="HOST:PORT,...",
        help=f"the same list for all, with commas (ONCECAST_PEERS, or {KEEPER})",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"where others reach this process (ONCECAST_LISTEN, or {listen})",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow an address that other machines can reach"
    )
    parser.set_defaults(anywhere=listen)


def add_patience(parser: argparse.ArgumentParser, default: float, about: str) -> None:
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=default, help=f"{about} (%(default)g)"
    )


def places(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Where to listen, and the peers. Raises BadAddress."""
    from oncecast.errors import BadAddress
    from oncecast.network.addresses import is_loopback, split_process

    listen = arguments.listen or os.environ.get("ONCECAST_LISTEN") or arguments.anywhere
    peers = arguments.peers or os.environ.get("ONCECAST_PEERS") or KEEPER
    found = [each.strip() for each in peers.split(",") if each.strip()]
    near = is_loopback(split_process(listen)[0])
    for peer in found:
        if near and not is_loopback(split_process(peer)[0]):
            raise BadAddress(
                f"{peer} cannot reach {listen}",
                "set --listen to an address of this machine that other machines can reach",
            )
    return listen, found


@asynccontextmanager
async def joined(
    arguments: argparse.Namespace, *, lease: float = 10.0, grace: float = 0.0
) -> AsyncIterator[Node]:
    """A member of the group that a majority of keepers is in. Raises NoQuorum."""
    import asyncio

    from oncecast.coordination import join
    from oncecast.errors import NoQuorum

    listen, peers = places(arguments)
    with troubles() as reasons:
        async with join(
            listen,
            peers=peers,
            heartbeat=HEARTBEAT,
            suspect_after=SUSPECT_AFTER,
            lease=lease,
            grace=grace,
            insecure=arguments.insecure,
        ) as node:
            try:
                async with asyncio.timeout(JOIN_WITHIN):
                    async for view in node.group.watch():
                        if 2 * sum(each in view for each in node.acceptors) > len(node.acceptors):
                            break
            except TimeoutError:
                raise NoQuorum(missed(node, reasons), NO_KEEPER) from None
            yield node


def missed(node: Node, reasons: dict[str, str]) -> str:
    there = [each for each in node.acceptors if each in node.group.view]
    gone = [each for each in node.acceptors if each not in there]
    told = ", ".join(f"{each} ({reasons.get(each, 'silent')})" for each in gone)
    return f"{len(there)} of {len(node.acceptors)} keepers are there, no majority; not: {told}"


class troubles(logging.Handler):  # noqa: N801  # used as a verb: `with troubles() as reasons`
    """Why each peer cannot be reached, as the network's log says."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.reasons: dict[str, str] = {}

    def __enter__(self) -> dict[str, str]:
        logger = self.logger = logging.getLogger("oncecast.network")
        self.before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # it is told once, if it matters in the end
        return self.reasons

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
        self.logger.level, self.logger.propagate = self.before

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record.msg, "facts", {})
        if "peer" in facts and "reason" in facts:
            self.reasons[str(facts["peer"])] = str(facts["reason"])


def run_member(arguments: argparse.Namespace, work: Work, ended: int | None = None) -> int:
    """Run `work`, and print an error in one line.

    `ended` is the status after SIGTERM or SIGINT, if not that of a shell.
    """
    from oncecast.cli.signals import ended_by_signals
    from oncecast.errors import OncecastError
    from oncecast.network.network import run

    try:
        return run(ended_by_signals(work(arguments), ended))
    except OncecastError as error:
        return told(error)
