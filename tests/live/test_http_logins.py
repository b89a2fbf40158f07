"""Log in through `oncecast web`, with passwords and tokens, over TLS (WEB-1, SEC-2)."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import oncecast
from oncecast import blocking
from tests.client.serving import run
from tests.live.test_serve import PATIENCE, Process
from tests.live.web_process import BASE, Web
from tests.network.authority import Authority
from tests.web.calling import calling

pytestmark = pytest.mark.long

BOB = "tulip garden"


class Place(NamedTuple):
    node: str
    web: str
    ca: str
    token: str

    def request(
        self, method: str, path: str, authorization: str | None = None, body: Any = None
    ) -> tuple[int, Any, Any]:
        """Return the status, the JSON and the headers of an answer."""
        host, _, port = self.web.partition(":")
        context = ssl.create_default_context(cafile=self.ca)
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=PATIENCE)
        headers = {"Oncecast-Request": "1", "Content-Type": "application/json"}
        if authorization is not None:
            headers["Authorization"] = authorization
        data = None if body is None else json.dumps(body)
        connection.request(method, BASE + path, data, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, json.loads(content) if content else None, response.headers


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Start a node with an administrator. The user bob may use topics that begin with `bob`."""
    path: Path = tmp_path_factory.mktemp("logins")
    node = Process("--data", str(path / "data"))
    at = f"127.0.0.1:{node.port}"
    files = Authority(path).node("127.0.0.1", "localhost")
    with blocking.connect(at) as client:
        client.access.add_user("root", "a long password", admin=True)
    with blocking.connect(at, user="root", password="a long password") as client:
        client.access.add_user("bob", BOB)
        client.access.allow("bob", "put", "read", "ack", "manage", topic="bob*")
        token = client.access.create_token("bob")
    tls = ("--login", "--listen-tls", str(files.certificate), str(files.key))
    web = Web(at, "127.0.0.1:0", *tls)
    yield Place(at, web.address, str(files.ca), token)
    web.end()
    node.process.kill()
    node.process.communicate()


def test_request_acts_as_the_user_that_it_logs_in_as(place: Place) -> None:
    """WEB-1, SEC-2: the node applies the rules of the user."""
    for login in (basic("bob", BOB), f"Bearer {place.token}"):
        status, found, _ = place.request("PUT", "/topics/bobs", login, {"keep_all": True})
        assert status in (200, 201), found
        body = {"messages": [{"text": "a"}]}
        assert place.request("POST", "/topics/bobs/messages", login, body)[0] == 200
        status, found, _ = place.request("PUT", "/topics/secret", login, {"keep_all": True})
        assert (status, found["code"]) == (403, "denied")
    listed = place.request("GET", "/topics", basic("bob", BOB))[1]
    assert [each["name"] for each in listed["topics"]] == ["bobs"]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"bob").decode(),
        basic("bob", "wrong"),
        basic("nobody", BOB),
        "Bearer none.such",
        "Digest username=bob",
    ],
)
def test_request_without_a_valid_login_is_refused(place: Place, authorization: str | None) -> None:
    """WEB-1, SEC-2"""
    status, found, headers = place.request("GET", "/topics", authorization)
    assert (status, found["code"]) == (401, "not-authenticated")
    assert headers["WWW-Authenticate"].startswith("Basic ")


def test_revoked_token_ends_its_session(place: Place) -> None:
    """WEB-1, SEC-2"""
    with blocking.connect(place.node, user="root", password="a long password") as client:
        token = client.access.create_token("bob")
        assert place.request("GET", "/topics", f"Bearer {token}")[0] == 200
        client.access.revoke_token(token.partition(".")[0])
    for _ in range(400):  # the node closes the connection of a revoked token within a second
        if place.request("GET", "/topics", f"Bearer {token}")[0] == 401:
            return
    raise AssertionError("the token is still valid")


def test_changed_password_ends_the_session_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WEB-1, SEC-2: a session checks its password again after some time."""
    monkeypatch.setattr("oncecast.web.sessions.CHECK_AFTER", 0.0)

    async def work() -> None:
        async with calling(tmp_path) as call, oncecast.connect(call.node) as client:
            await client.access.add_user("root", "a long password", admin=True)
            old, new = basic("root", "a long password"), basic("root", "another password")
            assert (await call("GET", "/topics", authorization=old)).status == 200
            async with oncecast.connect(call.node, user="root", password="a long password") as root:
                await root.access.add_user("root", "another password")
            assert (await call("GET", "/topics", authorization=old)).status == 401
            assert (await call("GET", "/topics", authorization=new)).status == 200

    run(work())
