"""Run `oncecast web` and its node as processes, and send HTTP requests to them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.test_serve import PATIENCE, Process

BASE = "/api/v1"


class Web:
    """A process that serves HTTP clients."""

    def __init__(self, node: str, listen: str = "127.0.0.1:0", *flags: str) -> None:
        words = ("-m", "oncecast", "web", "--server", node, "--listen", listen, *flags)
        self.process = subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r"on https?://(\S+)", self.process.stdout.readline())
        assert found is not None, self.process.communicate()
        self.address = found[1]

    def end(self, number: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
        """Send the signal. Return the exit status and standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


class Place:
    """A node and its web process. Both can be killed and restarted."""

    def __init__(self, data: Path, *flags: str) -> None:
        self._data, self._flags = data, flags
        self.node = Process("--data", str(data))
        self.at = f"127.0.0.1:{self.node.port}"
        self.web = Web(self.at, "127.0.0.1:0", *flags)
        self.address = self.web.address

    def restart_web(self) -> None:
        self.web.end()
        self.web = Web(self.at, self.address, *self._flags)

    def restart_node(self) -> None:
        self.kill_node()
        self.node = Process("--data", str(self._data), "--listen", self.at)

    def kill_node(self) -> None:
        if self.node.process.returncode is None:
            self.node.end(signal.SIGKILL)
            assert self.node.process.stderr is not None
            self.node.process.stderr.close()

    def close(self) -> None:
        if self.web.process.poll() is None:
            self.web.end()
        self.kill_node()

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of the answer, or the bytes of another answer."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        given = {"Oncecast-Request": "1", **(headers or {})}
        data = None
        if body is not None:
            given["Content-Type"] = "application/json"
            data = json.dumps(body)
        try:
            connection.request(method, path if path == "/" else BASE + path, data, given)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(content) if is_json else content

    def persist(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        """Repeat a request until it succeeds, as a client without state would."""
        for _ in range(1000):
            try:
                status, found = self.request(method, path, body, headers)
            except (OSError, http.client.HTTPException):
                threading.Event().wait(0.05)  # the process restarts
                continue
            if status == 200:
                return found
            assert status in (503, 504), found
        raise AssertionError(f"{method} {path} did not succeed")


@contextmanager
def placed(data: Path, *flags: str) -> Iterator[Place]:
    place = Place(data, *flags)
    try:
        yield place
    finally:
        place.close()


class Follower(threading.Thread):
    """Follows a topic like a browser: it reconnects with the id of the last event."""

    def __init__(self, place: Place, topic: str) -> None:
        super().__init__(daemon=True)
        self._place, self._path = place, f"{BASE}/topics/{topic}/tail?from=0"
        self.last: str | None = None
        self.texts: list[str] = []
        self.problems: list[str] = []
        self.connections = 0
        self.ended = False
        self._progress = threading.Condition()

    def run(self) -> None:
        while not self.ended:
            try:
                self._follow()
            except (OSError, http.client.HTTPException):
                threading.Event().wait(0.05)  # the process restarts

    def _follow(self) -> None:
        connection = http.client.HTTPConnection(self._place.address, timeout=PATIENCE)
        headers = {} if self.last is None else {"Last-Event-ID": self.last}
        try:
            connection.request("GET", self._path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                return
            self.connections += 1
            fields: dict[str, str] = {}
            while (line := response.readline()) and not self.ended:
                if line != b"\n":
                    name, _, value = line.decode().rstrip("\n").partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                self._heard(fields)
                fields = {}
        finally:
            connection.close()

    def _heard(self, fields: dict[str, str]) -> None:
        if "event" in fields:
            self.problems.append(str(fields))
        elif "id" in fields:
            with self._progress:
                self.last = fields["id"]
                self.texts.append(json.loads(fields["data"])["text"])
                self._progress.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until this many messages have arrived."""
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.texts) >= count, 3 * PATIENCE), (
                f"{len(self.texts)} of {count} messages arrived: {self.problems}"
            )
