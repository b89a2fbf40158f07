"""A node's id is the address to dial: `host:port`, or `[v6 address]:port`."""

from __future__ import annotations

import ipaddress
import re

from oncecast.runtime.errors import BadAddress

ADDRESS = re.compile(
    r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.%a-z]{2,60}\]):(?P<port>\d{1,5})"
)


def split(address: str) -> tuple[str, int]:
    match = ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 0xFFFF:
        raise BadAddress(f'{address!r} is no address; write "host:port", such as 127.0.0.1:7400')
    return match["host"].strip("[]"), int(match["port"])


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
