"""Look at the console of a group, of a ring and of a node with 10,000 topics, with screenshots.

The screenshots are written to build/console, in both themes and for two widths.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import oncecast
from tests.browser import browser
from tests.web.console import HOSTILE, Console, console, look, unreachable
from tests.web.test_console import bury, fill
from tools.check_docs import ROOT

pytestmark = pytest.mark.soak

SHOTS = ROOT / "build" / "console"
LOOKS = [(theme, width) for theme in ("light", "dark") for width in (1280, 390)]
PATIENCE = 60.0
PAGES = {
    "overview": ((), {}),
    "topics": (("topics",), {}),
    "messages": (("topics", "orders"), {}),
    "hostile": (("topics", HOSTILE), {}),
    "topic subscriptions": (("topics", "orders"), {"tab": "subscriptions"}),
    "settings": (("topics", "orders"), {"tab": "settings"}),
    "subscriptions": (("subscriptions",), {}),
    "shared": (("topics", "emails", "subscriptions", "sender"), {}),
    "exclusive": (("topics", "orders", "subscriptions", "billing"), {}),
    "cluster": (("cluster",), {}),
    "tail": (("tail",), {"topic": "orders", "from": "earliest"}),
}
RING_PAGES = {
    "ring overview": ((), {}),
    "ring groups": (("cluster",), {}),
    "ring": (("cluster",), {"tab": "ring"}),
    "tree": (("cluster",), {"tab": "tree", "topic": "orders"}),
    "no tree": (("cluster",), {"tab": "tree"}),
    "topic tree": (("topics", "orders"), {"tab": "tree"}),
}


@contextlib.contextmanager
def program(*words: str, expect: str) -> Iterator[str]:
    """Run a command until the end of the block. Yield what it prints about `expect`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "oncecast", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(expect, line):
                yield found[1]
                break
        else:
            raise AssertionError(f"no {expect} in {lines}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


@contextlib.contextmanager
def cluster(path: Path, *flags: str) -> Iterator[tuple[str, str]]:
    """Run three nodes and a web process. Yield the servers and the address of the console."""
    up = ("cluster", "up", "-n", "3", "--data", str(path), *flags)
    web = ("web", "--listen", "127.0.0.1:0", "--server")
    with (
        program(*up, expect=r"ONCECAST_SERVER=(\S+)") as servers,
        program(*web, servers, expect=r"(http://\S+)") as url,
    ):
        yield servers, url


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    with browser() as opened:
        yield opened


def visit(
    tab: Console, pages: dict[str, tuple[tuple[str, ...], dict[str, str]]], look_: str
) -> None:
    """Check each page, and take a screenshot."""
    for name, (parts, query) in pages.items():
        page = tab.open(*parts, **query)
        expect(page.locator(".loading")).to_have_count(0, timeout=PATIENCE * 1000)
        page.screenshot(path=SHOTS / f"{name.replace(' ', '-')}-{look_}.png", full_page=True)
        assert not look(page, "wider"), name
        assert look(page, "contrast") == [], name
        # Messages may still arrive in the tail, so the number of its rows is not known.
        assert name == "tail" or unreachable(page) == [], name
    assert tab.errors == []


async def filled(servers: str) -> None:
    async with oncecast.connect(servers) as client:
        await fill(client)


def in_a_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in a thread, because the browser's event loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result(5 * PATIENCE)


@contextlib.contextmanager
def pushing(servers: str) -> Iterator[None]:
    """Fill the cluster, and read a topic by push until the end of the block."""
    ready, done = threading.Event(), threading.Event()

    async def read() -> None:
        await filled(servers)
        async with oncecast.connect(servers.split(",")[-1]) as client:
            reader = await client.subscribe("orders", "pushed", push=True)
            await client.put("orders", b"{}")
            assert await reader.get(timeout=PATIENCE) is not None
            ready.set()
            await asyncio.to_thread(done.wait, 5 * PATIENCE)

    thread = threading.Thread(target=asyncio.run, args=(read(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield
    finally:
        done.set()
        thread.join(PATIENCE)


def test_console_of_a_group_is_readable_in_all_looks(chromium: Browser, tmp_path: Path) -> None:
    """WEB-2"""
    with cluster(tmp_path / "group") as (servers, url):
        in_a_thread(filled(servers))
        for theme, width in LOOKS:
            with console(chromium, url, theme, width) as tab:
                visit(tab, PAGES, f"{theme}-{width}")
        with console(chromium, url) as tab:
            page = tab.open("cluster", expect=".member")
            expect(page.locator(".member")).to_have_count(3)
            expect(page.locator(".member", has_text="leader")).to_have_count(1)


def test_console_of_a_ring_shows_arcs_topics_and_trees(chromium: Browser, tmp_path: Path) -> None:
    """WEB-2"""

    with (
        cluster(tmp_path / "ring", "--own-group") as (servers, url),
        pushing(servers),
    ):
        for theme, width in LOOKS:
            with console(chromium, url, theme, width) as tab:
                visit(tab, RING_PAGES, f"{theme}-{width}")
        with console(chromium, url) as tab:
            page = tab.open("cluster", tab="ring", expect=".arc")
            expect(page.locator(".arc")).to_have_count(3)
            assert page.locator(".topic-dot").count() >= 3
            last = page.locator(".group-list button").last
            last.click()
            expect(last).to_have_attribute("aria-pressed", "true")
            expect(page.locator(".ring-side h2")).to_have_text(
                last.locator(".group-name").inner_text()
            )
            page = tab.open("subscriptions", expect="tbody tr")
            tab.says("billing")


def test_console_of_a_node_with_10_000_topics_pages_and_searches(
    chromium: Browser, tmp_path: Path
) -> None:
    """WEB-2"""

    async def many(server: str) -> None:
        async with oncecast.connect(server) as client:
            for first in range(0, 10_000, 500):
                names = (f"tenant-{number:05d}" for number in range(first, first + 500))
                await asyncio.gather(*map(client.create_topic, names))
            await bury(client, [b"broken"])

    serve = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    web = ("web", "--listen", "127.0.0.1:0", "--server")
    with (
        program(*serve, expect=r"listening at=(\S+)") as server,
        program(*web, server, expect=r"(http://\S+)") as url,
        console(chromium, url) as tab,
    ):
        in_a_thread(many(server))
        page = tab.open("topics", expect="tbody tr")
        expect(page.locator(".pager")).to_contain_text("1–100 of 10,002", timeout=PATIENCE * 1000)
        for first in ("101", "201", "301"):
            page.get_by_role("button", name="Next").click()
            expect(page.locator(".pager")).to_contain_text(f"{first}–")
        expect(page.locator("tbody tr").first).to_contain_text("tenant-00299")
        page.get_by_label("Search topics").fill("-0999")
        expect(page.locator("tbody tr")).to_have_count(10)
        page.screenshot(path=SHOTS / "ten-thousand-topics.png")
        tab.open(expect=".strip")
        expect(page.locator(".strip div", has_text="Topics").locator("dd")).to_have_text("10,002")
        assert tab.errors == []
