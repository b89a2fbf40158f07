"""Saved connections: each context names a cluster, and how to connect and log in to it.

The contexts are in one private file. It contains paths of secrets, but no secrets.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oncecast.errors import InvalidArgument

NAME_CHARACTERS_MAX = 64
CONTEXTS_MAX = 1000

# The connection options that a context can hold, and their defaults.
OPTIONS: dict[str, Any] = {
    "server": None,
    "cluster": "oncecast",
    "tls": None,
    "tls_ca": None,
    "user": None,
    "password_file": None,
    "token_file": None,
}
FILES = ("tls", "tls_ca", "password_file", "token_file")

Options = dict[str, Any]  # by name; only options that differ from their default


class Contexts:
    def __init__(self, path: Path, current: str, saved: dict[str, Options]) -> None:
        self.path, self.current, self.saved = path, current, saved

    def find(self, name: str) -> Options:
        """Return the options of a context. Raise InvalidArgument if it does not exist."""
        if name not in self.saved:
            known = ", ".join(self.saved) or "none"
            raise InvalidArgument(
                f"context {name!r} does not exist (existing contexts: {known})",
                "create it with `oncecast context add`",
            )
        return self.saved[name]

    def write(self) -> None:
        """Replace the file. Only its owner can read it."""
        import msgspec

        content = {"current": self.current, "contexts": self.saved}
        text = msgspec.json.format(msgspec.json.encode(content)) + b"\n"
        temporary = self.path.with_name(f"{self.path.name}.new")
        try:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            with open(  # Path.open has no opener
                temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)
            ) as file:
                file.write(text)
            temporary.replace(self.path)
        except OSError as error:
            cause = f"cannot write {self.path}: {error.strerror}"
            raise InvalidArgument(cause, "set ONCECAST_CONTEXTS to a writable file") from None


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    if given := environment.get("ONCECAST_CONTEXTS"):
        return Path(given)
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base, "oncecast", "contexts.json")


def read_contexts(environment: Mapping[str, str] = os.environ) -> Contexts:
    """Return the saved contexts. Raise InvalidArgument if the file is damaged."""
    import msgspec

    path = contexts_path(environment)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Contexts(path, "", {})
    except OSError as error:
        raise InvalidArgument(f"{path}: {error.strerror}", "use a readable file") from None
    try:
        content = msgspec.json.decode(text, type=dict[str, Any])
        saved = msgspec.convert(content["contexts"], dict[str, dict[str, Any]])
        current = msgspec.convert(content["current"], str)
        unknown = {name for each in saved.values() for name in each} - set(OPTIONS)
        if unknown:
            raise KeyError(*unknown)
    except (msgspec.MsgspecError, KeyError) as error:
        raise InvalidArgument(
            f"{path} is not a file of contexts: {error}", "correct it or delete it"
        ) from None
    return Contexts(path, current, saved)


def apply_context(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> None:
    """Complete a command's connection options from its context.

    A command that names a server, in an option or in ONCECAST_SERVER, uses no context unless it
    names one. So a saved login is never sent to another cluster by accident.
    """
    name = getattr(arguments, "context", None)
    if name is None and (arguments.server or environment.get("ONCECAST_SERVER")):
        return
    name = name or environment.get("ONCECAST_CONTEXT")
    if name is None and not contexts_path(environment).exists():
        return
    contexts = read_contexts(environment)
    name = name or contexts.current
    if not name:
        return
    options = contexts.find(name)
    if getattr(arguments, "server", None) is not None:
        raise InvalidArgument(
            "--server cannot be combined with --context", "use only one of these options"
        )
    given = {each for each in OPTIONS if getattr(arguments, each, None) != OPTIONS[each]}
    login = {"user", "password_file", "token_file"}
    for option, value in options.items():
        if option in given or (option in login and given & login):
            continue  # an option of the command takes precedence
        setattr(arguments, option, value)
