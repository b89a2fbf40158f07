"""Test `oncecast cert` by reading its files back with ssl and cryptography."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from oncecast.cli import main
from oncecast.cli.cert.making import Authority, make_authority
from oncecast.errors import ExitStatus, InvalidArgument

E = TypeVar("E", bound=x509.ExtensionType)
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty directory, with the most permissive umask."""
    monkeypatch.chdir(tmp_path)
    before = os.umask(0)
    yield
    os.umask(before)


def cert(*words: str) -> int:
    return main.main(["cert", *words])


def made(*words: str) -> None:
    assert cert(*words) == ExitStatus.OK


def loaded(file: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(file).read_bytes())


def extension(certificate: x509.Certificate, kind: type[E]) -> E:
    return certificate.extensions.get_extension_for_class(kind).value


def mode(file: str) -> int:
    return Path(file).stat().st_mode & 0o777


def test_key_files_are_private_regardless_of_the_umask() -> None:
    """SEC-4"""
    made("init")
    made("node", "localhost")
    made("client", "ann")
    keys = ("certs/ca.key", "certs/node-localhost.key", "certs/client-ann.key")
    assert [mode(key) for key in keys] == [0o600] * 3
    assert mode("certs") == 0o700
    assert mode("certs/ca.pem") == 0o644


