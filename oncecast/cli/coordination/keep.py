"""`oncecast keep`: run a keeper, which stores locks and queues."""

from __future__ import annotations

import argparse

from oncecast.cli.connecting import add_option, complain
from oncecast.cli.coordination.membership import (
    KEEPER,
    add_joining,
    addresses,
    join_at,
    run_member,
)
from oncecast.errors import ExitStatus

DATA = "oncecast-keep"


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keep = commands.add_parser(
        "keep", help="run a keeper, which stores locks and queues", description=__doc__
    )
    add_joining(keep, KEEPER)
    add_option(keep, "--data", "DIR", "directory for the keeper's state", DATA)
    keep.set_defaults(run=lambda arguments: run_member(arguments, run, ExitStatus.OK))


async def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from oncecast.network.addresses import split_process

    listen, peers = addresses(arguments)
    if not split_process(listen)[1]:
        return complain(
            f"{listen}: a keeper needs a fixed port; add one to --listen", ExitStatus.USAGE
        )
    if not arguments.peers and listen != KEEPER and peers == [KEEPER]:
        peers = []  # a single keeper at another address
    async with join_at(arguments, listen, peers=peers, directory=arguments.data) as node:
        complain(f"keeper {node.me} is running (one of {len(node.acceptors)})")
        await node.unless_stopped(asyncio.Event().wait())
    return ExitStatus.OK
