"""An unreadable batch fails only the reader that gets it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import oncecast
from oncecast import Client, errors
from tests.client.serving import run, serving

LARGE = b"x" * 5000  # smaller batches are not compressed


@asynccontextmanager
async def compressed_and_plain(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Client]]:
    """Yield a client without zstandard.

    The topic `packed` has both a compressed batch and plain messages.
    """
    async with serving(path) as node:
        async with oncecast.connect(node, name="writer", zstd=3) as writer:
            await writer.create_topic("packed", oncecast.Policy(keep_all=True))
            await writer.put("packed", b"before")
            await writer.put("packed", LARGE)
            await writer.put("packed", b"behind")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "zstandard", None)
            async with oncecast.connect(node, name="reader") as reader:
                yield node, reader


def test_client_without_zstandard_fails_only_on_compressed_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7 SVC-10"""

    async def scenario() -> None:
        async with compressed_and_plain(tmp_path, monkeypatch) as (_, client):
            other = await client.subscribe("plain")
            packed = await client.subscribe("packed", start=oncecast.EARLIEST)
            first = await packed.get()
            assert first is not None
            assert first.value == b"before"
            fact = "offsets 1 to 1 of topic 'packed' cannot be read: .*zstandard is not installed"
            with pytest.raises(errors.BadBatch, match=fact) as caught:
                await packed.get()
            assert "seek" in caught.value.remedy
            await client.put("plain", b"goes on")
            message = await other.get()
            assert message is not None
            assert message.value == b"goes on"

            await client.seek("packed", client.name, oncecast.from_offset(2))
            again = await client.read("packed")
            message = await again.get()
            assert message is not None
            assert message.value == b"behind"

    run(scenario())


def test_scan_error_names_the_unreadable_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SVC-7 SVC-10"""

    async def scenario() -> None:
        async with compressed_and_plain(tmp_path, monkeypatch) as (_, client):
            first, packed, last = [each async for each in client.scan("packed")]
            for read in (packed.messages, packed.to_arrow):
                with pytest.raises(errors.BadBatch, match="offsets 1 to 1 of topic 'packed'"):
                    read()
            assert [slice.messages()[0].value for slice in (first, last)] == [b"before", b"behind"]

    run(scenario())
