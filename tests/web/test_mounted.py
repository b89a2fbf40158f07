"""The application runs inside another one, and leaves its process alone (WEB-1)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import oncecast
from oncecast.web import application
from oncecast.web.server import Listener
from tests.client.serving import run, serving
from tests.web.calling import HOST, Caller

pytestmark = pytest.mark.long


def test_mounted_application_acts_as_the_client_it_is_given(tmp_path: Path) -> None:
    """WEB-1: an Authorization header belongs to the outer application."""

    async def work() -> None:
        async with serving(tmp_path) as node, oncecast.connect(node, name="shop") as client:
            inner = application(client)
            call = Caller(Starlette(routes=[Mount("/own/path", inner)]), node)
            headers = {"host": HOST, "authorization": "Bearer of-the-outer-application"}
            headers |= {"content-type": "application/json"}
            path = "/own/path/api/v1/topics/a%2Fb"
            assert (await call.raw("PUT", path, headers, b'{"keep_all": true}')).status == 201
            assert (await client.describe("a/b")).policy.keep_all
            assert (await call.raw("GET", "/own/path/api/v1/none", headers)).status == 404
            await inner.close()
            assert client.closed is None
            await client.put("a/b", b"the client is still open")

    run(work())


def test_server_leaves_signal_handlers_alone(tmp_path: Path) -> None:
    """WEB-1"""

    async def work() -> None:
        before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        async with (
            serving(tmp_path) as node,
            Listener(application(node), "127.0.0.1", 0) as listener,
        ):
            assert listener.address.startswith("http://127.0.0.1:")
            inside = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
            assert inside == before

    run(work())
