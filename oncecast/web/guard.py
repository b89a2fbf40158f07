"""Refuse requests that another site may have sent, or that a proxy may read in another way.

A page of another site can make a browser send requests. Its host name may even resolve to this
server's address (DNS rebinding). So the Host header must name this server. If a request changes
something, its Origin must be this server, or missing. It also needs a content type or a header that
a page of another site cannot send without permission.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from oncecast.errors import BadRequest, CrossSite, HeadTooLarge, WrongHost
from oncecast.web.exchange import BYTES, JSON, content_type

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"  # allows every host name
ADDRESSES = "address"  # allows every IP address, which no attacker can rebind
SITES = ("same-origin", "none")
OWN_HEADER = "oncecast-"  # a header with this prefix needs the permission of CORS
HEAD_BYTES_MAX = 16 << 10  # maximum size of all headers
READING = ("GET", "HEAD", "OPTIONS")


class Guard:
    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(each.lower() for each in hosts)

    def check(self, method: str, headers: dict[str, str], scheme: str) -> None:
        """Raise an error if the request must not be served."""
        if sum(len(name) + len(text) for name, text in headers.items()) > HEAD_BYTES_MAX:
            raise HeadTooLarge(HEAD_BYTES_MAX)
        if "transfer-encoding" in headers and "content-length" in headers:
            raise BadRequest("the request has both Transfer-Encoding and Content-Length")
        host = headers.get("host", "")
        self._check_host(host)
        site = headers.get("sec-fetch-site")
        if site is not None and site not in SITES and not self._navigates(method, headers):
            raise CrossSite(f"the request comes from another site (Sec-Fetch-Site: {site:.40})")
        if method not in READING:
            self._check_write(host, headers, scheme)

    def _navigates(self, method: str, headers: dict[str, str]) -> bool:
        """Return whether a user has followed a link to this server."""
        return method == "GET" and headers.get("sec-fetch-mode") == "navigate"

    def _check_host(self, host: str) -> None:
        if ANY in self._hosts:
            return
        name = name_of(host)
        if name in self._hosts or (ADDRESSES in self._hosts and is_address(name)):
            return
        raise WrongHost(f"the host {host!r:.100} is not this server")

    def _check_write(self, host: str, headers: dict[str, str], scheme: str) -> None:
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scheme}://{host}".lower():
            raise CrossSite(f"the request comes from the origin {origin!r:.100}")
        deliberate = content_type(headers) in (JSON, BYTES) or any(
            name.startswith(OWN_HEADER) for name in headers
        )
        if not deliberate:
            raise CrossSite


def name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
