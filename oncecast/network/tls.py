"""Mutual TLS 1.3: both sides show a certificate of the same authority, or nothing is said."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike
from typing import Any

from oncecast.kernel.errors import Refused, TlsUnusable
from oncecast.network.addresses import canonical


@dataclass(frozen=True)
class Tls:
    """One context a direction. A node is server and client at once, with the same certificate."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __post_init__(self) -> None:
        for name, context in (("server", self.server), ("client", self.client)):
            if context.verify_mode != ssl.CERT_REQUIRED:
                raise TlsUnusable(
                    f"the {name} context takes peers without a certificate: set its verify_mode to "
                    "ssl.CERT_REQUIRED"
                )
            if context.minimum_version < ssl.TLSVersion.TLSv1_3:
                raise TlsUnusable(
                    f"the {name} context takes versions before TLS 1.3: set its minimum_version to "
                    "ssl.TLSVersion.TLSv1_3"
                )

    @classmethod
    def from_files(
        cls, *, certificate: str | PathLike[str], key: str | PathLike[str], ca: str | PathLike[str]
    ) -> Tls:
        """PEM files: this node's certificate (with its chain), its key, the peers' authority."""
        contexts = [
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        ]
        for context in contexts:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_cert_chain(certificate, key)
                context.load_verify_locations(ca)
            except OSError as error:  # ssl.SSLError is one too
                raise TlsUnusable(
                    f"certificate {certificate}, key {key} or CA {ca}: {error}; give PEM files "
                    "that exist and belong together"
                ) from error
        return cls(*contexts)


def check_certificate(certificate: dict[str, Any] | None, host: str, sender: str) -> None:
    """The dialler's certificate must be for the host it says it is at; names must match exactly."""
    names = [name for _, name in (certificate or {}).get("subjectAltName", ())]
    if canonical(host) not in map(canonical, names):
        raise Refused(
            f"{sender} shows a certificate for {', '.join(names) or 'nobody'}: give it one with "
            f"{host} among its alternative names"
        )
