"""`oncecast token create|list|revoke`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    add_option,
    add_work,
    complain,
    positive,
    show,
    table,
    unicode,
)
from oncecast.errors import ExitStatus, InvalidArgument

if TYPE_CHECKING:
    from oncecast.client.client import Client

DAY = 86_400.0


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "create, list and revoke tokens"
    token = commands.add_parser("token", help=about, description=about)
    verbs = token.add_subparsers(title="commands", metavar="COMMAND", required=True)

    create = verbs.add_parser("create", help="create a token, which is shown only once")
    create.add_argument(
        "principal", metavar="NAME", type=unicode, help="user that the token logs in as"
    )
    days = "days until the token expires (default: never)"
    add_option(create, "--days", "N", days, kind=positive)
    add_option(
        create, "--out", "FILE", "write the token to this new file instead of standard output"
    )
    add_work(create, run_create, in_shell=False)

    list_ = verbs.add_parser("list", help="list tokens without their secrets")
    add_work(list_, run_list, in_shell=False)

    revoke = verbs.add_parser("revoke", help="revoke a token")
    revoke.add_argument("id", metavar="ID", type=unicode, help="token id; see `token list`")
    add_work(revoke, run_revoke, in_shell=False)


async def run_create(client: Client, arguments: argparse.Namespace) -> int:
    name, seconds = arguments.principal, arguments.days and arguments.days * DAY
    # Open the file first: a token that cannot be saved must not be created.
    file = None if arguments.out is None else opened(arguments.out)
    try:
        token = await client.access.create_token(name, seconds)
    except BaseException:
        if file is not None:
            os.close(file)
            os.unlink(arguments.out)  # noqa: PTH108  # no path object is needed
        raise
    id = token.partition(".")[0]
    if file is None:
        show(arguments, {"id": id, "principal": name, "token": token}, token)
        return ExitStatus.OK
    with os.fdopen(file, "w") as written:
        written.write(f"{token}\n")
    fields = {"id": id, "principal": name, "file": arguments.out}
    show(arguments, fields, f"{id}: token of {name} in {arguments.out}")
    return ExitStatus.OK


def opened(path: str) -> int:
    """Create a file that only its owner can read, and return its descriptor."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", "use a new file") from error


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    found = sorted(await client.access.tokens(), key=lambda each: (each.principal, each.id))
    if arguments.json:
        for each in found:
            fields = {"id": each.id, "principal": each.principal, "expires": each.expires}
            show(arguments, fields, None)
        return ExitStatus.OK
    rows: list[tuple[object, ...]] = []
    for each in found:
        ends = each.expires and datetime.fromtimestamp(each.expires, UTC)
        rows.append((each.id, each.principal, f"{ends:%Y-%m-%d %H:%M} UTC" if ends else "never"))
    table(("id", "user", "expires"), rows)
    return ExitStatus.OK


async def run_revoke(client: Client, arguments: argparse.Namespace) -> int:
    id = arguments.id.partition(".")[0]  # A full token is also accepted, but never printed.
    if not await client.access.revoke_token(id):
        what = f"token {id!r} does not exist; see `oncecast token list`"
        return complain(what, ExitStatus.NOT_FOUND)
    show(arguments, {"id": id, "revoked": True}, f"{id}: revoked")
    return ExitStatus.OK
