"""Run the programs in `examples/` as a user would: processes that are killed and drained."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import oncecast
from examples.payments import Accounts
from oncecast import blocking
from tests.live.replicas import until
from tests.live.test_serve import PATIENCE, Process
from tests.network.talk import port_of, reserve

pytestmark = pytest.mark.long


@pytest.fixture
def client(node: Process) -> Iterator[blocking.Client]:
    with blocking.connect(f"127.0.0.1:{node.port}") as client:
        yield client


class Programs:
    """The processes of an example."""

    def __init__(self, directory: Path, **environment: str) -> None:
        root = str(Path(__file__).resolve().parent.parent.parent)
        self._environment = os.environ | {"PYTHONPATH": root} | environment
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", *words]
        process = subprocess.Popen(command, env=self._environment, cwd=self._directory)
        self._started.append(process)
        return process

    def run(self, *words: str) -> None:
        assert self.start(*words).wait(PATIENCE) == 0

    def drain(self) -> list[int]:
        """End the running processes in an orderly way, and return their exit statuses."""
        running = [each for each in self._started if each.poll() is None]
        for each in running:
            each.send_signal(signal.SIGTERM)
        return [each.wait(PATIENCE) for each in running]

    def kill(self) -> None:
        for each in self._started:
            each.kill()
            each.wait(PATIENCE)


@contextmanager
def programs(directory: Path, **environment: str) -> Iterator[Programs]:
    made = Programs(directory, **environment)
    try:
        yield made
    finally:
        made.kill()


def is_working(client: blocking.Client, topic: str, name: str, workers: int = 1) -> bool | None:
    """Return whether workers have got jobs of this subscription."""
    return held(client, topic, name).get("workers", 0) >= workers or None


def held(client: blocking.Client, topic: str, name: str) -> dict[str, int]:
    for view in client.topics():
        for each in view.subscriptions if view.name == topic else ():
            if each.name == name and each.shared is not None:
                return {"workers": each.shared.workers, "lag": each.lag}
    return {}


def is_done(client: blocking.Client, topic: str, name: str) -> bool | None:
    return held(client, topic, name).get("lag") == 0 or None


def test_each_order_has_one_parcel_although_a_service_is_killed(
    node: Process, client: blocking.Client, tmp_path: Path
) -> None:
    """WRK-6 TXN-1: two billing services share the orders, and one of them is killed."""
    server = ("--server", f"127.0.0.1:{node.port}")
    orders = [f"customer{number % 7}:{number % 5}" for number in range(200)]
    billable = [each.split(":") for each in orders if not each.endswith(":0")]
    with programs(tmp_path) as services:
        services.run("examples.orders", "shop", *server, *orders)
        victim = services.start("examples.orders", "billing", *server)
        services.start("examples.orders", "shipping", *server)
        until("a bill is written", lambda: held(client, "{shop}.bills", "shipping") or None)
        until("a worker bills", lambda: is_working(client, "{shop}.orders", "billing"))
        victim.kill()
        services.start("examples.orders", "billing", *server)
        until("all orders are billed", lambda: is_done(client, "{shop}.orders", "billing"))
        until("all bills are shipped", lambda: is_done(client, "{shop}.bills", "shipping"))
        assert services.drain() == [0, 0]
    found = [
        message.value.decode()
        for piece in client.scan("{shop}.parcels")
        for message in piece.messages()
    ]
    assert Counter(found) == Counter(f"{pieces} for {customer}" for customer, pieces in billable)
    letters = client.dead_letters("{shop}.orders", "billing").first(1000)
    assert {each.detail for each in letters} == {"cannot bill 0 pieces"}
    assert len(letters) == len(orders) - len(billable)


def answer(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, Any] | None:
    """Return the status and the JSON of an answer, or None if nothing listens yet."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        try:
            connection.request(method, path, body)
        except ConnectionRefusedError:
            return None
        found = connection.getresponse()
        return found.status, json.loads(found.read())


def test_web_application_puts_jobs_that_a_pool_does(node: Process, tmp_path: Path) -> None:
    """WRK-6"""
    reserved = reserve()
    port, database = port_of(reserved), str(tmp_path / "reports.sqlite")
    server = f"127.0.0.1:{node.port}"
    with reserved, programs(tmp_path, SERVER=server, DATABASE=database) as processes:
        processes.start("examples.web", f"127.0.0.1:{port}")
        subjects = [b"whales", b"snow", b"tea"]
        first = until("an answer", lambda: answer(port, "POST", "/reports", subjects[0]))
        others = [answer(port, "POST", "/reports", subject) for subject in subjects[1:]]
        links = [each[1]["result"] for each in (first, *others) if each is not None]
        assert [answer(port, "GET", link) for link in links] == [(202, {"status": "waiting"})] * 3
        processes.start("examples.web_pool")
        for link, subject in zip(links, subjects, strict=True):
            report = {"status": "done", "report": f"report about {subject.decode()}"}
            until(f"{link} is done", lambda: answer(port, "GET", link) == (200, report) or None)  # noqa: B023
        # The server of the web application ends by the signal, after it has closed the client.
        assert processes.drain() == [-signal.SIGTERM, 0]


def test_each_payment_changes_a_balance_once(
    node: Process, client: blocking.Client, tmp_path: Path
) -> None:
    """WRK-3: the first worker applies payments, but does not live to acknowledge them."""
    server, path = ("--server", f"127.0.0.1:{node.port}"), tmp_path / "payments.sqlite"
    with programs(tmp_path) as processes:
        processes.run("examples.payments", "pay", *server, *[f"ann:{n}" for n in range(50)], "x:y")
        accounts = Accounts(str(path))
        shared = oncecast.Shared(backoff_min=0, backoff_max=0, deliveries_max=3)
        jobs = client.work("payments", "accounts", prefetch=20, shared=shared)
        for _ in range(20):
            job = jobs.get(PATIENCE)
            assert job is not None
            assert accounts.apply(job)
            assert not accounts.apply(job)  # a later delivery
            job.nack(0)
        jobs.close()
        processes.start("examples.payments", "work", str(path), *server)
        until("all payments are done", lambda: is_done(client, "payments", "accounts"))
        assert processes.drain() == [0]
    assert accounts.balances() == {"ann": sum(range(50))}
    (letter,) = client.dead_letters("payments", "accounts").first(10)
    assert letter.value == b"x:y"
