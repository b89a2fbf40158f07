"""Options for the settings of a shared subscription."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oncecast.cli.connecting import add_flag, add_option, seconds, unicode

if TYPE_CHECKING:
    from oncecast.client.shared import Shared

SUBSCRIPTION = "workers"
OPTIONS = (
    *("lease", "deliveries_max", "backoff_min", "backoff_max"),
    *("in_flight_max", "dead_letters", "by_key"),
)


def add_shared_name(parser: argparse.ArgumentParser) -> None:
    add_option(parser, "--subscription", "NAME", "shared subscription", SUBSCRIPTION, unicode)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that set the settings of a shared subscription."""
    add = parser.add_argument
    about = "how long a silent worker keeps a message (default: 30)"
    add("--lease", metavar="SECONDS", type=seconds, help=about)
    about = "deliveries before a message becomes a dead letter, or 0 for no limit (default: 10)"
    add("--deliveries-max", metavar="N", type=count, help=about)
    about = "delay before the second delivery, doubled for each further delivery (default: 1)"
    add("--backoff-min", metavar="SECONDS", type=seconds, help=about)
    about = "maximum delay before another delivery (default: 60)"
    add("--backoff-max", metavar="SECONDS", type=seconds, help=about)
    about = "maximum number of messages that all workers together hold (default: 100000)"
    add("--in-flight-max", metavar="N", type=count, help=about)
    about = "topic for dead letters (default: {TOPIC}.dead.NAME)"
    add("--dead-letters", metavar="TOPIC", type=unicode, help=about)
    about = "deliver messages with the same key one at a time and in order"
    add_flag(parser, "--by-key", about)


def count(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not a number; use 0 or more")
    return int(word)


def settings_of(arguments: argparse.Namespace) -> Shared | None:
    """Return the given settings, with defaults for the rest. Return None if none are given."""
    from oncecast.client.shared import Shared

    values = {name: getattr(arguments, name) for name in OPTIONS}
    given = {
        name: value for name, value in values.items() if value is not None and value is not False
    }
    return Shared(**given) if given else None
