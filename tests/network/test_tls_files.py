"""TLS files are checked at startup, and a client certificate gives the principal."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oncecast.errors import NotAuthenticated, TlsUnusable
from oncecast.kernel.protocol import NodeId, Value
from oncecast.network.gate import Dialler, Gate
from oncecast.network.handshake import CLIENT
from oncecast.network.tls import Tls
from oncecast.network.trust import Trust
from oncecast.security.certificates import Certificate
from tests.network.authority import Authority
from tests.network.raw import hello
from tests.network.talk import drive, listening
from tests.network.users import Users


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_error_names_a_key_that_does_not_match_its_certificate(authority: Authority) -> None:
    """SEC-4"""
    one, other = authority.node(), authority.node()
    with pytest.raises(TlsUnusable, match=f"{other.key} does not match certificate"):
        Tls.from_files(certificate=one.certificate, key=other.key, ca=one.ca)


@pytest.mark.parametrize("missing", ["certificate", "key", "ca"])
def test_error_names_a_missing_tls_file(missing: str, authority: Authority, tmp_path: Path) -> None:
    """SEC-4"""
    node = authority.node()
    files: dict[str, Any] = {"certificate": node.certificate, "key": node.key, "ca": node.ca}
    files[missing] = tmp_path / "nothing.pem"
    with pytest.raises(TlsUnusable) as error:
        Tls.from_files(**files)
    assert error.value.message.endswith(f" {tmp_path / 'nothing.pem'}: No such file or directory")


@pytest.mark.parametrize(("days", "reason"), [(-9, "expired on"), (1, "is not valid before")])
def test_expired_or_future_certificate_is_refused(
    days: int, reason: str, authority: Authority
) -> None:
    """SEC-4"""
    begins = datetime.now(UTC) + timedelta(days=days)
    files = authority.special("oncecast:node", now=begins, days=2)
    with pytest.raises(TlsUnusable, match=f"{files.certificate.name} {reason}"):
        files.tls()


def test_soon_expiring_certificate_triggers_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-4"""
    authority.special("oncecast:node", days=2).tls()
    assert "expires what=" in caplog.text


def test_world_readable_key_triggers_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-4"""
    files = authority.node()
    files.key.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        files.tls()
    assert f"run chmod 600 {files.key}" in caplog.text


def test_incomplete_or_empty_tls_files_are_refused(authority: Authority, tmp_path: Path) -> None:
    files = authority.node()
    with pytest.raises(TlsUnusable, match="certificate or its key is missing"):
        Tls.from_files(certificate=files.certificate, ca=files.ca)
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(TlsUnusable, match=r"empty\.pem"):
        Tls.from_files(ca=empty)
    with pytest.raises(TlsUnusable, match="revocation list"):
        files.tls(crl=empty)


def test_node_needs_a_certificate_to_listen(authority: Authority) -> None:
    async def test() -> None:
        with pytest.raises(TlsUnusable, match="no certificate"):
            async with listening("127.0.0.1:0", tls=Tls.from_files(ca=authority.ca)):
                pass

    drive(test())


# Client identity


async def never(greeting: Value) -> Value:
    raise AssertionError(f"{greeting} was not expected")


def entry(
    trust: Trust, *, certificate: Certificate | None = None, address: str = "10.0.0.9:1"
) -> str:
    """Return the principal of a client that connects from `address` without a login."""
    found: list[str] = []

    async def test() -> None:
        said = hello(NodeId("10.0.0.1:7400"), "", role=CLIENT)
        admission = await Gate(trust).admit(said, Dialler(address, certificate, never))
        found.append(admission.principal)

    drive(test())
    return found[0]


ANN = Certificate(0, 1, uris=("oncecast:client:ann",))
NODE = Certificate(0, 1, uris=("oncecast:node",))
PLAIN = Certificate(0, 1, hosts=("node.example",))


@pytest.mark.parametrize(
    ("certificate", "principal"), [(ANN, "ann"), (NODE, "oncecast:node"), (PLAIN, "")]
)
def test_client_certificate_gives_the_principal(
    certificate: Certificate, principal: str, authority: Authority
) -> None:
    """SEC-2"""
    users = Users(required=False)
    trust = Trust(tls=authority.node().tls(client_certificates=False), logins=users)
    assert entry(trust, certificate=certificate) == principal
    assert [each.how for each in users.attempts] == (["certificate"] if principal else [])


def test_certificate_without_a_principal_does_not_count_as_a_login(authority: Authority) -> None:
    """SEC-2"""
    with pytest.raises(NotAuthenticated, match="requires a login"):
        entry(Trust(tls=authority.node().tls(), logins=Users()), certificate=PLAIN)


def test_only_local_clients_may_skip_the_certificate_before_the_first_user_exists(
    authority: Authority,
) -> None:
    """SEC-2: TLS without client certificates does not authenticate a client."""
    files = authority.node()
    alone = Tls.from_files(certificate=files.certificate, key=files.key)
    with pytest.raises(NotAuthenticated, match="has no users yet"):
        entry(Trust(tls=alone))
    assert entry(Trust(tls=alone), address="127.0.0.1:5") == ""
    assert entry(Trust(tls=alone), address="::1:5") == ""
    assert entry(Trust(tls=alone, insecure=True)) == ""
    assert entry(Trust(), address="10.0.0.9:1") == ""