def test_ca_certificate_can_only_sign_other_certificates() -> None:
    made("init", "--name", "our CA", "--days", "30")
    ca = loaded("certs/ca.pem")
    assert isinstance(ca.public_key(), ec.EllipticCurvePublicKey)
    assert ca.issuer == ca.subject
    assert extension(ca, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    usage = extension(ca, x509.KeyUsage)
    assert (usage.key_cert_sign, usage.crl_sign, usage.digital_signature) == (True, True, False)
    assert (ca.not_valid_after_utc - datetime.now(UTC)).days in (29, 30)


def test_node_certificate_names_its_hosts_and_its_role() -> None:
    """SEC-1"""
    made("init")
    made("node", "one.example", "10.0.0.1", "::1", "--name", "one")
    node = loaded("certs/node-one.pem")
    names = extension(node, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["one.example"]
    assert [*map(str, names.get_values_for_type(x509.IPAddress))] == ["10.0.0.1", "::1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["oncecast:node"]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    assert [*extension(node, x509.ExtendedKeyUsage)] == both
    assert not extension(node, x509.BasicConstraints).ca
    node.verify_directly_issued_by(loaded("certs/ca.pem"))


def test_client_certificate_names_the_client_and_is_not_valid_for_a_server() -> None:
    """SEC-1 SEC-2"""
    made("init")
    made("client", "ann@example")
    client = loaded("certs/client-ann@example.pem")
    names = extension(client, x509.SubjectAlternativeName)
    assert [*names] == [x509.UniformResourceIdentifier("oncecast:client:ann@example")]
    only = [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert [*extension(client, x509.ExtendedKeyUsage)] == only


def test_certificates_connect_a_client_to_a_node() -> None:
    """SEC-1"""
    made("init")
    made("node", "127.0.0.1")
    made("client", "ann")
    seen = shake_hands(server="node-127.0.0.1", client="client-ann", host="127.0.0.1")
    assert seen["subjectAltName"] == (("URI", "oncecast:client:ann"),)
    seen = shake_hands(server="node-127.0.0.1", client="node-127.0.0.1", host="127.0.0.1")
    assert ("URI", "oncecast:node") in seen["subjectAltName"]


def test_tls_refuses_client_certificates_on_servers_and_wrong_host_names() -> None:
    """SEC-1"""
    made("init")
    made("node", "localhost")
    made("client", "ann")
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(server="client-ann", client="client-ann", host="localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(server="node-localhost", client="client-ann", host="127.0.0.1")


def shake_hands(*, server: str, client: str, host: str) -> dict[str, Any]:
    """Do a TLS handshake in memory, and return the certificate that the server sees."""
    ends = []
    for name, protocol in (
        (server, ssl.PROTOCOL_TLS_SERVER),
        (client, ssl.PROTOCOL_TLS_CLIENT),
    ):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= (
            ssl.VERIFY_X509_STRICT
        )  # newer versions of Python set this flag by default
        context.load_cert_chain(f"certs/{name}.pem", f"certs/{name}.key")
        context.load_verify_locations("certs/ca.pem")
        ends.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = ends[0].wrap_bio(to_server, to_client, server_side=True)
    dialling = ends[1].wrap_bio(to_client, to_server, server_hostname=host)
    waiting = {accepting, dialling}
    while waiting:
        for each in (dialling, accepting):
            try:
                each.do_handshake()
                waiting.discard(each)
            except ssl.SSLWantReadError:
                pass
    seen = accepting.getpeercert()
    assert seen is not None
    return dict(seen)


@pytest.mark.parametrize("taken", ["certs/ca.key", "certs/ca.pem"])
def test_existing_file_is_never_overwritten(taken: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("certs").mkdir()
    Path(taken).write_text("precious")
    assert cert("init") == ExitStatus.USAGE
    assert f"{taken}: File exists; move it aside" in capsys.readouterr().err
    assert [each.name for each in Path("certs").iterdir()] == [Path(taken).name]
    assert Path(taken).read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["node", "10.0.0.1:7400"],
            "'10.0.0.1:7400' is not a valid host; omit the port",
        ),
        (["node", "bad host"], "'bad host' is not a valid host; use a DNS name or an IP address"),
        (["node", "one", "--name", "../one"], "'../one' is not a valid file name"),
        (["client", "a/b"], "'a/b' is not a valid certificate name"),
        (["client", "ann", "--dir", "none"], "none/ca.pem: No such file or directory; run"),
        (["client", "ann", "--days", "9999"], "valid for 9999 days, but its CA only for"),
        (["client", "ann", "--days", "9" * 12], "days is too long"),
        (["init", "--dir", "x", "--name", "n" * 65], "65 characters long (limit 64)"),
        (["init", "--dir", "certs/ca.pem"], "certs/ca.pem: "),
        (["show", "certs/ca.key"], "certs/ca.key: not a PEM certificate"),
    ],
)
def test_invalid_arguments_are_refused_with_a_remedy(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made("init")
    before = sorted(Path("certs").iterdir())
    assert cert(*words) == ExitStatus.USAGE
    assert complaint in capsys.readouterr().err
    assert sorted(Path("certs").iterdir()) == before


def test_key_from_another_authority_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    made("init")
    made("init", "--dir", "other")
    Path("other/ca.key").replace("certs/ca.key")
    assert cert("client", "ann") == ExitStatus.USAGE
    assert "the key does not match the CA certificate" in capsys.readouterr().err


def test_client_certificate_cannot_sign_other_certificates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made("init")
    made("client", "ann")
    Path("certs/client-ann.pem").replace("certs/ca.pem")
    Path("certs/client-ann.key").replace("certs/ca.key")
    assert cert("client", "bob") == ExitStatus.USAGE
    assert "the certificate is not a CA certificate" in capsys.readouterr().err


def test_certificate_does_not_outlive_its_authority() -> None:
    authority = Authority(*make_authority("ours", 30, NOW))
    for days in (None, 30):
        client = authority.client("ann", days, NOW + timedelta(hours=1)).certificate
        ends = x509.load_pem_x509_certificate(client).not_valid_after_utc
        assert ends == NOW + timedelta(days=30)
    with pytest.raises(InvalidArgument, match="its CA only for 30"):
        authority.client("ann", 31, NOW)
    with pytest.raises(InvalidArgument, match="the CA expired on 2030-03-02"):
        authority.client("ann", None, NOW + timedelta(days=30))


def test_show_prints_kind_name_hosts_and_signer(capsys: pytest.CaptureFixture[str]) -> None:
    made("init")
    made("init", "--dir", "other")
    made("node", "localhost", "10.0.0.1")
    made("client", "ann")
    capsys.readouterr()
    made("show", "certs/node-localhost.pem", "certs/client-ann.pem", "certs/ca.pem", "--json")
    shown = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["kind"], each["name"]) for each in shown] == [
        ("node", "localhost"),
        ("client", "ann"),
        ("ca", "oncecast CA"),
    ]
    assert shown[0]["hosts"] == ["localhost", "10.0.0.1"]
    assert shown[0]["days_left"] in (824, 825)
    made("show", "certs/client-ann.pem", "--ca", "certs/ca.pem")
    assert "signed by this CA" in capsys.readouterr().out
    assert cert("show", "certs/client-ann.pem", "--ca", "other/ca.pem") == ExitStatus.FAILURE
    assert "signed by another CA" in capsys.readouterr().out


def test_show_exits_with_1_if_a_certificate_has_expired(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("old.pem").write_bytes(make_authority("ours", 30, NOW - timedelta(days=9999)).certificate)
    assert cert("show", "old.pem") == ExitStatus.FAILURE
    assert "UTC, expired" in capsys.readouterr().out
    assert cert("show", "none.pem") == ExitStatus.NOT_FOUND


def test_error_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "oncecast.cli.cert.making")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert cert("init") == ExitStatus.FAILURE
    assert 'pip install "oncecast[tls]"' in capsys.readouterr().err
