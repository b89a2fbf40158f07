"""`oncecast lock run`: run a command while this process holds a lock."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_option, add_timeout, called, complain, seconds
from oncecast.cli.coordination.membership import add_joining, joined, run_member
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.coordination.handles import Lock

GRACE = 1.0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lock = commands.add_parser("lock", help="run a command under a lock", description=__doc__)
    verbs = lock.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = verbs.add_parser(
        "run",
        help="run a command while this process holds a lock",
        description="Run a command while this process holds a lock.",
    )
    run.add_argument("name", metavar="NAME", type=called, help="lock name")
    add_command(run)
    add_joining(run)
    about = "how long the lock remains held if this process crashes"
    add_option(run, "--lease", "SECONDS", about, 10.0, lease)
    add_timeout(run, float("inf"), "how long to wait for the lock")
    run.set_defaults(run=lambda arguments: run_member(arguments, run_locked))


def lease(word: str) -> float:
    value = seconds(word)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a valid lease; use a positive, finite number of seconds"
        )
    return value


def add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="CMD", nargs="+", help="command to run, preceded by --")
    about = "time between SIGTERM and SIGKILL when stopping CMD"
    add_option(parser, "--grace", "SECONDS", about, GRACE, seconds)


async def run_locked(arguments: argparse.Namespace) -> int:
    import asyncio

    patience = None if arguments.timeout == float("inf") else arguments.timeout
    async with joined(arguments, lease=arguments.lease, grace=arguments.grace) as node:
        lock = node.lock(arguments.name)
        try:
            token = await asyncio.wait_for(lock.acquire(), patience)
        except TimeoutError:
            return complain(
                f"lock {arguments.name!r} was not free within {patience:g} s; raise --timeout",
                ExitStatus.EMPTY,
            )
        try:
            return await run_while_held(arguments, lock, token)
        finally:
            if lock.held:
                await lock.release()


async def run_while_held(arguments: argparse.Namespace, lock: Lock, token: int) -> int:
    from oncecast.cli.coordination.child import CannotRun, run_until

    command, variables = (
        arguments.command,
        {"ONCECAST_LOCK": lock.name, "ONCECAST_TOKEN": str(token)},
    )
    try:
        status = await run_until(lapse(lock), command, arguments.grace, **variables)
    except CannotRun as error:
        return complain(error, error.status)
    if status is None:
        return complain(
            f"lock {lock.name!r} was lost because its lease expired, and {command[0]} was stopped; "
            "check for unfinished work, then run the command again"
        )
    return status


async def lapse(lock: Lock) -> None:
    async for token in lock.watch():
        if not token:
            return
