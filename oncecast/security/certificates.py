"""Identities in X.509 certificates that the TLS library has already verified.

A certificate identifies a node or a client by a URI among its alternative names:

    oncecast:node, oncecast:node:HOST    a node; another alternative name is its host
    oncecast:client:NAME                 a client with the principal NAME

The DER (X.690) parser reads only the fields that determine an identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from oncecast.errors import Malformed, Refused
from oncecast.security.principals import is_principal

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

NODE = "oncecast:node"
CLIENT = "oncecast:client:"

SEQUENCE, OCTETS, OBJECT, UTC_TIME, EXTENSIONS = 0x30, 0x04, 0x06, 0x17, 0xA3
VERSION = 0xA0
DNS, URI, ADDRESS = 0x82, 0x86, 0x87  # tags of the kinds of alternative names
ALTERNATIVE_NAMES = bytes.fromhex("551d11")
EXTENDED_KEY_USAGE = bytes.fromhex("551d25")
ANY_USE = bytes.fromhex("551d2500")
SERVER_AUTH = bytes.fromhex("2b06010505070301")
CLIENT_AUTH = bytes.fromhex("2b06010505070302")


class Certificate(NamedTuple):
    begins: int  # seconds since 1970
    ends: int
    hosts: tuple[str, ...] = ()  # DNS names, in lower case
    addresses: tuple[str, ...] = ()  # IP addresses
    uris: tuple[str, ...] = ()
    uses: tuple[bytes, ...] = ()  # extended key usages; empty if any use is allowed

    @property
    def names(self) -> str:
        return ", ".join((*self.hosts, *self.addresses, *self.uris)) or "no name"

    @property
    def is_node(self) -> bool:
        """Return whether the certificate is for a node. It must not also name a client."""
        nodes = [uri for uri in self.uris if uri == NODE or uri.startswith(f"{NODE}:")]
        return bool(nodes) and not any(uri.startswith(CLIENT) for uri in self.uris)

    def is_for(self, host: str) -> bool:
        """Return whether the certificate names this host, and its URI names no other host."""
        host = canonical(host)
        hosts = self.addresses if is_address(host) else self.hosts
        uris = [uri.removeprefix(f"{NODE}:") for uri in self.uris]
        return host in hosts and any(uri == NODE or canonical(uri) == host for uri in uris)

    @property
    def client(self) -> str:
        """Return the principal of a client certificate, or an empty string."""
        names = [uri.removeprefix(CLIENT) for uri in self.uris if uri.startswith("oncecast:")]
        return names[0] if len(names) == 1 and is_principal(names[0]) else ""


def check_node(certificate: Certificate | None, host: str, node: str) -> None:
    """Raise Refused unless the certificate belongs to a node at exactly this host."""
    if certificate is None:
        raise Refused(
            f"{node} has no certificate", "give the node a certificate from the cluster's CA"
        )
    if not certificate.is_node:
        raise Refused(
            f"the certificate of {node} is for {certificate.names}, not for a node",
            f"use a certificate that has URI:{NODE} as a subject alternative name",
        )
    if not certificate.is_for(host):
        raise Refused(
            f"the certificate of {node} is for {certificate.names}, not for {host}",
            f"use a certificate that has {host} as a subject alternative name",
        )
    lacking = [use for use in (SERVER_AUTH, CLIENT_AUTH) if use not in certificate.uses]
    if lacking and certificate.uses and ANY_USE not in certificate.uses:
        raise Refused(
            f"the certificate of {node} does not allow both serverAuth and clientAuth",
            "use a certificate that allows both, or one without an extended key usage",
        )


def address_of(host: str | bytes) -> IPv4Address | IPv6Address:
    """Parse an IP address from text or bytes, or raise ValueError."""
    from ipaddress import ip_address  # imported here because only TLS needs it

    return ip_address(host)


def is_address(host: str) -> bool:
    try:
        address_of(host)
    except ValueError:
        return False
    return True


def canonical(host: str) -> str:
    """Return the canonical spelling of a host.

    An IPv6 address has several spellings, and host names ignore case.
    """
    return str(address_of(host)) if is_address(host) else host.lower()


# DER


def parse(der: bytes) -> Certificate:
    """Return the identity and validity period of a certificate, or raise Malformed."""
    try:
        return _parse(der)
    except (IndexError, ValueError) as error:
        raise Malformed(f"cannot read the certificate: {error}") from None


def _parse(der: bytes) -> Certificate:
    fields = list(_parts(_only(_only(der))))
    if fields[0][0] == VERSION:
        del fields[0]
    # The order is: serial, algorithm, issuer, validity, subject, key, and optional fields.
    begins, ends = (_time(kind, content) for kind, content in _parts(fields[3][1]))
    found: dict[bytes, bytes] = {}
    for kind, content in fields[6:]:
        if kind == EXTENSIONS:
            for _, extension in _parts(_only(content)):
                parts = list(_parts(extension))
                found[parts[0][1]] = parts[-1][1]
    names = list(_parts(_only(found[ALTERNATIVE_NAMES]))) if ALTERNATIVE_NAMES in found else []
    uses = list(_parts(_only(found[EXTENDED_KEY_USAGE]))) if EXTENDED_KEY_USAGE in found else []
    return Certificate(
        begins,
        ends,
        tuple(content.decode("ascii").lower() for kind, content in names if kind == DNS),
        tuple(str(address_of(content)) for kind, content in names if kind == ADDRESS),
        tuple(content.decode("ascii") for kind, content in names if kind == URI),
        tuple(content for _, content in uses),
    )


def _only(data: bytes) -> bytes:
    """Return the content of the first value."""
    for _, content in _parts(data):
        return content
    raise ValueError("a value is missing")


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and content of each value in `data`."""
    at = 0
    while at < len(data):
        kind, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count]), at + count
        if at + size > len(data):
            raise ValueError("a value is truncated")
        yield kind, data[at : at + size]
        at += size


def _time(kind: int, content: bytes) -> int:
    """Return a time in seconds since 1970. Two-digit years lie between 1950 and 2049."""
    from calendar import timegm

    text = content.decode("ascii")
    if kind == UTC_TIME:
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    if len(text) != 15 or not text.endswith("Z"):
        raise ValueError(f"{text!r} is not a time")
    year, rest = int(text[:4]), text[4:14]
    month, day, hour, minute, second = (int(rest[i : i + 2]) for i in range(0, 10, 2))
    return timegm((year, month, day, hour, minute, second))
