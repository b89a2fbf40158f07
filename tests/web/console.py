"""Open the console in Chromium, on a node and an HTTP interface in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from playwright.sync_api import Browser, BrowserContext, Page

import oncecast
from oncecast.web import Application, application
from oncecast.web.server import Listener
from tests.browser import PATIENCE
from tests.client.serving import serving

T = TypeVar("T")

# This name contains markup, quotes, a slash and a character that reverses the text after it.
HOSTILE = '<img src=x onerror="document.title=1">/\u202egpj.exe'
ALONE = "x<b>&amp;"  # a subscription
LOOKS = [("light", 1280), ("dark", 390)]
CHECKS = Path(__file__).with_name("looks.js").read_text().strip().removesuffix(";")


class Site:
    """A node with its HTTP interface and console, on an event loop in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._path = path
        self._stack: AbstractAsyncContextManager[None] = self._served()
        self.url = ""
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(entered(self._stack))
        return self

    def __exit__(self, *error: object) -> None:
        self.run(left(self._stack))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        async with serving(self._path) as self.address:
            app: Application = application(self.address, console=True)
            async with (
                Listener(app, "127.0.0.1", 0) as listener,
                oncecast.connect(self.address) as self.client,
            ):
                self.url = listener.address
                yield
            await app.close()


async def entered(stack: AbstractAsyncContextManager[None]) -> None:
    await stack.__aenter__()


async def left(stack: AbstractAsyncContextManager[None]) -> None:
    await stack.__aexit__(None, None, None)


class Console:
    """A tab with the console. It collects all errors that the browser reports."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE * 500)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text} {message.location}")

    def open(self, *parts: str, expect: str = "main h1", **query: str) -> Page:
        """Open a page of the console, and wait until it shows the element `expect`."""
        where = "/".join(quote(each, safe="") for each in parts)
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        self.page.goto(f"{self.url}/#/{where}" + (f"?{asked}" if asked else ""))
        self.page.wait_for_selector(expect)
        return self.page

    def module(self, name: str, script: str) -> Any:
        """Run a function of the test with a module of the console as its argument."""
        return self.page.evaluate(f'async () => ({script})(await import("/{name}"))')

    def says(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.page.get_by_text(text).first.wait_for()


@contextmanager
def console(
    opened: Browser, url: str, theme: str = "light", width: int = 1280
) -> Iterator[Console]:
    context: BrowserContext = opened.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=theme,
        reduced_motion="reduce",
    )
    try:
        yield Console(context.new_page(), url)
    finally:
        context.close()


def look(page: Page, check: str) -> Any:
    """Run one of the checks in looks.js."""
    return page.evaluate(f"() => ({CHECKS}).{check}()")


def unreachable(page: Page) -> list[str]:
    """Return the elements that Tab does not reach, or that do not show the focus."""
    # Tab may start in the middle of the page, so go around it once more.
    for _ in range(2 * int(look(page, "targets")) + 4):
        page.keyboard.press("Tab")
        if look(page, "reached") == 0:
            break
    return list(look(page, "left"))
