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
    from oncecast.wire.frames import SubscriptionView


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
    seek.add_argument("to", metavar="POSITION", type=start, help=f"new position: {POSITIONS}")
    add_subscription(seek)
    add_work(seek, run_seek, in_shell=in_shell)

    status = commands.add_parser(
        "status",
        help="show the version and the numbers of topics, messages and subscriptions",
        description="Show a node's version and the numbers of topics, messages and subscriptions.",
    )
    add_work(status, run_status, in_shell=in_shell)


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    if arguments.topic is None:
        views = [view async for view in client.topics()]
    else:
        views = [await client.describe(arguments.topic)]
    found = [(view.name, each) for view in views for each in view.subscriptions]
    rows = [(topic, each, await shared_facts(client, each)) for topic, each in found]
    if not arguments.json:
        table_of(rows)
        return ExitStatus.OK
    for topic, each, facts in rows:
        fields = {"topic": topic, "subscription": each.name, "cursor": each.cursor}
        show(arguments, {**fields, "lag": each.lag, "attached": each.attached, **facts}, None)
    return ExitStatus.OK


def table_of(rows: list[tuple[str, SubscriptionView, dict[str, int]]]) -> None:
    """Print a table. It has more columns if any subscription is shared."""
    extra = next((tuple(facts) for _, _, facts in rows if facts), ())
    head = ("topic", "subscription", "next", "lag", "attached")
    table(
        (*head, *[name.replace("_", " ") for name in extra]),
        [
            (
                *(topic, each.name, each.cursor, each.lag, "yes" if each.attached else "no"),
                *[str(facts.get(name, "")) for name in extra],
            )
            for topic, each, facts in rows
        ],
    )


async def shared_facts(client: Client, view: SubscriptionView) -> dict[str, int]:
    """Return the counts of a shared subscription, or {} for an exclusive one."""
    from oncecast.client.dead_letters import unhandled

    shared = view.shared
    if shared is None:
        return {}
    letters = shared.dead + await unhandled(client, shared.dead_letters)
    return {
        "workers": shared.workers,
        "in_flight": shared.leased,
        "retries": shared.waiting,
        "dead_letters": letters,
    }


async def run_lag(client: Client, arguments: argparse.Namespace) -> int:
    topic, name = arguments.topic, arguments.subscription
    view = await client.describe(topic)
    for each in view.subscriptions:
        if each.name == name:
            facts = await shared_facts(client, each)
            text = "; ".join([str(each.lag), *[in_words(*fact) for fact in facts.items()]])
            fields = {"topic": topic, "subscription": name, "lag": each.lag, **facts}
            show(arguments, fields, text)
            return ExitStatus.OK
    return complain(
        f"topic {topic!r} has no subscription {name!r}; see `oncecast subs list`",
        ExitStatus.NOT_FOUND,
    )


def in_words(name: str, value: int) -> str:
    return f"{name.replace('_', ' ')} {value}"


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
