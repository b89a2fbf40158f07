"""TLS 1.3: the files of a node or client, and the SSL contexts built from them.

| given | a node | a client |
|---|---|---|
| certificate, key and CA | requests certificates signed by the CA | presents its certificate |
| certificate and key | requests no certificates | |
| CA | | verifies the node, but presents no certificate |

Without a CA file, the system's certificate authorities verify the other side.
"""

from __future__ import annotations

import ssl
import stat
import time
from os import PathLike
from pathlib import Path

import msgspec

from oncecast.errors import Malformed, TlsUnusable
from oncecast.network.incidents import line, logger
from oncecast.security.certificates import Certificate, parse

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
DAY = 86_400
RENEW_BEFORE = 14 * DAY


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files. A client needs only the CA. A node needs a certificate and its key."""

    certificate: str | PathLike[str] | None = None  # the certificate with its chain
    key: str | PathLike[str] | None = None
    ca: str | PathLike[str] | None = None
    crl: str | PathLike[str] | None = None  # revoked certificates
    client_certificates: bool = True  # False if clients may connect without a certificate

    def contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """Return the SSL contexts for accepted and dialled connections."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            self._load(context)
        # Clients never resume sessions, and OpenSSL keeps a few kilobytes per ticket.
        server.num_tickets = 0
        if self.ca is not None:
            wanted = self.client_certificates
            server.verify_mode = ssl.CERT_REQUIRED if wanted else ssl.CERT_OPTIONAL
        return server, client

    def _load(self, context: ssl.SSLContext) -> None:
        if (self.certificate is None) != (self.key is None):
            raise TlsUnusable("the certificate or its key is missing", "set both or neither")
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            else:
                context.load_default_certs()
            if self.crl is not None:
                context.load_verify_locations(self.crl)
                context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        except OSError as error:  # includes ssl.SSLError
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> TlsUnusable:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            return TlsUnusable(
                f"key {self.key} does not match certificate {self.certificate}",
                "use a certificate and key that were generated together",
            )
        files = [("certificate", self.certificate), ("key", self.key), ("CA", self.ca)]
        files += [("revocation list", self.crl)]
        given = [(what, file) for what, file in files if file is not None]
        for what, file in given:
            try:
                Path(file).open("rb").close()
            except OSError as unreadable:
                return TlsUnusable(f"{what} {file}: {unreadable.strerror}", "use a readable file")
        named = ", ".join(f"{what} {file}" for what, file in given)
        return TlsUnusable(
            f"cannot load {named}: {error}", "use readable PEM files that belong together"
        )

    def check(self, now: float) -> None:
        """Raise TlsUnusable if a certificate is not valid now. Log a warning before it expires."""
        if self.certificate is not None:  # check the first one; its chain follows
            check_period(
                certificates_in(self.certificate)[0], f"certificate {self.certificate}", now
            )
        if self.ca is not None:  # during a rotation, the file has both the old and the new CA
            newest = max(certificates_in(self.ca), key=lambda each: each.ends)
            check_period(newest, f"CA {self.ca}", now)
        if self.key is not None and Path(self.key).stat().st_mode & stat.S_IROTH:
            facts = {"file": self.key, "remedy": f"run chmod 600 {self.key}"}
            logger.warning(line("key_readable_by_all", facts))

    def stamps(self) -> tuple[tuple[int, int], ...]:
        """Return the modification time and inode of each file, to detect a replaced file."""
        files = (self.certificate, self.key, self.ca, self.crl)
        found = [Path(file).stat() for file in files if file is not None]
        return tuple((each.st_mtime_ns, each.st_ino) for each in found)


class Tls:
    """The SSL contexts for accepted and dialled connections."""

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, files: TlsFiles | None = None
    ) -> None:
        self.server, self.client, self.files = server, client, files
        if client.verify_mode != ssl.CERT_REQUIRED or not client.check_hostname:
            raise TlsUnusable(
                "the client context accepts nodes without a valid certificate",
                "set its check_hostname to True and its verify_mode to ssl.CERT_REQUIRED",
            )
        for name, context in (("server", server), ("client", client)):
            if context.minimum_version < ssl.TLSVersion.TLSv1_3:
                raise TlsUnusable(
                    f"the {name} context accepts versions before TLS 1.3",
                    "set its minimum_version to ssl.TLSVersion.TLSv1_3",
                )

    @classmethod
    def from_files(
        cls,
        *,
        certificate: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        ca: str | PathLike[str] | None = None,
        crl: str | PathLike[str] | None = None,
        client_certificates: bool = True,
    ) -> Tls:
        """Load PEM files: the certificate with its chain, its key, and the CA for both sides.

        Raise TlsUnusable if the files do not belong together or are not valid now.
        """
        files = TlsFiles(
            certificate=certificate,
            key=key,
            ca=ca,
            crl=crl,
            client_certificates=client_certificates,
        )
        contexts = files.contexts()
        files.check(time.time())
        return cls(*contexts, files)

    @property
    def identifies(self) -> bool:
        """Return whether this side requests a certificate from its peers."""
        return self.server.verify_mode != ssl.CERT_NONE

    @property
    def required(self) -> bool:
        """Return whether this side refuses peers without a certificate."""
        return self.server.verify_mode == ssl.CERT_REQUIRED

    @property
    def own(self) -> Certificate | None:
        """Return this process's certificate, or None if it has no files."""
        if self.files is None or self.files.certificate is None:
            return None
        return certificates_in(self.files.certificate)[0]

    def reload(self) -> None:
        """Reload the files for new connections, or raise TlsUnusable."""
        if self.files is not None:
            contexts = self.files.contexts()
            self.files.check(time.time())
            self.server, self.client = contexts


def certificates_in(file: str | PathLike[str]) -> list[Certificate]:
    """Return the certificates in a PEM file."""
    try:
        blocks = [block.partition(END)[0] for block in Path(file).read_text().split(BEGIN)[1:]]
        found = [parse(ssl.PEM_cert_to_DER_cert(f"{BEGIN}{block}{END}")) for block in blocks]
    except (OSError, ValueError, Malformed) as error:
        raise TlsUnusable(f"cannot read {file}: {error}", "use a PEM file") from error
    if not found:
        raise TlsUnusable(f"{file} contains no certificate", "use a PEM file that contains one")
    return found


def check_period(certificate: Certificate, what: str, now: float) -> None:
    begins, ends = certificate.begins, certificate.ends
    if ends <= now:
        raise TlsUnusable(f"{what} expired on {date(ends)}", "renew the certificate")
    if begins > now:
        raise TlsUnusable(
            f"{what} is not valid before {date(begins)}", "correct the clock, or wait"
        )
    if ends - now < RENEW_BEFORE:
        logger.warning(line("expires", {"what": what, "on": date(ends)}))


def date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
