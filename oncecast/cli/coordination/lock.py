"""`oncecast lock run`: a command that runs while this process holds a lock."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import called, complain, seconds
from oncecast.cli.coordination.membership import add_joining, add_patience, joined, run_member
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.coordination.handles import Lock

GRACE = 1.0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lock = commands.add_parser("lock", help="hold a lock", description=__doc__)
    verbs = lock.add_subparsers(metavar="VERB", required=True)
    run = verbs.add_parser(
        "run",
        help="run a command while holding it",
        description="Run a command while this process holds a lock.",
    )
    run.add_argument("name", metavar="NAME", type=called)
    add_command(run)
    add_joining(run)
    run.add_argument(
        "--lease",
        metavar="S",
        type=lease,
        default=10.0,
        help="seconds that the lock stays with this process if it crashes (%(default)g)",
    )
    add_patience(run, float("inf"), "seconds to wait for the lock")
    run.set_defaults(run=lambda arguments: run_member(arguments, run_locked))


def lease(word: str) -> float:
    value = seconds(word)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{word}: no lease; give a time above 0, and an end")
    return value


def add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="CMD", nargs="+", help="after --, with its arguments")
    parser.add_argument(
        "--grace",
        metavar="S",
        type=seconds,
        default=GRACE,
        help="seconds between SIGTERM and SIGKILL, if CMD has to end (%(default)g)",
    )


async def run_locked(arguments: argparse.Namespace) -> int:
    import asyncio

    patience = None if arguments.timeout == float("inf") else arguments.timeout
    async with joined(arguments, lease=arguments.lease, grace=arguments.grace) as node:
        lock = node.lock(arguments.name)
        try:
            token = await asyncio.wait_for(lock.acquire(), patience)
        except TimeoutError:
            return complain(
                f"lock {arguments.name!r} was not free in {patience:g} s; --timeout S waits longer",
                ExitStatus.EMPTY,
            )
        try:
            return await run_while_held(arguments, lock, token)
        finally:
            if lock.held:
                await lock.release()


async def run_while_held(arguments: argparse.Namespace, lock: Lock, token: int) -> int:
    from oncecast.cli.coordination.child import CannotRun, run_until

    command, told = arguments.command, {"ONCECAST_LOCK": lock.name, "ONCECAST_TOKEN": str(token)}
    try:
        status = await run_until(lapse(lock), command, arguments.grace, **told)
    except CannotRun as error:
        return complain(error, error.status)
    if status is None:
        return complain(
            f"lock {lock.name!r} is held no longer, its lease ran out: {command[0]} was ended; "
            "look what is half done, and run it anew"
        )
    return status


async def lapse(lock: Lock) -> None:
    async for token in lock.watch():
        if not token:
            return
