"""Create a certificate authority (CA) and certificates for nodes and clients.

The functions are pure: they read no files and no clock. All keys are ECDSA on P-256. A node
certificate contains the node's hosts and the URI `oncecast:node`. A client certificate contains the
URI `oncecast:client:NAME` and cannot be used by a server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from oncecast.errors import InvalidArgument

NODE = "oncecast:node"
CLIENT = "oncecast:client:"
DAYS = 825  # lifetime of a certificate, unless its CA expires first
COMMON_NAME_MAX = 64  # characters; the limit of X.509
CLOCK_SKEW = timedelta(minutes=5)  # how far other clocks may be behind
HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


class Made(NamedTuple):
    """A certificate and its private key, both as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A CA that signs certificates."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        """Load a CA certificate and its key from PEM. Raise InvalidArgument if they are invalid."""
        try:
            self.certificate = x509.load_pem_x509_certificate(certificate)
            self._key = serialization.load_pem_private_key(key, None)
            constraints = self.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except (ValueError, TypeError, x509.ExtensionNotFound) as error:
            raise InvalidArgument(
                f"the CA cannot be read: {error}", "use the files that `oncecast cert init` wrote"
            ) from error
        if not constraints.value.ca or not isinstance(self._key, ec.EllipticCurvePrivateKey):
            raise InvalidArgument(
                "the certificate is not a CA certificate",
                "use the files that `oncecast cert init` wrote",
            )
        if self._key.public_key() != self.certificate.public_key():
            raise InvalidArgument(
                "the key does not match the CA certificate",
                "use both files from the same `oncecast cert init`",
            )

    def node(self, hosts: Sequence[str], days: int | None, now: datetime) -> Made:
        names = [named(host) for host in hosts]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        alternatives = [*names, x509.UniformResourceIdentifier(NODE)]
        return self._make(hosts[0], alternatives, uses, days, now)

    def client(self, name: str, days: int | None, now: datetime) -> Made:
        if not CLIENT_NAME.fullmatch(name):
            raise InvalidArgument(
                f"{name!r} is not a valid certificate name",
                "use 1 to 128 letters, digits and ._@-, starting with a letter or digit",
            )
        alternatives = [x509.UniformResourceIdentifier(f"{CLIENT}{name}")]
        return self._make(name, alternatives, [ExtendedKeyUsageOID.CLIENT_AUTH], days, now)

    def _make(
        self,
        name: str,
        alternatives: Sequence[x509.GeneralName],
        uses: Sequence[x509.ObjectIdentifier],
        days: int | None,
        now: datetime,
    ) -> Made:
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            blank(name, key, now, self._end(days, now))
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage(sign=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(authority, critical=False)
        )
        return pem(builder.sign(self._key, hashes.SHA256()), key)

    def _end(self, days: int | None, now: datetime) -> datetime:
        """Return when a certificate expires: after `days`, but no later than the CA.

        Raise InvalidArgument if the CA has expired or expires before that.
        """
        last = self.certificate.not_valid_after_utc
        if last <= now:
            raise InvalidArgument(f"the CA expired on {last:%Y-%m-%d}", "create a new CA")
        if days is None:
            return min(after(DAYS, now), last)
        if after(days, now) - last >= timedelta(days=1):  # ignore a fraction of a day
            raise InvalidArgument(
                f"the certificate would be valid for {days} days, but its CA only for "
                f"{(last - now).days}",
                "use fewer days, or create a new CA",
            )
        return min(after(days, now), last)


def make_authority(name: str, days: int, now: datetime) -> Made:
    """Create a CA that can sign certificates and revocation lists, but not other CAs."""
    if not 1 <= len(name) <= COMMON_NAME_MAX:
        raise InvalidArgument(
            f"the CA name is {len(name)} characters long (limit {COMMON_NAME_MAX})",
            f"use 1 to {COMMON_NAME_MAX} characters",
        )
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        blank(name, key, now, after(days, now))
        .issuer_name(common_name(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(sign=False), critical=True)
    )
    return pem(builder.sign(key, hashes.SHA256()), key)


def named(host: str) -> x509.GeneralName:
    """Return the subject alternative name for a host: an IP address or a DNS name.

    Raise InvalidArgument if it is neither.
    """
    try:
        return x509.IPAddress(ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    if len(host) > 253 or not HOST.fullmatch(host):
        remedy = "omit the port" if ":" in host else "use a DNS name or an IP address"
        raise InvalidArgument(f"{host!r} is not a valid host", remedy)
    return x509.DNSName(host)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME_MAX])])


def after(days: int, now: datetime) -> datetime:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        raise InvalidArgument(f"{days} days is too long", "use fewer days") from None


def blank(
    name: str, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    """Return a certificate builder with a subject, key, serial number and validity period."""
    return (
        x509.CertificateBuilder()
        .subject_name(common_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def usage(*, sign: bool) -> x509.KeyUsage:
    """Return the key usage for a node or client (`sign`), or for a CA."""
    return x509.KeyUsage(
        digital_signature=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not sign,
        crl_sign=not sign,
        encipher_only=False,
        decipher_only=False,
    )


def pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Made:
    return Made(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class Facts(NamedTuple):
    """The certificate properties that `oncecast cert show` prints."""

    kind: str  # ca, node, client or other
    name: str  # client name, or common name of the subject
    hosts: tuple[str, ...]
    issuer: str
    begins: datetime
    ends: datetime
    fingerprint: str  # SHA-256
    signed_by_ca: bool | None  # None if no CA was given


def facts_of(certificate: bytes, authority: bytes | None = None) -> Facts:
    """Return the properties of a PEM certificate. Raise InvalidArgument if it is not valid PEM."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        by = x509.load_pem_x509_certificate(authority) if authority else None
        names = alternatives_of(found)
    except ValueError as error:
        raise InvalidArgument("not a PEM certificate", "use another file") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    kind, name = kind_of(found, uris)
    hosts = [] if names is None else names.get_values_for_type(x509.DNSName)
    if names is not None:
        hosts += map(str, names.get_values_for_type(x509.IPAddress))
    return Facts(
        kind=kind,
        name=name,
        hosts=tuple(hosts),
        issuer=named_in(found.issuer),
        begins=found.not_valid_before_utc,
        ends=found.not_valid_after_utc,
        fingerprint=found.fingerprint(hashes.SHA256()).hex(),
        signed_by_ca=None if by is None else is_signed(found, by),
    )


def alternatives_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return found.value


def kind_of(certificate: x509.Certificate, uris: Sequence[str]) -> tuple[str, str]:
    """Return the kind of certificate and its owner's name."""
    if any(uri == NODE or uri.startswith(f"{NODE}:") for uri in uris):
        return "node", named_in(certificate.subject)
    clients = [uri.removeprefix(CLIENT) for uri in uris if uri.startswith(CLIENT)]
    if clients:
        return "client", clients[0]
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return "other", named_in(certificate.subject)
    return ("ca" if found.value.ca else "other"), named_in(certificate.subject)


def named_in(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def is_signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
