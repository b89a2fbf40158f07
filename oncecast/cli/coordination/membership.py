"""Join a group for the coordination commands, and explain why a peer is unreachable."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import add_flag, report_error

if TYPE_CHECKING:
    from oncecast.coordination import Node

    Work = Callable[[argparse.Namespace], Awaitable[int]]

KEEPER = "127.0.0.1:7500"
ANYWHERE = "127.0.0.1:0"
JOIN_WITHIN = 5.0  # seconds; enough for keepers that have just been started
# A new member has a view of the group within two heartbeats.
HEARTBEAT, SUSPECT_AFTER = 0.2, 2.0

OTHER_CLUSTER, OTHER_PEERS = (
    "belongs to cluster 'coordination-",
    "it was started with different --peers",
)
NO_KEEPER = "start keepers with `oncecast keep`, or set --peers or ONCECAST_PEERS"


def add_joining(parser: argparse.ArgumentParser, listen: str = ANYWHERE) -> None:
    parser.add_argument(
        "--peers",
        metavar="HOST:PORT,...",
        help="peer addresses; use the same list in all processes "
        f"(default: ONCECAST_PEERS, or {KEEPER})",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address at which other processes reach this process "
        f"(default: ONCECAST_LISTEN, or {listen})",
    )
    add_flag(parser, "--insecure", "allow a --listen address that other machines can reach")
    parser.add_argument(
        "--cluster-secret-file",
        metavar="FILE",
        help="file with the shared cluster secret (mode 0600); "
        "required if the processes run on several machines "
        "(default: ONCECAST_CLUSTER_SECRET_FILE, or none)",
    )
    parser.set_defaults(anywhere=listen)


def addresses(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the address to listen on and the peers.

    Raise BadAddress if an address is invalid or if peers could not reach this process.
    """
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
                "set --listen to an address that other machines can reach",
            )
    return listen, found


def join_at(arguments: argparse.Namespace, listen: str, **options: Any) -> Node:
    """Return a node at this address with these `join` options and a fast heartbeat."""
    from oncecast.coordination import join

    options |= {"heartbeat": HEARTBEAT, "suspect_after": SUSPECT_AFTER}
    secret = arguments.cluster_secret_file or os.environ.get("ONCECAST_CLUSTER_SECRET_FILE", "")
    return join(listen, insecure=arguments.insecure, cluster_secret_file=secret, **options)


@asynccontextmanager
async def joined(
    arguments: argparse.Namespace, *, lease: float = 10.0, grace: float = 0.0
) -> AsyncIterator[Node]:
    """Join the keepers' group and wait for a majority of them.

    Raise NoQuorum if too few keepers are reachable.
    """
    import asyncio

    from oncecast.errors import NoQuorum

    listen, peers = addresses(arguments)
    with troubles() as reasons:
        async with join_at(arguments, listen, peers=peers, lease=lease, grace=grace) as node:
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
    # The cluster name is a hash of the acceptors given with --peers.
    why = {
        each: OTHER_PEERS if OTHER_CLUSTER in reason else reason for each, reason in reasons.items()
    }
    missing = ", ".join(f"{each} ({why.get(each, 'silent')})" for each in gone)
    return f"only {len(there)} of {len(node.acceptors)} keepers are reachable; missing: {missing}"


class troubles(logging.Handler):  # noqa: N801  # used as a verb: `with troubles() as reasons`
    """Collect, from the network log, why each peer cannot be reached."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.reasons: dict[str, str] = {}

    def __enter__(self) -> dict[str, str]:
        logger = self.logger = logging.getLogger("oncecast.network")
        self.before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # the error message includes the reasons
        return self.reasons

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
        self.logger.level, self.logger.propagate = self.before

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record.msg, "facts", {})
        if "peer" in facts and "reason" in facts:
            self.reasons[str(facts["peer"])] = str(facts["reason"])


def run_member(arguments: argparse.Namespace, work: Work, ended: int | None = None) -> int:
    """Run `work` and return its exit status. Print errors on one line.

    If `ended` is set, it is the exit status after SIGTERM or SIGINT.
    """
    from oncecast.cli.signals import ended_by_signals
    from oncecast.errors import OncecastError
    from oncecast.network.network import run

    try:
        return run(ended_by_signals(work(arguments), ended))
    except OncecastError as error:
        return report_error(error)
