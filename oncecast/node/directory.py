"""A node's directory: whose it is, who else was in its group, and what to do when it is damaged."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec

from oncecast.kernel.protocol import NodeId
from oncecast.storage.disk import OsDisk
from oncecast.storage.errors import WrongFormat

MEMBERS = "members.json"
OURS = re.compile(
    rf"\d{{8}}\.(log|idx|new)|[a-z]+-\d{{20}}\.snap|[a-z]+\.tmp|LOCK|{re.escape(MEMBERS)}"
)


class Members(msgspec.Struct):
    """The group as this node last knew it, and by which address it went itself then."""

    me: NodeId
    members: tuple[NodeId, ...]


def open_directory(path: str) -> OsDisk:
    """A directory that is empty or a node's, and no other process's."""
    directory = Path(path)
    try:
        found = list(directory.iterdir()) if directory.is_dir() else []
        if not all(OURS.fullmatch(each.name) for each in found):
            raise WrongFormat(
                f"{directory}: holds other files than a node's; give an empty or a new directory"
            )
        return OsDisk(directory)
    except OSError as error:
        raise WrongFormat(
            f"{directory}: {error.strerror or error}; give a directory that can be written"
        ) from error


def recall(path: str) -> Members | None:
    """None if nothing was ever noted, or it cannot be read: it is no more than a hint."""
    try:
        return msgspec.json.decode((Path(path) / MEMBERS).read_bytes(), type=Members)
    except (OSError, msgspec.DecodeError):
        return None


def note(path: str, members: Members) -> None:
    draft = Path(path) / "members.tmp"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(members))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(Path(path) / MEMBERS)


def set_aside(path: str) -> Path:
    """Give the directory another name, and make an empty one in its place; nothing is deleted."""
    directory = Path(path)
    stem = f"{directory.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
    aside = next(
        place
        for number in range(1000)
        if not (place := directory.with_name(f"{stem}-{number}" if number else stem)).exists()
    )
    try:
        directory.rename(aside)
    except OSError as error:
        raise WrongFormat(
            f"{directory}: it is damaged and cannot be renamed ({error.strerror or error}); "
            "move what is in it elsewhere, and the node joins its group anew"
        ) from error
    return aside
