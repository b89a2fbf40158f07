"""`oncecast dead list|show|retry|drop`: the dead letters of a shared subscription."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oncecast.cli.connecting import (
    add_flag,
    add_option,
    add_topic,
    add_work,
    complain,
    counted,
    positive,
    show,
    table,
    unicode,
)
from oncecast.cli.messages.get import as_text
from oncecast.cli.output import add_raw, print_values
from oncecast.cli.workers.sharing import add_shared_name, count
from oncecast.errors import ExitStatus
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.cli.connecting import Work
    from oncecast.client.client import Client
    from oncecast.client.dead_letters import DeadLetter, DeadLetters

SHOWN = 100
VALUE_SHOWN = 40  # maximum characters shown of a value in a table


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "list, retry and drop dead letters"
    dead = commands.add_parser("dead", help=about, description=about)
    verbs = dead.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def verb(name: str, about: str, work: Work) -> argparse.ArgumentParser:
        parser = verbs.add_parser(name, help=about, description=about)
        add_topic(parser)
        add_shared_name(parser)
        add_work(parser, work, in_shell=False)
        return parser

    list_ = verb("list", "list dead letters", run_list)
    about = "maximum number of dead letters"
    list_.add_argument(
        "-n",
        "--count",
        metavar="N",
        type=positive,
        default=SHOWN,
        help=f"{about} (default: {SHOWN})",
    )
    show_ = verb("show", "print one dead letter", run_show)
    about = "offset of a dead letter; see `dead list`"
    show_.add_argument("offset", metavar="OFFSET", type=count, help=about)
    add_raw(show_)
    retry = verb("retry", "put dead letters back into the topic", run_retry)
    add_option(
        retry,
        "--to",
        "TOPIC",
        "target topic (default: the original topic)",
        None,
        unicode,
    )
    drop = verb("drop", "delete dead letters", run_drop)
    for parser, done in ((retry, "retry"), (drop, "delete")):
        about = f"offset of a dead letter to {done}; see `dead list`"
        parser.add_argument("offsets", metavar="OFFSET", type=count, nargs="*", help=about)
        add_flag(parser, "--all", f"{done} all dead letters")


def letters_of(client: Client, arguments: argparse.Namespace) -> DeadLetters:
    return client.dead_letters(arguments.topic, arguments.subscription)


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    letters = letters_of(client, arguments)
    found = await letters.first(arguments.count)
    if arguments.json:
        for letter in found:
            show(arguments, fields_of(letter), None)
        return ExitStatus.OK
    table(
        ("offset", "of message", "deliveries", "reason", "detail", "value"),
        [(*counts_of(each), each.reason, each.detail, short(each)) for each in found],
    )
    left = await letters.count() - len(found)
    if left > 0:
        print(f"{counted(left, 'more dead letter')}; raise --count to list more")
    return ExitStatus.OK


def counts_of(letter: DeadLetter) -> tuple[int, str, int]:
    """Return the letter's offset, the offset of its message, and the number of deliveries."""
    return letter.offset, origin_of(letter), letter.deliveries


def origin_of(letter: DeadLetter) -> str:
    return "" if letter.origin is None else str(letter.origin)


def short(letter: DeadLetter) -> str:
    text = letter.message.value[: 4 * VALUE_SHOWN].decode(errors="replace")
    return text if len(text) <= VALUE_SHOWN else text[: VALUE_SHOWN - 1] + "…"


def fields_of(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    return {
        "offset": letter.offset,
        "of_message": -1 if letter.origin is None else letter.origin,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "detail": letter.detail,
        "timestamp": message.timestamp,
        "key": None if message.key is None else as_text(message.key),
        "value": as_text(message.value),
        "headers": {name: as_text(value) for name, value in letter.headers.items()},
    }


async def run_show(client: Client, arguments: argparse.Namespace) -> int:
    letter = await letters_of(client, arguments).show(arguments.offset)
    if arguments.json:
        show(arguments, fields_of(letter), None)
        return ExitStatus.OK
    facts: dict[str, object] = {
        "offset": letter.offset,
        "of message": origin_of(letter),
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "detail": letter.detail,
    }
    if letter.message.key is not None:
        facts["key"] = as_text(letter.message.key)
    facts |= {f"header {name}": as_text(value) for name, value in letter.headers.items()}
    for name, value in facts.items():
        print(f"{escaped(name):<12}{escaped(str(value))}".rstrip())
    print()
    print_values([letter.message.value], raw=arguments.raw)
    return ExitStatus.OK


async def run_retry(client: Client, arguments: argparse.Namespace) -> int:
    fault = fault_of(arguments)
    if fault:
        return complain(fault, ExitStatus.USAGE)
    letters = letters_of(client, arguments)
    count = await letters.retry(chosen(arguments), arguments.to)
    return report(arguments, count, f"put into {arguments.to or arguments.topic}")


async def run_drop(client: Client, arguments: argparse.Namespace) -> int:
    fault = fault_of(arguments)
    if fault:
        return complain(fault, ExitStatus.USAGE)
    return report(arguments, await letters_of(client, arguments).drop(chosen(arguments)), "deleted")


def fault_of(arguments: argparse.Namespace) -> str:
    if bool(arguments.offsets) != bool(arguments.all):
        return ""
    return "specify the offsets of dead letters, or --all"


def chosen(arguments: argparse.Namespace) -> list[int] | None:
    return None if arguments.all else arguments.offsets


def report(arguments: argparse.Namespace, count: int, what: str) -> int:
    fields = {"topic": arguments.topic, "subscription": arguments.subscription, "count": count}
    show(arguments, fields, f"{counted(count, 'dead letter')} {what}")
    return ExitStatus.OK
