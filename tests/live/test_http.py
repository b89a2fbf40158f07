"""Use `oncecast web` as HTTP clients do, while processes are killed (WEB-1)."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncecast.cli.main import main
from oncecast.errors import ExitStatus
from tests.live.test_serve import PATIENCE
from tests.live.web_process import Follower, Place, placed

pytestmark = pytest.mark.long

EACH = 40  # messages between two kills


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with placed(tmp_path_factory.mktemp("web") / "data") as place:
        yield place


class Putter(threading.Thread):
    """Puts numbered messages, and repeats each request until it is answered."""

    def __init__(self, place: Place, topic: str, count: int) -> None:
        super().__init__(daemon=True)
        self._place, self._path, self._count = place, f"/topics/{topic}/messages", count
        self.answers: list[int] = []
        self.repeated = 0

    def run(self) -> None:
        for number in range(self._count):
            headers = {"Oncecast-Producer": "till", "Oncecast-Sequence": str(number)}
            body = {"messages": [{"text": str(number)}]}
            found = self._place.persist("POST", self._path, body, headers)
            self.answers.append(found["offset"])
            self.repeated += not found["stored"]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_tail_and_puts_are_exactly_once_through_kill_9(tmp_path: Path, kills: int) -> None:
    """WEB-1: kill the node and the web process in turn, while one client puts and one follows."""
    with placed(tmp_path / "data") as place:
        assert place.request("PUT", "/topics/t", {"keep_all": True})[0] == 201
        count = EACH * (kills + 1)
        putter, follower = Putter(place, "t", count), Follower(place, "t")
        putter.start()
        follower.start()
        for number in range(kills):
            follower.wait_for(EACH * (number + 1))
            (place.restart_node if number % 2 == 0 else place.restart_web)()
        putter.join(4 * PATIENCE)
        follower.wait_for(count)
        follower.ended = True
        assert putter.answers == list(range(count))
        assert follower.texts == [str(number) for number in range(count)]
        assert follower.problems == []
        assert follower.connections > kills // 2
        found = place.request("GET", "/topics/t")[1]
        assert (found["first"], found["end"]) == (0, count)


def test_subscription_is_read_in_order_through_kill_9(tmp_path: Path) -> None:
    """WEB-1: a reader that skips the offsets it has handled sees each message once."""
    with placed(tmp_path / "data") as place:
        path, count = "/topics/t/subscriptions/s", 100
        assert place.request("PUT", path, {"start": "earliest"})[0] == 201
        body = {"messages": [{"text": str(number)} for number in range(count)]}
        assert place.request("POST", "/topics/t/messages", body)[0] == 200
        handled: list[str] = []
        while len(handled) < count:
            got = place.persist("POST", path + "/get?limit=7&wait=5", None, {})
            new = [each for each in got["messages"] if each["offset"] >= len(handled)]
            handled += [each["text"] for each in new]
            if len(handled) in (28, 56):
                (place.restart_web if len(handled) == 28 else place.restart_node)()
                got = place.persist("POST", path + "/get?limit=7&wait=5", None, {})
            ack = {"offset": len(handled) - 1, "epoch": got["epoch"]}
            assert place.persist("POST", path + "/ack", ack, {}) == {"cursor": len(handled)}
        assert handled == [str(number) for number in range(count)]
        assert place.request("GET", path)[1]["lag"] == 0


def test_sigterm_ends_the_process_and_its_tails_cleanly(tmp_path: Path) -> None:
    """WEB-1"""
    with placed(tmp_path / "data") as place:
        place.request("PUT", "/topics/t", {"keep_all": True})
        place.request("POST", "/topics/t/messages", {"messages": [{"text": "a"}]})
        follower = Follower(place, "t")
        follower.start()
        follower.wait_for(1)
        follower.ended = True
        assert place.web.end(signal.SIGTERM) == (0, "")


def exchanged(place: Place, data: bytes) -> bytes:
    """Send bytes on a connection of their own. Return all bytes until it is closed."""
    host, _, port = place.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


HEAD = b"Host: 127.0.0.1\r\nOncecast-Request: 1\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /api/v1/topics HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET /api/v1/topics HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
        (b"GET /api/v1/topics HTTP/1.0\r\n\r\n", b"421"),
        (b"GET http://127.0.0.1/etc/passwd HTTP/1.1\r\n" + HEAD + b"\r\n", b"404"),
        (b"GET /../../pyproject.toml HTTP/1.1\r\n" + HEAD + b"\r\n", b"404"),
        (b"GET /%2e%2e/app.py HTTP/1.1\r\n" + HEAD + b"\r\n", b"404"),
        (b"GET /..%2fapp.py HTTP/1.1\r\n" + HEAD + b"\r\n", b"404"),
        (b"TRACE / HTTP/1.1\r\n" + HEAD + b"\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
        (b"POST /api/v1/topics/t/messages HTTP/1.1\r\n" + HEAD, b""),
        (
            b"POST /api/v1/topics/t/messages HTTP/1.1\r\n"
            + HEAD
            + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /",
            b"400",
        ),
        (
            b"POST /api/v1/topics/t/messages HTTP/1.1\r\n"
            + HEAD
            + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            b"400",
        ),
        (
            b"POST /api/v1/topics/t/messages HTTP/1.1\r\n"
            + HEAD
            + b"Transfer-Encoding: chunked, identity\r\n\r\n",
            b"400",
        ),
        (
            b"POST /api/v1/topics/t/messages HTTP/1.1\r\n"
            + HEAD
            + b"Content-Length: 99999999999\r\n\r\n",
            b"413",
        ),
    ],
)
def test_hostile_requests_get_an_error_and_a_closed_connection(
    shared: Place, request_: bytes, status: bytes
) -> None:
    """WEB-1"""
    found = exchanged(shared, request_)
    assert found.count(b"HTTP/1.1 ") == bool(status), found
    assert found.split(b" ")[1:2] == ([status] if status else []), found


def test_console_and_document_are_served(shared: Place) -> None:
    """WEB-1"""
    status, document = shared.request("GET", "/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    assert "/topics/{topic}/tail" in document["paths"]
    assert shared.request("GET", "/")[0] in (200, 404)  # 404 until the console has an index


def test_command_refuses_to_serve_other_machines_without_login_and_tls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """WEB-1, SEC-1"""
    for flags in ((), ("--login",), ("--insecure", "--login")):
        assert main(("web", "--listen", "0.0.0.0:0", *flags)) == ExitStatus.NOT_ALLOWED
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "--listen-tls" in captured.err


@pytest.mark.soak
def test_node_that_does_not_answer_gives_a_status(tmp_path: Path) -> None:
    """WEB-1: the web process outlives the node, and says what is wrong."""
    with placed(tmp_path / "data") as place:
        place.request("PUT", "/topics/t", {"keep_all": True})
        place.kill_node()
        status, found = place.request("GET", "/topics/t")
        known = {(503, "no-quorum"), (503, "not-connected"), (504, "timed-out")}
        assert (status, found["code"]) in known, json.dumps(found)
        place.restart_node()
        assert place.persist("GET", "/topics/t", None, {})["name"] == "t"
