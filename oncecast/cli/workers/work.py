"""`oncecast work`: run a command for each message of a shared subscription."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    POSITIONS,
    add_connection,
    add_option,
    add_timeout,
    add_topic,
    client_of,
    complain,
    positive,
    report_error,
    seconds,
    start,
)
from oncecast.cli.workers.sharing import add_settings, add_shared_name, settings_of
from oncecast.errors import ExitStatus, OncecastError
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.jobs import Job, SharedSubscription

HERE = "{}"  # stands for the message's value in an argument
GRACE = 10.0
NOT_FOUND = 127  # as in a shell


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    work = commands.add_parser(
        "work", help="run a command for each message of a shared subscription", description=__doc__
    )
    add_topic(work)
    about = "command to run, preceded by --; {} in an argument stands for the message"
    work.add_argument("command", metavar="CMD", nargs="+", help=about)
    add_shared_name(work)
    add_option(
        work, "--concurrency", "N", "number of commands to run at the same time", 1, positive
    )
    about = "maximum messages to hold, including those in progress (default: twice the concurrency)"
    add_option(work, "--prefetch", "N", about, None, positive)
    add_option(work, "--start", None, f"where a new subscription starts: {POSITIONS}", "new", start)
    add_option(work, "--limit", "SECONDS", "how long each command may run", float("inf"), seconds)
    about = "time between SIGTERM and SIGKILL when stopping a command"
    add_option(work, "--grace", "SECONDS", about, GRACE, seconds)
    add_settings(work)
    add_connection(work)
    add_timeout(work)
    work.set_defaults(run=run_work)


def run_work(arguments: argparse.Namespace) -> int:
    import logging
    import shutil

    from oncecast.network.network import run

    logging.getLogger("oncecast").addHandler(logging.NullHandler())
    if shutil.which(arguments.command[0]) is None:
        what = f"{arguments.command[0]}: not found or not executable"
        return complain(f"{what}; put an executable command after --", NOT_FOUND)
    try:
        return run(working(arguments))
    except OncecastError as error:
        return report_error(error)


async def working(arguments: argparse.Namespace) -> int:
    """Work until a signal arrives. The first signal drains, and a second stops the commands."""
    from functools import partial

    from oncecast.client.worker import until_signal

    prefetch = arguments.prefetch or 2 * arguments.concurrency
    async with client_of(arguments) as client:
        jobs = await client.work(
            arguments.topic,
            arguments.subscription,
            prefetch=max(prefetch, arguments.concurrency),
            start=arguments.start,
            shared=settings_of(arguments),
        )
        work = jobs.run(partial(handle, arguments, jobs), concurrency=arguments.concurrency)
        if not await until_signal(jobs, work):
            return ExitStatus.INTERRUPTED
    return ExitStatus.OK


async def handle(arguments: argparse.Namespace, jobs: SharedSubscription, job: Job) -> None:
    """Run the command. Acknowledge the job if the exit status is 0, otherwise give it back."""
    fault = await fault_of(arguments, job)
    if job.lost:
        fault = f"{fault or 'done'}, but the lease has ended, so the message may be handled again"
        complain(f"{job.topic} {job.offset}: {fault}")
    elif fault:
        complain(f"{job.topic} {job.offset}: {fault} (delivery {job.deliveries})")
        job.nack(reason=fault)


async def fault_of(arguments: argparse.Namespace, job: Job) -> str:
    """Run the command. Return why it failed, or "" if it succeeded."""
    import asyncio

    from oncecast.cli.coordination.child import CannotRun, Child

    if b"\0" in job.value and any(HERE in word for word in arguments.command):
        return "the message contains a null byte, so it cannot be an argument"
    words = [word.replace(HERE, os.fsdecode(job.value)) for word in arguments.command]
    feed = job.value if words == arguments.command else b""
    try:
        child = Child(words, arguments.grace, facts_of(job), feed)
        async with asyncio.timeout(None if arguments.limit == float("inf") else arguments.limit):
            async with child:
                status = await child.wait()
    except TimeoutError:
        return f"took longer than {arguments.limit:g} s and was stopped"
    except (CannotRun, OSError) as error:
        return escaped(str(error))
    return f"exit status {status}" if status else ""


def facts_of(job: Job) -> dict[str, str]:
    """Return the environment of the command."""
    return {
        "ONCECAST_TOPIC": job.topic,
        "ONCECAST_OFFSET": str(job.offset),
        "ONCECAST_KEY": os.fsdecode(job.key or b""),
        "ONCECAST_TOKEN": str(job.token),
        "ONCECAST_DELIVERIES": str(job.deliveries),
    }
