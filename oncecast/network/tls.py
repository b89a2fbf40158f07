"""Mutual TLS 1.3: both sides need a certificate of the same authority."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike
from typing import Any

from oncecast.errors import Refused, TlsUnusable
from oncecast.network.addresses import canonical


@dataclass(frozen=True)
class Tls:
    """The TLS contexts for accepted and for dialled connections."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    def __post_init__(self) -> None:
        for name, context in (("server", self.server), ("client", self.client)):
            if context.verify_mode != ssl.CERT_REQUIRED:
                raise TlsUnusable(
                    f"the {name} context accepts peers without a certificate",
                    "set its verify_mode to ssl.CERT_REQUIRED",
                )
            if context.minimum_version < ssl.TLSVersion.TLSv1_3:
                raise TlsUnusable(
                    f"the {name} context accepts versions before TLS 1.3",
                    "set its minimum_version to ssl.TLSVersion.TLSv1_3",
                )

    @classmethod
    def from_files(
        cls, *, certificate: str | PathLike[str], key: str | PathLike[str], ca: str | PathLike[str]
    ) -> Tls:
        """Load PEM files: the certificate with its chain, its key, and the authority of peers."""
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
                    f"cannot load certificate {certificate}, key {key} or CA {ca}: {error}",
                    "use existing PEM files that belong together",
                ) from error
        return cls(*contexts)


def check_certificate(certificate: dict[str, Any] | None, host: str, sender: str) -> None:
    """Raise Refused unless the dialler's certificate names exactly the host of its address."""
    names = [name for _, name in (certificate or {}).get("subjectAltName", ())]
    if canonical(host) not in map(canonical, names):
        raise Refused(
            f"certificate of {sender} is for {', '.join(names) or 'no host'}",
            f"use a certificate that has {host} as a subject alternative name",
        )
