"""`oncecast rule allow|disallow|list`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_option, add_work, complain, show, table, unicode
from oncecast.errors import ExitStatus

if TYPE_CHECKING:
    from oncecast.client.client import Client

VERBS = ("put", "read", "ack", "manage", "admin")


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "manage access rules"
    rule = commands.add_parser("rule", help=about, description=about)
    verbs = rule.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, help_, work in (
        ("allow", "allow a user to act on topics or to use names", run_allow),
        ("disallow", "withdraw permissions granted with the same pattern", run_disallow),
    ):
        parser = verbs.add_parser(name, help=help_)
        parser.add_argument(
            "principal", metavar="NAME", type=unicode, help="user name, or * for all clients"
        )
        parser.add_argument(
            "verbs", metavar="VERB", nargs="*", type=verb, help=f"one of {', '.join(VERBS)}"
        )
        pattern = parser.add_mutually_exclusive_group()
        pattern.add_argument(
            "--topic",
            metavar="PATTERN",
            type=unicode,
            default="",
            help="pattern for topic names; * matches any number of characters, and ? matches one",
        )
        pattern.add_argument(
            "--use",
            metavar="PATTERN",
            type=unicode,
            default="",
            help="pattern for client, producer and subscription names that the user may use",
        )
        add_work(parser, work, in_shell=False)
    list_ = verbs.add_parser("list", help="list all rules, or the rules of one user")
    add_option(list_, "--of", "NAME", "list only the rules of this user", kind=unicode)
    add_work(list_, run_list, in_shell=False)


def verb(word: str) -> str:
    if word not in VERBS:
        raise argparse.ArgumentTypeError(f"{word!r} is not a verb; choose from {', '.join(VERBS)}")
    return word


async def run_allow(client: Client, arguments: argparse.Namespace) -> int:
    new = await client.access.allow(
        arguments.principal, *arguments.verbs, topic=arguments.topic, name=arguments.use
    )
    text = f"{in_words(arguments)}: {'allowed' if new else 'already allowed'}"
    show(arguments, {**fields_of(arguments), "already": not new}, text)
    return ExitStatus.OK


async def run_disallow(client: Client, arguments: argparse.Namespace) -> int:
    there = await client.access.disallow(
        arguments.principal, *arguments.verbs, topic=arguments.topic, name=arguments.use
    )
    if not there:
        what = f"{in_words(arguments)}: no such rule; see `oncecast rule list`"
        return complain(what, ExitStatus.NOT_FOUND)
    text = f"{in_words(arguments)}: no longer allowed"
    show(arguments, {**fields_of(arguments), "removed": True}, text)
    return ExitStatus.OK


def fields_of(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "principal": arguments.principal,
        "verbs": arguments.verbs,
        "topic": arguments.topic,
        "name": arguments.use,
    }


def in_words(arguments: argparse.Namespace) -> str:
    verbs = ", ".join(arguments.verbs)
    if arguments.use:
        return f"{arguments.principal} use of {arguments.use}"
    return f"{arguments.principal} {verbs or 'all verbs'} on {arguments.topic or '*'}"


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    found = [
        each
        for each in await client.access.rules()
        if arguments.of is None or each.principal == arguments.of
    ]
    found.sort(key=lambda each: (each.principal, each.topic, each.name))
    if arguments.json:
        for each in found:
            fields = {"principal": each.principal, "verbs": list(each.verbs)}
            show(arguments, {**fields, "topic": each.topic, "name": each.name}, None)
        return ExitStatus.OK
    table(
        ("user", "verbs", "topics", "names"),
        [(each.principal, ", ".join(each.verbs), each.topic, each.name) for each in found],
    )
    return ExitStatus.OK
