"""With TLS, both sides verify certificates."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from oncecast.errors import TlsUnusable
from oncecast.network.tls import Tls
from tests.network.authority import Authority
from tests.network.raw import Raw
from tests.network.talk import LOOPS, Gone, Heard, Keep, Node, Tell, drive, listening
from tests.network.test_shared_process import Secondary

every_loop = pytest.mark.parametrize("loop", LOOPS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    return authority.node().tls()


@every_loop
def test_nodes_with_certificates_from_the_same_authority_can_communicate(
    loop: str, tls: Tls
) -> None:
    async def test() -> None:
        async with Node(tls=tls) as a, Node(tls=tls) as b:
            a.request(Tell(b.me, b"x"))
            await b.event()
            texts = [b"small", bytes(3_000_000), b"last"]
            for text in texts:
                a.request(Tell(b.me, text))
            assert [await b.event() for _ in texts] == [Heard(a.me, text) for text in texts]

    drive(test(), loop)


@every_loop
def test_certificate_is_valid_for_all_nodes_in_its_process(loop: str, tls: Tls) -> None:
    async def test() -> None:
        async with (
            Node(tls=tls) as one,
            Node(tls=tls) as other,
            Secondary(one, "g") as a,
            Secondary(other, "g") as b,
        ):
            a.request(Tell(b.me, b"hi"))
            assert await b.event() == Heard(a.me, b"hi")

    drive(test(), loop)


@every_loop
def test_lost_tls_peer_is_reported_down(loop: str, tls: Tls) -> None:
    async def test() -> None:
        async with Node(tls=tls) as a:
            async with Node(tls=tls) as b:
                a.request(Keep(b.me))
                a.request(Tell(b.me, b"hi"))
                await b.event()
            assert await a.event() == Gone(b.me)

    drive(test(), loop)


@every_loop
@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"\xf0once\r\n\x01", b""])
def test_plain_bytes_close_a_tls_connection(
    words: bytes, loop: str, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Node(tls=tls, handshake_timeout=0.5) as node:
            raw = await Raw.dial(node.port)
            raw.write(words)
            await raw.closed()
            async with Node(tls=tls) as honest:
                honest.request(Tell(node.me, b"hi"))
                assert await node.event() == Heard(honest.me, b"hi")
            assert node.stats.hostile + node.stats.overdue == 1

    drive(test(), loop)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@every_loop
def test_peer_that_leaves_during_the_tls_handshake_does_not_count_as_hostile(
    loop: str, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncecast.network")

    async def test() -> None:
        async with Node(tls=tls) as node:
            raw = await Raw.dial(node.port)
            raw.close()
            async with Node(tls=tls) as honest:
                honest.request(Tell(node.me, b"hi"))
                await node.event()
            assert (node.stats.hostile, node.stats.refused) == (0, 1)

    drive(test(), loop)
    assert "closed during the TLS handshake" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@every_loop
def test_certificate_from_another_authority_is_refused(loop: str, tls: Tls, tmp_path: Path) -> None:
    foreign = Authority(tmp_path).node().tls()

    async def test() -> None:
        async with Node(tls=tls) as a, Node(tls=foreign) as b:
            a.request(Keep(b.me))
            assert await a.event() == Gone(b.me)
            b.request(Keep(a.me))
            assert await b.event() == Gone(a.me)
            assert a.events.empty()

    drive(test(), loop)


def test_nodes_log_the_reason_if_only_one_of_them_uses_tls(
    tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Node() as plain, Node(tls=tls) as guarded:
            for one, other in ((plain, guarded), (guarded, plain)):
                one.request(Keep(other.me))
                assert await one.event() == Gone(other.me)

    drive(test())
    assert "TLS; give this node a certificate" in caplog.text
    assert "TLS handshake failed" in caplog.text


def test_certificate_for_another_host_is_refused(
    authority: Authority, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    """Even with the right authority, a node must not use the id of another host."""
    elsewhere = authority.node("elsewhere.example").tls()

    async def test() -> None:
        async with Node(tls=tls) as a, Node(tls=elsewhere) as b:
            b.request(Keep(a.me))
            assert await b.event() == Gone(a.me)
            assert a.stats.refused == 1

    drive(test())
    assert (
        "elsewhere.example, oncecast:node, not for 127.0.0.1; use a certificate that has 127.0.0.1"
        in caplog.text
    )


def test_error_names_an_invalid_certificate_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("hello")
    with pytest.raises(TlsUnusable, match=r"broken\.pem.*use readable PEM files"):
        Tls.from_files(certificate=broken, key=broken, ca=broken)
    with pytest.raises(TlsUnusable, match=r"missing\.pem"):
        missing = tmp_path / "missing.pem"
        Tls.from_files(certificate=missing, key=missing, ca=missing)


def test_insecure_tls_contexts_are_refused(tls: Tls) -> None:
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname = False
    with pytest.raises(TlsUnusable, match="client context accepts nodes without a valid"):
        Tls(tls.server, unchecked)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(TlsUnusable, match=r"client context accepts versions before TLS 1\.3"):
        Tls(tls.server, old)


def test_node_with_tls_can_listen_on_a_reachable_port(tls: Tls) -> None:
    async def test() -> None:
        async with listening("0.0.0.0:0", tls=tls):
            pass

    drive(test())
