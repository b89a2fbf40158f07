"""SEC-4: certificates and revocation lists are reloaded without a restart."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import oncecast
from oncecast.errors import NotConnected
from oncecast.network.tls import Tls
from oncecast.node.config import Settings
from oncecast.node.server import Server
from tests.client.serving import run
from tests.network.authority import Authority, Files


class Place:
    """A node's TLS files, which a test can replace."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.files = Files(*(directory / name for name in ("node.pem", "node.key", "ca.pem")))
        self.crl = directory / "crl.pem"

    def put(self, made: Files) -> None:
        for source, target in zip(made, self.files, strict=True):
            shutil.copy(source, target)
            changed(target)

    def settings(self, data: Path, crl: bool = False) -> Settings:
        certificate, key, ca = map(str, self.files)
        return Settings(
            data=str(data),
            listen="127.0.0.1:0",
            tls_certificate=certificate,
            tls_key=key,
            tls_ca=ca,
            tls_crl=str(self.crl) if crl else "",
        )


def changed(file: Path) -> None:
    """Give a file a new modification time."""
    at = file.stat().st_mtime_ns + 1_000_000_000
    os.utime(file, ns=(at, at))


def authority_in(directory: Path) -> Authority:
    directory.mkdir()
    return Authority(directory)


async def connects(address: str, tls: Tls) -> bool:
    try:
        async with oncecast.connect(address, tls=tls, connect_timeout=0.5):
            return True
    except NotConnected:
        return False


@pytest.mark.parametrize("signalled", [True, False])
def test_new_connections_use_a_reloaded_certificate_and_authority(
    signalled: bool, tmp_path: Path
) -> None:
    """SEC-4: a signal or a changed file triggers the reload."""
    old, new = authority_in(tmp_path / "old"), authority_in(tmp_path / "new")

    async def test() -> None:
        place = Place(tmp_path / "place")
        place.put(old.node())
        before, after = old.client("ann").tls(), new.client("ann").tls()
        async with (
            Server(place.settings(tmp_path / "data")) as server,
            oncecast.connect(server.me, tls=before) as open_client,
        ):
            assert not server.reloader.look()
            place.put(new.node())
            if signalled:
                server.reload()
            else:
                assert server.reloader.look()
            assert await connects(server.me, after)
            assert not await connects(server.me, before)
            await open_client.create_topic("still-open")

    run(test())


def test_revoked_client_is_refused_after_a_reload(tmp_path: Path) -> None:
    """SEC-4"""
    authority = authority_in(tmp_path / "authority")

    async def test() -> None:
        place = Place(tmp_path / "place")
        place.put(authority.node())
        shutil.copy(authority.revoke(), place.crl)
        ann, bob = authority.client("ann"), authority.client("bob")
        async with Server(place.settings(tmp_path / "data", crl=True)) as server:
            assert await connects(server.me, ann.tls())
            shutil.copy(authority.revoke(ann), place.crl)
            changed(place.crl)
            assert server.reloader.look()
            assert not await connects(server.me, ann.tls())
            assert await connects(server.me, bob.tls())

    run(test())


def test_unusable_tls_files_leave_the_old_files_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-4: one case is a certificate whose key has not been replaced yet."""
    authority = authority_in(tmp_path / "authority")

    async def test() -> None:
        place = Place(tmp_path / "place")
        place.put(authority.node())
        ann, renewed = authority.client("ann").tls(), authority.node()
        async with Server(place.settings(tmp_path / "data")) as server:
            shutil.copy(renewed.certificate, place.files.certificate)
            changed(place.files.certificate)
            assert not server.reloader.look()
            assert await connects(server.me, ann)
            place.files.key.unlink()
            assert not server.reloader.look()
            shutil.copy(renewed.key, place.files.key)
            assert server.reloader.look()
            assert await connects(server.me, ann)

    run(test())
    assert "tls_kept why=" in caplog.text
    assert "does not match certificate" in caplog.text
