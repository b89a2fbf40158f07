"""`oncecast user add|list|remove|password`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from oncecast.cli.connecting import (
    add_flag,
    add_option,
    add_work,
    complain,
    report_error,
    show,
    talk,
    unicode,
)
from oncecast.cli.login import read_secret
from oncecast.errors import ExitStatus, InvalidArgument, OncecastError
from oncecast.kernel.escaping import escaped

if TYPE_CHECKING:
    from oncecast.cli.connecting import Work
    from oncecast.client.client import Client

OPENED = (
    "this is the first user: from now on, clients without a login can do only what a rule for * "
    "allows"
)


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "add, list and remove users"
    user = commands.add_parser("user", help=about, description=about)
    verbs = user.add_subparsers(title="commands", metavar="COMMAND", required=True)

    add = verbs.add_parser("add", help="add a user; the first user must be an administrator")
    add_name(add)
    add_flag(add, "--admin", "make the user an administrator with all permissions")
    add_flag(
        add, "--no-password", "do not set a password; the user logs in with a certificate or token"
    )
    add_secret(add, run_add)

    add_work(verbs.add_parser("list", help="list users"), run_list, in_shell=False)

    remove = verbs.add_parser("remove", help="remove a user along with its tokens and rules")
    add_name(remove)
    add_work(remove, run_remove, in_shell=False)

    password = verbs.add_parser("password", help="change a user's password")
    add_name(password)
    password.set_defaults(no_password=False)
    add_secret(password, run_password)


def add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("principal", metavar="NAME", type=unicode, help="user name")


def add_secret(parser: argparse.ArgumentParser, work: Work) -> None:
    """Add the option for a new password, and set the function that runs the command.

    The password is never an argument, because other users can see arguments.
    """
    add_option(
        parser,
        "--new-password-file",
        "FILE",
        "file whose first line is the new password (default: prompt for it)",
    )
    add_work(parser, work, in_shell=False)

    def run(arguments: argparse.Namespace) -> int:
        try:
            arguments.secret = new_password(arguments)
        except OncecastError as error:
            return report_error(error)
        return talk(arguments, work)

    parser.set_defaults(run=run)


def new_password(arguments: argparse.Namespace) -> str | None:
    """Read the new password from a file or prompt for it twice. Return None with --no-password."""
    import getpass

    if arguments.no_password:
        if arguments.new_password_file is not None:
            raise InvalidArgument("--no-password and --new-password-file cannot be combined")
        return None
    if arguments.new_password_file is not None:
        return read_secret(arguments.new_password_file)
    if not sys.stdin.isatty():
        raise InvalidArgument(
            "cannot prompt for the password without a terminal", "set --new-password-file"
        )
    password = getpass.getpass(f"New password for {escaped(arguments.principal)}: ")
    if getpass.getpass("Repeat it: ") != password:
        raise InvalidArgument("the passwords differ", "type the same password twice")
    return password


async def run_add(client: Client, arguments: argparse.Namespace) -> int:
    name, before = arguments.principal, await client.access.users()
    if name in before:
        return complain(
            f"user {name!r} already exists; use `oncecast user password` or `oncecast rule allow`",
            ExitStatus.NOT_ALLOWED,
        )
    await client.access.add_user(name, arguments.secret, admin=arguments.admin)
    fields = {"user": name, "admin": arguments.admin}
    show(arguments, fields, f"{name}: {'administrator' if arguments.admin else 'user'} added")
    if not before and not arguments.json:
        complain(OPENED)
    return ExitStatus.OK


async def run_password(client: Client, arguments: argparse.Namespace) -> int:
    name = arguments.principal
    if name not in await client.access.users():
        return unknown(name)
    await client.access.add_user(name, arguments.secret)
    show(arguments, {"user": name, "changed": True}, f"{name}: password changed")
    return ExitStatus.OK


async def run_remove(client: Client, arguments: argparse.Namespace) -> int:
    name = arguments.principal
    if not await client.access.remove_user(name):
        return unknown(name)
    show(arguments, {"user": name, "removed": True}, f"{name}: removed")
    return ExitStatus.OK


def unknown(name: str) -> int:
    what = f"user {name!r} does not exist; see `oncecast user list`"
    return complain(what, ExitStatus.NOT_FOUND)


async def run_list(client: Client, arguments: argparse.Namespace) -> int:
    for name in sorted(await client.access.users()):
        show(arguments, {"user": name}, name)
    return ExitStatus.OK
