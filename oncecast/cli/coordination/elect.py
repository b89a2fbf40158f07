"""`oncecast elect`: a command that runs where the leader of a group is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import called, complain, positive
from oncecast.cli.coordination.lock import add_command
from oncecast.cli.coordination.membership import (
    HEARTBEAT,
    SUSPECT_AFTER,
    add_joining,
    add_patience,
    places,
    run_member,
)

if TYPE_CHECKING:
    from oncecast.coordination import Node

NO_MEMBERS = "start the others with the same --peers, or lead among fewer with --members"


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    elect = commands.add_parser(
        "elect",
        help="run a command where the leader is",
        description="Run a command while this process is the leader of those that elect NAME.",
    )
    elect.add_argument("name", metavar="NAME", type=called)
    add_command(elect)
    add_joining(elect)
    elect.add_argument(
        "--members",
        metavar="N",
        type=positive,
        default=1,
        help="that must be there before anybody leads (%(default)s)",
    )
    add_patience(elect, 30.0, "seconds to wait for them")
    elect.set_defaults(run=lambda arguments: run_member(arguments, run))


async def run(arguments: argparse.Namespace) -> int:
    from oncecast.coordination import NotReached, join
    from oncecast.errors import NoQuorum

    listen, peers = places(arguments)
    async with join(
        listen,
        peers=peers,
        group=f"elect/{arguments.name}",
        heartbeat=HEARTBEAT,
        suspect_after=SUSPECT_AFTER,
        insecure=arguments.insecure,
    ) as node:
        try:
            await node.group.wait_for_view_size(arguments.members, arguments.timeout)
        except NotReached as error:
            raise NoQuorum(error.message, NO_MEMBERS) from None
        await hear_of_all(node)
        return await lead(arguments, node)


async def hear_of_all(node: Node) -> None:
    """Whoever has just come leads itself, until it hears of a lower one."""
    import asyncio

    try:
        async with asyncio.timeout(SUSPECT_AFTER):
            async for view in node.group.watch():
                if all(each in view for each in node.acceptors):
                    return
    except TimeoutError:
        return


async def lead(arguments: argparse.Namespace, node: Node) -> int:
    """Each time that this process leads, until the command ends by itself."""
    from oncecast.cli.coordination.child import CannotRun, run_until

    command, told = arguments.command, {"ONCECAST_ELECTION": arguments.name}
    if node.election.leader != node.me:
        complain(f"{node.election.leader or 'nobody'} leads {arguments.name!r}; waiting")
    while True:
        await node.election.wait_until_leading()
        try:
            status = await run_until(deposition(node), command, arguments.grace, **told)
        except CannotRun as error:
            return complain(error, error.status)
        if status is not None:
            return status
        complain(
            f"{node.election.leader or 'nobody'} leads {arguments.name!r} now: "
            f"{command[0]} was ended"
        )


async def deposition(node: Node) -> None:
    async for leader in node.election.watch():
        if leader != node.me:
            return
