"""HTTP pages require a token or TLS on any address other than loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from oncecast.cli import main
from oncecast.errors import BadSetting, NotAllowed, TlsUnusable
from oncecast.node.config import Settings
from oncecast.node.http_access import HttpAccess, bearer
from oncecast.node.server import Server
from tests.client.serving import run

TOKEN = "correct-horse-battery"
WORLD = "0.0.0.0:0"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return TLS settings with certificates made by `oncecast cert`."""
    monkeypatch.chdir(tmp_path)
    for words in (["init"], ["node", "127.0.0.1"], ["client", "probe"]):
        assert main.main(["cert", *words]) == 0
    node = str(tmp_path / "certs" / "node-127.0.0.1")
    ca = str(tmp_path / "certs" / "ca.pem")
    return {"tls_certificate": f"{node}.pem", "tls_key": f"{node}.key", "tls_ca": ca}


def rewrite(file: Path, text: str) -> None:
    file.write_text(text)


async def visit(server: Server, path: str, token: str = "", **how: Any) -> tuple[int, str]:
    """Return the status and the body of a page."""
    scheme = "https" if "context" in how else "http"
    asked = urllib.request.Request(f"{scheme}://127.0.0.1:{server.http_port}{path}")
    if token:
        asked.add_header("Authorization", f"Bearer {token}")

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(asked, timeout=20, **how) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


@pytest.mark.parametrize("insecure", [False, True])
def test_pages_are_closed_to_other_machines_without_a_token_or_tls(insecure: bool) -> None:
    """SEC-2"""
    with pytest.raises(NotAllowed, match="without a token or TLS"):
        HttpAccess(Settings(http=WORLD, insecure=insecure))
    HttpAccess(Settings(http="127.0.0.1:0"))
    HttpAccess(Settings(http="", insecure=insecure))


def test_pages_need_the_token_on_every_address(tmp_path: Path, token_file: Path) -> None:
    """SEC-2"""

    async def scenario(http: str) -> None:
        settings = Settings(
            data=str(tmp_path / http),
            listen="127.0.0.1:0",
            http=http,
            http_token_file=str(token_file),
        )
        async with Server(settings) as server:
            for path in ("/health", "/metrics", "/live", "/other"):
                assert (await visit(server, path))[0] == 401
                assert (await visit(server, path, TOKEN[:-1]))[0] == 401
            assert (await visit(server, "/live", TOKEN))[0] == 200
            assert (await visit(server, "/other", TOKEN))[0] == 404

    for http in (WORLD, "127.0.0.1:0"):
        run(scenario(http))


def test_pages_on_other_addresses_use_tls_and_need_a_certificate(
    tmp_path: Path, certificates: dict[str, Any]
) -> None:
    """SEC-2"""
    stranger = ssl.create_default_context(cafile=certificates["tls_ca"])
    probe = ssl.create_default_context(cafile=certificates["tls_ca"])
    probe.load_cert_chain("certs/client-probe.pem", "certs/client-probe.key")

    async def scenario() -> None:
        settings = Settings(
            data=str(tmp_path / "data"), listen="127.0.0.1:0", http=WORLD, **certificates
        )
        async with Server(settings) as server:
            status, body = await visit(server, "/live", context=probe)
            assert (status, json.loads(body)["status"]) == (200, "live")
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                await visit(server, "/live", context=stranger)
            with pytest.raises((urllib.error.URLError, ConnectionError)):
                await visit(server, "/live")

    run(scenario())


def test_http_client_can_use_a_token_instead_of_a_certificate(
    tmp_path: Path, certificates: dict[str, Any], token_file: Path
) -> None:
    """SEC-2"""
    stranger = ssl.create_default_context(cafile=certificates["tls_ca"])

    async def scenario() -> None:
        settings = Settings(
            data=str(tmp_path / "data"),
            listen="127.0.0.1:0",
            http=WORLD,
            http_token_file=str(token_file),
            **certificates,
        )
        async with Server(settings) as server:
            assert (await visit(server, "/live", context=stranger))[0] == 401
            assert (await visit(server, "/live", TOKEN, context=stranger))[0] == 200

    run(scenario())


def test_signal_reloads_the_token(tmp_path: Path, token_file: Path) -> None:
    """SEC-4"""

    async def scenario() -> None:
        settings = Settings(
            data=str(tmp_path / "data"),
            listen="127.0.0.1:0",
            http="127.0.0.1:0",
            http_token_file=str(token_file),
        )
        started = asyncio.Event()

        class Started(Server):
            def settle(self) -> None:
                super().settle()
                started.set()

        server = Started(settings)
        running = asyncio.create_task(server.run())
        await started.wait()
        newer = TOKEN[::-1]
        rewrite(token_file, newer)
        signal.raise_signal(signal.SIGHUP)
        assert (await visit(server, "/live", newer))[0] == 200
        assert (await visit(server, "/live", TOKEN))[0] == 401
        rewrite(token_file, "short")
        signal.raise_signal(signal.SIGHUP)
        assert (await visit(server, "/live", newer))[0] == 200
        server.runtime.ask_to_stop()
        await running

    run(scenario())


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "0 characters (minimum 16); use a longer token"),
        ("short", "5 characters (minimum 16); use a longer token"),
        ("ä" * 20, "not one line of printable ASCII characters; use a token"),
        ("two lines of\nmany characters", "not one line of printable ASCII characters"),
    ],
)
def test_unusable_token_is_refused(content: str, fault: str, token_file: Path) -> None:
    token_file.write_text(content)
    with pytest.raises(BadSetting, match=re.escape(fault)):
        HttpAccess(Settings(http=WORLD, http_token_file=str(token_file)))
    with pytest.raises(BadSetting, match="No such file"):
        HttpAccess(Settings(http=WORLD, http_token_file=str(token_file.with_name("none"))))


def test_token_file_readable_by_other_users_is_used_with_a_warning(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-4"""
    caplog.set_level(logging.WARNING, "oncecast")
    settings = Settings(http=WORLD, http_token_file=str(token_file))
    HttpAccess(settings)
    assert caplog.messages == []
    token_file.chmod(0o644)
    HttpAccess(settings)
    assert caplog.messages[0].startswith("token_exposed")


def test_missing_tls_key_is_refused(certificates: dict[str, Any]) -> None:
    Path(certificates["tls_key"]).unlink()
    with pytest.raises(TlsUnusable):
        HttpAccess(Settings(http=WORLD, **certificates))


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Authorization: Bearer abc", b"abc"),
        (b"AUTHORIZATION:bearer abc ", b"abc"),
        (b"Authorization: Basic abc", b""),
        (b"Authorization: abc", b""),
        (b"X-Authorization: Bearer abc", b""),
        (b"", b""),
    ],
)
def test_bearer_token_is_read_from_a_request(header: bytes, token: bytes) -> None:
    assert bearer(b"GET / HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n") == token
