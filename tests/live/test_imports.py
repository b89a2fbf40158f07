"""`oncecast put` and `oncecast get` load only what they need, so that they start quickly."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oncecast import blocking
from tests.live.test_serve import Process

# A package stands for all its modules.
UNUSED = (
    "cryptography",
    "hashlib",
    "hmac",
    "oncecast.broker",
    "oncecast.client.access",
    "oncecast.client.dead_letters",
    "oncecast.client.scanning",
    "oncecast.coordination",
    "oncecast.dht",
    "oncecast.history",
    "oncecast.kafka",
    "oncecast.lab",
    "oncecast.network.gate",
    "oncecast.network.listener",
    "oncecast.network.tls",
    "oncecast.node",
    "oncecast.overlay",
    "oncecast.ring",
    "oncecast.security.access",
    "oncecast.security.certificates",
    "oncecast.security.scram",
    "oncecast.security.secret",
    "oncecast.simulator",
    "oncecast.spark",
    "oncecast.storage",
    "oncecast.streams",
    "oncecast.wire.kafka_records",
    "pyarrow",
    "secrets",
    "shutil",
    "stringprep",
    "zstandard",
)

# `get` looks at the subscription first, so that it does not disconnect a reader.
ONLY_FOR_GET = ("oncecast.client.topics",)


@pytest.fixture(scope="module")
def address(node: Process) -> str:
    """Return the address of a node with one message that `get` can read."""
    address = f"127.0.0.1:{node.port}"
    with blocking.connect(address) as client:
        client.subscribe("topic", "default").close()
        client.put("topic", b"news")
    return address


@pytest.mark.parametrize("words", [("put", "topic", "news"), ("get", "topic")], ids=["put", "get"])
def test_command_loads_no_unused_module(address: str, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "oncecast", *words],
        env={**os.environ, "ONCECAST_SERVER": address},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rpartition("|")[2].strip() for line in lines}
    assert "oncecast.client.client" in loaded
    unused = UNUSED if words[0] == "get" else UNUSED + ONLY_FOR_GET
    assert not {name for name in loaded if belongs(name, unused)}


def belongs(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)
