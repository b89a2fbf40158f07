"""`oncecast topic create|set|list|describe|delete`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Literal

from oncecast.cli.connecting import (
    add_flag,
    add_topic,
    add_work,
    complain,
    counted,
    positive,
    show,
    table,
    unicode,
)
from oncecast.errors import ExitStatus
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.client.client import Client
    from oncecast.wire.frames import TopicView
    from oncecast.wire.retention import Policy

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BYTES = {"k": 2**10, "M": 2**20, "G": 2**30}
MOST = 2**62  # maximum age in microseconds, or size in bytes


def configure(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, in_shell: bool = False
) -> None:
    about = "create, list, change and delete topics"
    topic = commands.add_parser("topic", help=about, description=about)
    verbs = topic.add_subparsers(title="commands", metavar="COMMAND", required=True)

    about = "create a topic that exists until it is deleted"
    create = verbs.add_parser("create", help=about, description=about)
    add_topic(create)
    about = "number of partitions, which are spread over a ring (default: a plain topic)"
    create.add_argument("--partitions", metavar="N", type=positive, help=about)
    _add_retention(create)
    add_work(create, run_create, in_shell=in_shell)

    about = "change a topic's retention or number of partitions; the other settings stay"
    set_ = verbs.add_parser("set", help=about, description=about)
    add_topic(set_)
    about = "raise the number of partitions; it cannot decrease"
    set_.add_argument("--partitions", metavar="N", type=positive, help=about)
    _add_retention(set_, flag=argparse.BooleanOptionalAction, default=None)
    add_flag(set_, "--reset", "start from the defaults instead of the current settings")
    add_work(set_, run_set, in_shell=in_shell)

    list_ = verbs.add_parser("list", help="list topics, sorted by name")
    list_.add_argument(
        "--prefix", type=unicode, default="", help="list only topics whose names start with PREFIX"
    )
    add_work(list_, run_list, in_shell=in_shell)

    for verb, about, work in (
        ("describe", "show a topic and its subscriptions", run_describe),
        ("delete", "delete a topic along with its messages and subscriptions", run_delete),
    ):
        parser = verbs.add_parser(verb, help=about, description=about)
        add_topic(parser)
        if verb == "delete" and not in_shell:
            add_flag(parser, "--yes", "do not ask for confirmation on a terminal")
        add_work(parser, work, in_shell=in_shell)


def _add_retention(
    parser: argparse.ArgumentParser,
    *,
    flag: str | type[argparse.Action] = "store_true",
    default: Literal[False] | None = False,
) -> None:
    """Add the options of a policy. With the default None, an option that is not given is None."""

    def add(name: str, about: str) -> None:
        parser.add_argument(name, action=flag, default=default, help=about)

    add("--keep-all", "keep all messages forever")
    parser.add_argument(
        "--keep-age",
        metavar="TIME",
        type=age,
        default=0 if default is False else None,
        help="keep messages for this long, for example 90s, 12h or 7d",
    )
    parser.add_argument(
        "--keep-bytes",
        metavar="SIZE",
        type=size,
        default=0 if default is False else None,
        help="keep this many bytes of the newest messages, for example 500k, 10M or 1G",
    )
    add("--drop-unread", "also apply these limits to unread messages")
    about = "drop messages when their time to live ends, instead of making them dead letters"
    add("--drop-expired", about)
    add("--gossip", "on a ring, push messages by gossip instead of through a tree")


def age(word: str) -> int:
    """Return an age in microseconds."""
    return int(_scaled(word, SECONDS, "90s, 15m, 12h or 7d", MOST / 1e6) * 1e6)


def size(word: str) -> int:
    return int(_scaled(word, BYTES, "500k, 10M or 1G", MOST))


def _scaled(word: str, units: dict[str, int], such: str, most: float) -> float:
    number, unit = (word[:-1], units[word[-1]]) if word[-1:] in units else (word, 1)
    try:
        value = float(number) * unit
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a number with a unit; use {such}"
        ) from None
    if not 0 < value < most:
        raise argparse.ArgumentTypeError(f"{word} is out of range; use a value such as {such}")
    return value


def policy_of(arguments: argparse.Namespace) -> Policy:
    from oncecast.wire.retention import Policy

    return Policy(
        arguments.keep_age,
        arguments.keep_bytes,
        arguments.keep_all,
        arguments.drop_unread,
        arguments.gossip,
        arguments.drop_expired,
    )


async def run_create(client: Client, arguments: argparse.Namespace) -> int:
    policy, partitions = policy_of(arguments), arguments.partitions
    new = await client.create_topic(arguments.topic, policy, partitions=partitions)
    fact = "created" if new else "exists already"
    divided = f" with {counted(partitions, 'partition')}" if partitions else ""
    text = f"{arguments.topic}: {fact}{divided}, keeps {in_words(policy)}"
    fields = {"topic": arguments.topic, "already": not new}
    show(arguments, fields | partition_fields(partitions), text)
    return ExitStatus.OK


async def run_set(client: Client, arguments: argparse.Namespace) -> int:
    from oncecast.wire.retention import DEFAULT

    before = DEFAULT if arguments.reset else (await client.describe(arguments.topic)).policy
    policy = changed(before, arguments)
    if arguments.partitions:  # before the policy, because this can be refused
        await client.set_partitions(arguments.topic, arguments.partitions)
    await client.set_policy(arguments.topic, policy)
    divided = f"{counted(arguments.partitions, 'partition')}, " if arguments.partitions else ""
    text = f"{arguments.topic}: {divided}keeps {in_words(policy)}"
    fields = {"topic": arguments.topic, **policy_fields(policy)}
    show(arguments, fields | partition_fields(arguments.partitions), text)
    return ExitStatus.OK


def changed(policy: Policy, arguments: argparse.Namespace) -> Policy:
    """Return the policy with the given options. A limit replaces `keep_all`, and vice versa."""
    import msgspec

    given = {
        "age_us": arguments.keep_age,
        "bytes_max": arguments.keep_bytes,
        "keep_all": arguments.keep_all,
        "drop_unread": arguments.drop_unread,
        "gossip": arguments.gossip,
        "drop_expired": arguments.drop_expired,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if changes.get("keep_all"):
        changes = {"age_us": 0, "bytes_max": 0, "drop_unread": False} | changes
    elif {"age_us", "bytes_max"} & set(changes):
        changes = {"keep_all": False} | changes
    return msgspec.structs.replace(policy, **changes)


async def run_delete(client: Client, arguments: argparse.Namespace) -> int:
    if not getattr(arguments, "yes", True) and sys.stdin.isatty():
        import asyncio

        view = await client.describe(arguments.topic)
        what = f"{counted(view.next - view.first, 'message')} and "
        what += counted(len(view.subscriptions), "subscription")
        answer = await asyncio.to_thread(input, f"delete {escaped(view.name)} with {what}? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            return complain(f"{arguments.topic}: not deleted")
    if not await client.delete_topic(arguments.topic):
        return complain(
            f"topic {arguments.topic!r} does not exist; see `oncecast topic list`",
            ExitStatus.NOT_FOUND,
        )
    show(arguments, {"topic": arguments.topic, "deleted": True}, f"{arguments.topic}: deleted")
    return ExitStatus.OK


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    views = [view async for view in client.topics(arguments.prefix)]
    if arguments.json:
        for view in views:
            show(arguments, fields(view), None)
        return ExitStatus.OK
    # A column for partitions appears only if a topic has some.
    divided = any(view.partitions for view in views)
    table(
        (
            "topic",
            *(("partitions",) if divided else ()),
            *("messages", "next", "bytes", "subscriptions", "keeps"),
        ),
        [
            (
                view.name,
                *((view.partitions or "",) if divided else ()),
                view.next - view.first,
                view.next,
                view.bytes,
                len(view.subscriptions),
                in_words(view.policy),
            )
            for view in views
        ],
    )
    return ExitStatus.OK


async def run_describe(client: Client, arguments: argparse.Namespace) -> int:
    view = await client.describe(arguments.topic)
    if arguments.json:
        show(arguments, fields(view), None)
        return ExitStatus.OK
    print(f"topic      {escaped(view.name)}")
    if view.partitions:
        print(f"partitions {view.partitions}")
        print(f"messages   {view.next - view.first}")
    else:
        kept = f"{view.first} to {view.next - 1}" if view.next > view.first else "none"
        print(f"offsets    {kept} ({counted(view.next - view.first, 'message')}), next {view.next}")
    print(f"bytes      {view.bytes}")
    if view.delayed:
        print(f"delayed    {counted(view.delayed, 'message')}")
    print(f"keeps      {in_words(view.policy)}")
    print(f"producers  {view.producers}")
    if view.subscriptions:
        print()
        table(
            ("subscription", "next", "lag", "attached"),
            [
                (each.name, each.cursor, each.lag, "yes" if each.attached else "no")
                for each in view.subscriptions
            ],
        )
    if view.partitions:
        print()
        show_partitions(view, await client.partitions(arguments.topic))
    return ExitStatus.OK


def show_partitions(view: TopicView, partitions: list[TopicView]) -> None:
    """Print a row for each partition, with the member of each group that reads it."""
    groups = [each for each in view.subscriptions if each.holders]
    table(
        ("partition", "messages", "next", "bytes", *[f"read by {each.name}" for each in groups]),
        [
            (
                *(number, part.next - part.first, part.next, part.bytes),
                *[each.holders[number] if number < len(each.holders) else "" for each in groups],
            )
            for number, part in enumerate(partitions)
        ],
    )


def partition_fields(partitions: int | None) -> dict[str, Any]:
    return {"partitions": partitions} if partitions else {}


def fields(view: TopicView) -> dict[str, Any]:
    return {
        "topic": view.name,
        "first": view.first,
        "next": view.next,
        "bytes": view.bytes,
        "delayed": view.delayed,
        **policy_fields(view.policy),
        "producers": view.producers,
        **partition_fields(view.partitions),
        "subscriptions": [
            {
                "subscription": each.name,
                "cursor": each.cursor,
                "lag": each.lag,
                "attached": each.attached,
                **({"holders": list(each.holders)} if each.holders else {}),
            }
            for each in view.subscriptions
        ],
    }


def policy_fields(policy: Policy) -> dict[str, Any]:
    return {
        "keep_all": policy.keep_all,
        "keep_age": policy.age_us / 1e6,
        "keep_bytes": policy.bytes_max,
        "drop_unread": policy.drop_unread,
        "gossip": policy.gossip,
        "drop_expired": policy.drop_expired,
    }


def in_words(policy: Policy) -> str:
    dropping = "; drops expired messages" if policy.drop_expired else ""
    return keeping(policy) + dropping + ("; pushed by gossip" if policy.gossip else "")


def keeping(policy: Policy) -> str:
    if policy.keep_all:
        return "all messages"
    age_s = policy.age_us / 1e6
    unit = next((u for u in "dhm" if age_s % SECONDS[u] == 0), "s")
    limits = [f"{age_s / SECONDS[unit]:.12g} {unit}"] if policy.age_us else []
    limits += [f"{policy.bytes_max} bytes"] if policy.bytes_max else []
    if not limits:
        return "unread messages"
    return " and ".join(limits) + ("" if policy.drop_unread else ", and unread messages")
