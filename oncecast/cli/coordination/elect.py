"""`oncecast elect`: run a command on the leader of a group."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_option, add_timeout, called, complain, positive
from oncecast.cli.coordination.lock import add_command
from oncecast.cli.coordination.membership import (
    SUSPECT_AFTER,
    add_joining,
    addresses,
    join_at,
    run_member,
)

if TYPE_CHECKING:
    from oncecast.coordination import Node

NO_MEMBERS = "start more processes with the same --peers, or lower --members"


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    elect = commands.add_parser(
        "elect",
        help="run a command on the leader of a group",
        description="Run a command while this process leads the election NAME.",
    )
    elect.add_argument("name", metavar="NAME", type=called, help="election name")
    add_command(elect)
    add_joining(elect)
    add_option(
        elect, "--members", "N", "number of members to wait for before the election", 1, positive
    )
    add_timeout(elect, 30.0, "how long to wait for the members")
    elect.set_defaults(run=lambda arguments: run_member(arguments, run))


async def run(arguments: argparse.Namespace) -> int:
    from oncecast.errors import NoQuorum, NotReached

    listen, peers = addresses(arguments)
    group = f"elect/{arguments.name}"
    async with join_at(arguments, listen, peers=peers, group=group) as node:
        try:
            await node.group.wait_for_view_size(arguments.members, arguments.timeout)
        except NotReached as error:
            raise NoQuorum(error.message, NO_MEMBERS) from None
        await hear_of_all(node)
        return await lead(arguments, node)


async def hear_of_all(node: Node) -> None:
    """Wait for all peers to appear in the view, but not forever. A lone process elects itself."""
    import asyncio

    try:
        async with asyncio.timeout(SUSPECT_AFTER):
            async for view in node.group.watch():
                if all(each in view for each in node.acceptors):
                    return
    except TimeoutError:
        return


async def lead(arguments: argparse.Namespace, node: Node) -> int:
    """Run the command whenever this process leads. Return its status once it exits by itself."""
    from oncecast.cli.coordination.child import CannotRun, run_until

    command, variables = arguments.command, {"ONCECAST_ELECTION": arguments.name}
    if node.election.leader != node.me:
        complain(
            f"{node.election.leader or 'no process'} leads election {arguments.name!r}; waiting"
        )
    while True:
        await node.election.wait_until_leading()
        try:
            status = await run_until(deposition(node), command, arguments.grace, **variables)
        except CannotRun as error:
            return complain(error, error.status)
        if status is not None:
            return status
        complain(
            f"{node.election.leader or 'no process'} leads election {arguments.name!r} now; "
            f"{command[0]} was stopped"
        )


async def deposition(node: Node) -> None:
    async for leader in node.election.watch():
        if leader != node.me:
            return
