"""A node's data directory: its files, its identity, and the handling of damage.

members.json and files of the log       a replica of a group
ring.json and groups/GROUP/ as above    a process of a ring
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import msgspec

from oncecast.errors import WrongFormat
from oncecast.kernel.protocol import NodeId
from oncecast.network.addresses import is_name
from oncecast.network.incidents import line
from oncecast.storage.disk import PRIVATE_DIRECTORY, PRIVATE_FILE, OsDisk

logger = logging.getLogger("oncecast.node")

MEMBERS = "members.json"
OURS = re.compile(
    rf"\d{{8}}\.(log|idx|new)|[a-z]+-\d{{20}}\.snap|[a-z]+\.tmp|LOCK|{re.escape(MEMBERS)}"
)


RING, GROUPS = "ring.json", "groups"
OURS_OF_RING = re.compile(rf"{re.escape(RING)}|{GROUPS}|ring\.tmp|LOCK")
GONE = ".gone"  # suffix of a directory that is being removed


class Members(msgspec.Struct):
    """The group's last known members, and this node's address at that time."""

    me: NodeId
    members: tuple[NodeId, ...]


class RingIdentity(msgspec.Struct):
    """The identity of a process in its ring."""

    me: NodeId
    group: str  # the group that the process created
    first: bool = False  # whether the process started the ring


def open_directory(path: str, ours: re.Pattern[str] = OURS) -> OsDisk:
    """Open and lock a directory, and return its disk.

    Raise WrongFormat if it contains files of other programs or is not writable.
    """
    directory = Path(path)
    try:
        if directory.exists() and not directory.is_dir():
            raise WrongFormat(f"{directory}: not a directory", "use a writable directory")
        found = list(directory.iterdir()) if directory.is_dir() else []
        if not all(ours.fullmatch(each.name) for each in found):
            raise WrongFormat(
                f"{directory} contains files that do not belong to a node",
                "use an empty or new directory",
            )
        disk = OsDisk(directory)
    except OSError as error:
        raise WrongFormat(
            f"{directory}: {error.strerror or error}", "use a writable directory"
        ) from error
    warn_if_exposed(disk, directory)
    return disk


def warn_if_exposed(disk: OsDisk, directory: Path) -> None:
    """Log a warning if other users of this machine can access the files in a directory."""
    if disk.exposed:
        remedy = f"run chmod -R go= {shlex.quote(str(directory))}"
        logger.warning(line("directory_exposed", {"directory": directory, "remedy": remedy}))


def recall(path: str) -> Members | None:
    """Return the saved members, or None if the file is missing or unreadable."""
    try:
        return msgspec.json.decode((Path(path) / MEMBERS).read_bytes(), type=Members)
    except (OSError, msgspec.DecodeError):
        return None


def note(path: str, members: Members) -> None:
    write(Path(path) / MEMBERS, members)


def write(file: Path, content: msgspec.Struct) -> None:
    """Write a file atomically and durably."""
    draft = file.with_suffix(".tmp")
    opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    with os.fdopen(opened, "wb") as written:
        written.write(msgspec.json.encode(content))
        written.flush()
        os.fsync(written.fileno())
    draft.replace(file)
    sync(file.parent)


def sync(directory: Path) -> None:
    """Make renames in a directory durable."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def set_aside(path: str) -> Path:
    """Rename a damaged directory and return its new name."""
    directory = Path(path)
    stem = f"{directory.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
    aside = next(
        unused
        for number in range(1000)
        if not (unused := directory.with_name(f"{stem}-{number}" if number else stem)).exists()
    )
    try:
        directory.rename(aside)
    except OSError as error:
        raise WrongFormat(
            f"{directory} is damaged and cannot be renamed ({error.strerror or error})",
            "move its files elsewhere; the node will then rejoin its group",
        ) from error
    return aside


# -- processes of a ring --


def recall_ring(path: str) -> RingIdentity | None:
    """Return the identity of the process, or None if it was never saved.

    Raise WrongFormat if the file is unreadable.
    """
    file = Path(path) / RING
    try:
        return msgspec.json.decode(file.read_bytes(), type=RingIdentity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise WrongFormat(
            f"{file}: {error}", "restore this file, or delete it to start a new group"
        ) from error


def note_ring(path: str, identity: RingIdentity) -> None:
    write(Path(path) / RING, identity)


def group_path(path: str, group: str) -> str:
    return str(Path(path) / GROUPS / group)


def groups_in(path: str) -> list[str]:
    """Return the groups with a replica in the directory.

    Delete directories of replicas that were never started or are being removed.
    """
    directory = Path(path) / GROUPS
    directory.mkdir(PRIVATE_DIRECTORY, exist_ok=True)
    groups = []
    for each in sorted(directory.iterdir()):
        begun = is_name(each.name) and all(file.name == "LOCK" for file in each.iterdir())
        if begun or each.name.endswith(GONE):
            shutil.rmtree(each)
        elif is_name(each.name):
            groups.append(each.name)
    return groups


def remove_group(path: str, group: str) -> None:
    directory = Path(group_path(path, group))
    gone = directory.with_name(group + GONE)
    directory.rename(gone)  # atomic, so that a partly deleted directory is never opened
    sync(gone.parent)
    shutil.rmtree(gone)
