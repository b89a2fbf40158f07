"""Test how identities are read from certificates."""

from __future__ import annotations

import ssl
from contextlib import suppress
from ipaddress import ip_address

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from oncecast.errors import Malformed, Refused
from oncecast.security.certificates import Certificate, check_node, parse
from tests.network.authority import CLIENT, SERVER, Authority, Files

LOOPBACK = x509.IPAddress(ip_address("127.0.0.1"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def read(files: Files) -> Certificate:
    return parse(ssl.PEM_cert_to_DER_cert(files.certificate.read_text()))


def test_parsed_certificate_agrees_with_the_cryptography_library(authority: Authority) -> None:
    files = authority.node("127.0.0.1", "::1", "Node.Example")
    theirs = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    ours = read(files)
    assert ours.begins == theirs.not_valid_before_utc.timestamp()
    assert ours.ends == theirs.not_valid_after_utc.timestamp()
    assert ours.addresses == ("127.0.0.1", "::1")
    assert ours.hosts == ("node.example",)
    assert ours.uris == ("oncecast:node",)
    assert len(ours.uses) == 2
    assert ours.is_node


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "NODE.example"])
def test_node_certificate_passes_with_any_spelling_of_its_hosts(
    authority: Authority, host: str
) -> None:
    """SEC-1"""
    check_node(read(authority.node("127.0.0.1", "::1", "Node.Example")), host, "node")


@pytest.mark.parametrize(
    ("names", "uses", "reason"),
    [
        ([LOOPBACK], [SERVER, CLIENT], "not for a node"),
        ([LOOPBACK, "oncecast:client:ann"], [SERVER, CLIENT], "not for a node"),
        ([LOOPBACK, "oncecast:nodes"], [SERVER, CLIENT], "not for a node"),
        (
            [LOOPBACK, "oncecast:node", "oncecast:client:ann"],
            [SERVER, CLIENT],
            "not for a node",
        ),
        (["oncecast:node"], [SERVER, CLIENT], "use a certificate that has 127.0.0.1"),
        (["oncecast:node", "127.0.0.1"], [SERVER, CLIENT], "use a certificate that has 127.0.0.1"),
        (
            ["oncecast:node", x509.DNSName("127.0.0.1")],
            [SERVER, CLIENT],
            "use a certificate that has 127.0.0.1",
        ),
        (
            ["oncecast:node", x509.RFC822Name("127.0.0.1")],
            [SERVER, CLIENT],
            "use a certificate that has 127.0.0.1",
        ),
        (
            ["oncecast:node:10.0.0.1", LOOPBACK],
            [SERVER, CLIENT],
            "use a certificate that has 127.0.0.1",
        ),
        (["oncecast:node", LOOPBACK], [CLIENT], "both serverAuth and clientAuth"),
        (["oncecast:node", LOOPBACK], [SERVER], "both serverAuth and clientAuth"),
    ],
)
def test_other_certificates_do_not_identify_a_node(
    authority: Authority,
    names: list[str | x509.GeneralName],
    uses: list[x509.ObjectIdentifier],
    reason: str,
) -> None:
    """SEC-1: an alternative name with the wrong type does not count."""
    with pytest.raises(Refused, match=reason):
        check_node(read(authority.special(*names, uses=uses)), "127.0.0.1", "127.0.0.1:1")


def test_node_without_a_certificate_does_not_pass() -> None:
    """SEC-1"""
    with pytest.raises(Refused, match="has no certificate"):
        check_node(None, "127.0.0.1", "127.0.0.1:1")


def test_node_certificate_may_name_its_host_in_the_uri_and_omit_the_usage() -> None:
    plain = Certificate(0, 1, addresses=("127.0.0.1",), uris=("oncecast:node:127.0.0.1",))
    check_node(plain, "127.0.0.1", "127.0.0.1:1")


def test_client_certificate_gives_the_principal(authority: Authority) -> None:
    """SEC-2"""
    assert read(authority.client("ann")).client == "ann"
    assert read(authority.node()).client == ""


@pytest.mark.parametrize(
    "uris",
    [
        ("oncecast:client:",),
        ("oncecast:client:ann", "oncecast:client:bob"),
        ("oncecast:client:oncecast:node",),
        ("oncecast:client:a\tb",),
        ("https://oncecast:client:ann",),
    ],
)
def test_certificate_without_exactly_one_valid_name_gives_no_principal(
    uris: tuple[str, ...],
) -> None:
    """SEC-2"""
    assert Certificate(0, 1, uris=uris).client == ""


@settings(max_examples=200)
@given(at=st.integers(0, 2000), byte=st.integers(0, 255), cut=st.integers(0, 2000))
def test_damaged_certificate_is_read_or_rejected_as_malformed(
    authority: Authority, at: int, byte: int, cut: int
) -> None:
    der = bytearray(ssl.PEM_cert_to_DER_cert(authority.ca.read_text()))
    der[at % len(der)] = byte
    with suppress(Malformed):
        parse(bytes(der[: cut or None]))
