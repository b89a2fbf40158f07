"""Node addresses, which are also node ids: `host:port` or `[v6 address]:port`.

Several nodes may share a process and its listener. All nodes except the first have a name after the
address: `host:port/name`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from oncecast.errors import BadAddress

if TYPE_CHECKING:  # the command line parses addresses without loading the kernel
    from oncecast.kernel.protocol import NodeId

NAME = re.compile(r"[a-z0-9-]{1,64}")
ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z]{2,60}\]):(?P<port>\d{1,5})"
    rf"(/{NAME.pattern})?"
)


def split(address: str) -> tuple[str, int]:
    """Return the host and port of an address, without the node name, or raise BadAddress."""
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise BadAddress(f"{address!r:.300} is not a valid address")
    if int(match["port"]) > 0xFFFF:
        raise BadAddress(f"{address}: the port is too high (limit 65535)", "use another port")
    return match["host"].strip("[]"), int(match["port"])


def split_process(address: str) -> tuple[str, int]:
    """Return the host and port of a process. Raise BadAddress if the address has a node name."""
    if name_of(address):
        raise BadAddress(
            f"{address!r} names a node within a process", 'use only the "host:port" part'
        )
    return split(address)


def process_of(node: NodeId) -> NodeId:
    """Return the address of the node's process, which is also the id of its first node."""
    return cast("NodeId", node.partition("/")[0])


def is_name(text: str) -> bool:
    """Return whether `text` is a valid node name."""
    return NAME.fullmatch(text) is not None


def name_of(node: str) -> str:
    """Return the name of the node within its process, or "" for the first node."""
    return node.partition("/")[2]


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    import ipaddress  # imported here because few commands need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, which may resolve to any address
        return False


def network_of(host: str) -> str:
    """Return the network of an address: for IPv6, the first 64 bits, which have one owner."""
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))
