"""`oncecast sub` and `unsub`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    POSITIONS,
    add_flag,
    add_option,
    add_subscription,
    add_topic,
    add_work,
    complain,
    moved,
    show,
    start,
)
from oncecast.cli.workers.sharing import add_settings, settings_of
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    sub = commands.add_parser(
        "sub", help="subscribe to a topic", description="Subscribe to a topic."
    )
    add_topic(sub)
    add_subscription(sub)
    add_option(sub, "--start", None, f"where to start reading: {POSITIONS}", "new", start)
    add_flag(sub, "--shared", "share the subscription among workers; see `oncecast work`")
    add_settings(sub)
    add_work(sub, run_sub, in_shell=in_shell)

    unsub = commands.add_parser(
        "unsub", help="delete a subscription", description="Delete a subscription."
    )
    add_topic(unsub)
    add_subscription(unsub)
    add_work(unsub, run_unsub, in_shell=in_shell)


async def run_sub(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    # Create it without reading: a read would fence the current reader.
    shared = settings_of(arguments)
    if arguments.shared and shared is None:
        from oncecast.client.shared import Shared

        shared = Shared()
    elif shared is not None and not arguments.shared:
        return complain(
            "these settings are for shared subscriptions; add --shared", ExitStatus.USAGE
        )
    offset, new = await client.create_subscription(
        topic, name, start=arguments.start, shared=shared
    )
    note = moved(arguments.start, offset) if new else ""
    fact = "created" if new else "exists already"
    show(
        arguments,
        {
            "topic": topic,
            "subscription": name,
            "cursor": offset,
            "already": not new,
            "moved": bool(note),
        },
        f"{topic}: subscription {name} {fact}, next offset {offset}{note}",
    )
    return ExitStatus.OK


async def run_unsub(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    there = await client.unsubscribe(topic, name)
    show(
        arguments,
        {"topic": topic, "subscription": name, "already": not there},
        f"{topic}: subscription {name} {'removed' if there else 'does not exist'}",
    )
    return ExitStatus.OK
