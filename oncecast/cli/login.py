"""The options that a command uses to log in to a node."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oncecast.errors import InvalidArgument

if TYPE_CHECKING:
    from oncecast.client.login import Login
    from oncecast.network.tls import Tls


def add_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="user to log in as (default: ONCECAST_USER)")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="file with the user's password (default: the password in ONCECAST_PASSWORD)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with a token to use instead of a user and password (default: the token in "
        "ONCECAST_TOKEN)",
    )


def login_of(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Login:
    """Return the command's login. Options take precedence over the environment."""
    from oncecast.client.login import Login

    if arguments.token_file is not None:
        if arguments.user is not None or arguments.password_file is not None:
            raise InvalidArgument(
                "--token-file cannot be combined with --user or --password-file",
                "use only one login",
            )
        return Login(token=read_secret(arguments.token_file))
    user = arguments.user or environment.get("ONCECAST_USER")
    password = environment.get("ONCECAST_PASSWORD")
    if arguments.password_file is not None:
        password = read_secret(arguments.password_file)
    if user and password:
        return Login(user, password)
    if arguments.password_file is not None:
        raise InvalidArgument("a password needs a user", "set --user or ONCECAST_USER")
    if arguments.user is not None:
        raise InvalidArgument(
            f"user {user} needs a password", "set --password-file or ONCECAST_PASSWORD"
        )
    return Login(token=environment.get("ONCECAST_TOKEN") or None)


def read_secret(path: str) -> str:
    """Return the first line of a file. Raise InvalidArgument if it is empty or unreadable."""
    from pathlib import Path

    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or error
        raise InvalidArgument(f"{path}: {cause}", "use a readable text file") from None
    if not lines or not lines[0]:
        raise InvalidArgument(f"{path} is empty", "write the secret on the first line")
    return lines[0]


def tls_of(arguments: argparse.Namespace) -> Tls | None:
    certificate, key, ca = arguments.tls or (None, None, arguments.tls_ca)
    if ca is None:
        return None
    from oncecast.network.tls import Tls  # imported here because only TLS needs it

    return Tls.from_files(certificate=certificate, key=key, ca=ca)
