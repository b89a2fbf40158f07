"""`oncecast subs list|lag|seek` and `oncecast status`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    POSITIONS,
    add_subscription,
    add_topic,
    add_work,
    complain,
    moved,
    show,
    start,
    table,
)
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    about = "list and move subscriptions"
    subs = commands.add_parser("subs", help=about, description=about)
    verbs = subs.add_subparsers(title="commands", metavar="COMMAND", required=True)

    list_ = verbs.add_parser("list", help="list all subscriptions, or those of one topic")
    list_.add_argument("topic", metavar="TOPIC", nargs="?", help="topic name (default: all topics)")
    add_work(list_, run_list, in_shell=in_shell)

    lag = verbs.add_parser("lag", help="print the number of unacknowledged messages")
    add_topic(lag)
    add_subscription(lag)
    add_work(lag, run_lag, in_shell=in_shell)

    seek = verbs.add_parser("seek", help="move a subscription to another position")
    add_topic(seek)
    seek.add_argument("to", metavar="POSITION", type=start, help=POSITIONS)
    add_subscription(seek)
    add_work(seek, run_seek, in_shell=in_shell)

    status = commands.add_parser(
        "status", help="show a node's totals", description="Show the totals of a node."
    )
    add_work(status, run_status, in_shell=in_shell)


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.topic is None:
        views = [view async for view in client.topics()]
    else:
        views = [await client.describe(arguments.topic)]
    found = [(view.name, each) for view in views for each in view.subscriptions]
    if not arguments.json:
        table(
            ("topic", "subscription", "next", "lag", "attached"),
            [
                (topic, each.name, each.cursor, each.lag, "yes" if each.attached else "no")
                for topic, each in found
            ],
        )
        return ExitStatus.OK
    for topic, each in found:
        fields = {"topic": topic, "subscription": each.name, "cursor": each.cursor}
        show(arguments, {**fields, "lag": each.lag, "attached": each.attached}, None)
    return ExitStatus.OK


async def run_lag(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    view = await client.describe(topic)
    for each in view.subscriptions:
        if each.name == name:
            show(arguments, {"topic": topic, "subscription": name, "lag": each.lag}, str(each.lag))
            return ExitStatus.OK
    return complain(
        f"topic {topic!r} has no subscription {name!r}; see `oncecast subs list`",
        ExitStatus.NOT_FOUND,
    )


async def run_seek(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    cursor = await client.seek(topic, name, arguments.to)
    note = moved(arguments.to, cursor)
    fields = {"topic": topic, "subscription": name, "cursor": cursor, "moved": bool(note)}
    show(arguments, fields, f"{topic}: subscription {name}, next offset {cursor}{note}")
    return ExitStatus.OK


async def run_status(client: Client, arguments: argparse.Namespace) -> int:
    node = await client.ping()
    views = [view async for view in client.topics()]
    subscriptions = [each for view in views for each in view.subscriptions]
    fields = {
        "node": node.node,
        "version": node.version,
        "topics": len(views),
        "messages": sum(view.next - view.first for view in views),
        "bytes": sum(view.bytes for view in views),
        "subscriptions": len(subscriptions),
        "attached": sum(each.attached for each in subscriptions),
        "lag": sum(each.lag for each in subscriptions),
    }
    show(arguments, fields, "\n".join(f"{name:<15}{value}" for name, value in fields.items()))
    return ExitStatus.OK
