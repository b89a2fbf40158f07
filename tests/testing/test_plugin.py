"""Run the pytest plugin in a pytest of its own, as a project that uses oncecast does (KAF-5)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oncecast.testing import Node
from tests.docs.test_examples import examples
from tools.check_docs import ROOT

QUIET = ("-q", "-p", "no:anyio", "-p", "no:cacheprovider", "-p", "no:schemathesis")


@pytest.mark.long
def test_example_of_page_passes_in_another_project(tmp_path: Path) -> None:
    """KAF-5"""
    (tmp_path / "test_orders.py").write_text(examples(ROOT / "docs" / "testing.md"))
    words = (sys.executable, "-m", "pytest", *QUIET, "-W", "error")
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout


def test_each_test_gets_an_empty_node(oncecast: Node) -> None:
    """KAF-5: the first of two tests with the same name for a topic."""
    oncecast.client.put("t", b"first")
    assert oncecast.client.describe("t").next == 1


def test_node_of_an_earlier_test_left_nothing(oncecast: Node) -> None:
    """KAF-5"""
    oncecast.client.put("t", b"second")
    assert oncecast.client.describe("t").next == 1


def test_kafka_address_belongs_to_the_node_of_the_test(oncecast: Node, kafka: str) -> None:
    """KAF-5"""
    assert kafka == oncecast.kafka != oncecast.address


def test_asyncio_client_connects_to_the_node(oncecast: Node) -> None:
    """KAF-5"""

    async def work() -> int:
        async with oncecast.connect() as client:
            await client.put("t", b"x")
            return (await client.describe("t")).next

    assert asyncio.run(work()) == 1


def test_stopped_node_leaves_no_thread_and_no_directory() -> None:
    """KAF-5"""
    before = set(threading.enumerate())
    with Node() as node:
        node.client.put("t", b"x")
        assert node.kafka
        directory = Path(node.directory)
        assert directory.exists()
    assert not directory.exists()
    assert set(threading.enumerate()) <= before
