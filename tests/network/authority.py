"""A certificate authority for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from oncecast.cli.cert import making
from oncecast.network.tls import Tls, TlsFiles

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class Files(NamedTuple):
    certificate: Path
    key: Path
    ca: Path

    def tls(self, **more: Any) -> Tls:
        return Tls.from_files(certificate=self.certificate, key=self.key, ca=self.ca, **more)

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.certificate.read_bytes()).serial_number


class Authority:
    def __init__(self, directory: Path) -> None:
        made = making.make_authority("tests", 10, datetime.now(UTC))
        self.directory, self._numbers = directory, count()
        self._authority = making.Authority(made.certificate, made.key)
        self._key = made.key
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(made.certificate)

    def node(self, *hosts: str) -> Files:
        return self._write(self._authority.node(hosts or ["127.0.0.1"], None, datetime.now(UTC)))

    def client(self, name: str) -> Files:
        return self._write(self._authority.client(name, None, datetime.now(UTC)))

    def special(
        self,
        *names: str | x509.GeneralName,
        uses: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
        now: datetime | None = None,
        days: int = 5,
    ) -> Files:
        """Make a certificate with these alternative names. A string stands for a URI."""
        named = [
            x509.UniformResourceIdentifier(name) if isinstance(name, str) else name
            for name in names
        ]
        begins = now or datetime.now(UTC)
        return self._write(self._authority._make("special", named, uses, days, begins))

    def revoke(self, *files: Files) -> Path:
        """Write a certificate revocation list."""
        key: Any = serialization.load_pem_private_key(self._key, None)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._authority.certificate.subject)
            .last_update(now - timedelta(hours=1))
            .next_update(now + timedelta(days=1))
        )
        for each in files:
            revoked = x509.RevokedCertificateBuilder().serial_number(each.serial)
            builder = builder.add_revoked_certificate(revoked.revocation_date(now).build())
        path = self.directory / f"crl-{next(self._numbers)}.pem"
        signed = builder.sign(key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return path

    def _write(self, made: making.Made) -> Files:
        number = next(self._numbers)
        files = Files(self.directory / f"{number}.pem", self.directory / f"{number}.key", self.ca)
        files.certificate.write_bytes(made.certificate)
        files.key.touch(0o600)
        files.key.write_bytes(made.key)
        return files


def files_of(tls: Tls) -> TlsFiles:
    assert tls.files is not None
    return tls.files
