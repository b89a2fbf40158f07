"""A node's id is the address to dial: `host:port`, or `[v6 address]:port`.

Several nodes may share a process and its door. Each but the first then has a name behind the
address: `host:port/name`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, cast

from oncecast.kernel.errors import BadAddress

if TYPE_CHECKING:  # the command line reads addresses, and need not load the kernel for that
    from oncecast.kernel.protocol import NodeId

NAME = re.compile(r"[a-z0-9-]{1,64}")
ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z]{2,60}\]):(?P<port>\d{1,5})"
    rf"(/{NAME.pattern})?"
)


def split(address: str) -> tuple[str, int]:
    """Host and port; of a name behind them only that it is one."""
    match = ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 0xFFFF:
        raise BadAddress(f'{address!r} is no address; write "host:port", such as 127.0.0.1:7400')
    return match["host"].strip("[]"), int(match["port"])


def split_home(address: str) -> tuple[str, int]:
    """Of a place to listen at, or a process to reach: there is no name behind it."""
    if name_of(address):
        raise BadAddress(f'{address!r} is a node behind a door; write the door\'s own "host:port"')
    return split(address)


def home(node: NodeId) -> NodeId:
    """The node whose door it is; for most that is the node itself."""
    return cast("NodeId", node.partition("/")[0])


def is_name(text: str) -> bool:
    """Whether a node behind a door may be called that."""
    return NAME.fullmatch(text) is not None


def name_of(node: str) -> str:
    """Which of the nodes behind a door is meant; the first one has no name."""
    return node.partition("/")[2]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: who knows where it leads
        return False


def canonical(host: str) -> str:
    """One spelling for each host: ::1 is written in several ways, and names know no case."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()
