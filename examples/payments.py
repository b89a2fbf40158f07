"""Exactly-once effects in SQLite: each payment changes a balance once.

python -m examples.payments work payments.sqlite     # a worker; start as many as you need
python -m examples.payments pay ann:20 bob:5
python -m examples.payments show payments.sqlite

Adding to a balance twice would be wrong. So the worker stores the job's offset and token in the
same database transaction. If the job is delivered again, the offset is there already, and the
worker changes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3

import oncecast
from oncecast.client.worker import Worker

TOPIC, SUBSCRIPTION = "payments", "accounts"
SCHEMA = """
create table if not exists done (offset integer primary key, token integer not null);
create table if not exists accounts (name text primary key, balance integer not null);
"""


class Accounts:
    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute("pragma journal_mode = wal")
        self._database.executescript(SCHEMA)

    def apply(self, job: oncecast.Job) -> bool:
        """Apply a payment. Return False if an earlier delivery of the job has applied it."""
        name, _, amount = job.value.decode().partition(":")
        pieces = int(amount)  # raises ValueError before anything is stored
        run = self._database.execute
        run("begin immediate")
        try:
            new = run(
                "insert into done values (?, ?) on conflict do nothing", (job.offset, job.token)
            )
            if new.rowcount:
                run(
                    "insert into accounts values (?, ?) on conflict (name) do update "
                    "set balance = balance + excluded.balance",
                    (name, pieces),
                )
            run("commit")
        except BaseException:
            run("rollback")
            raise
        return bool(new.rowcount)

    def balances(self) -> dict[str, int]:
        return dict(self._database.execute("select name, balance from accounts order by name"))


def worker_on(path: str) -> Worker:
    accounts = Accounts(path)

    @oncecast.worker(TOPIC, SUBSCRIPTION, concurrency=8)
    async def apply(job: oncecast.Job) -> None:
        accounts.apply(job)  # then the job is acknowledged

    return apply


async def pay(server: str, payments: list[str]) -> None:
    async with oncecast.connect(server) as client:
        await client.create_subscription(TOPIC, SUBSCRIPTION, shared=oncecast.Shared())
        await client.put_many(TOPIC, [each.encode() for each in payments])


def main() -> None:
    parser = argparse.ArgumentParser(description="Apply payments to accounts, each once.")
    parser.add_argument("command", choices=("work", "pay", "show"))
    parser.add_argument("words", nargs="+", help="payments such as ann:20, or the database")
    parser.add_argument("--server", default="127.0.0.1:7400")
    options = parser.parse_intermixed_args()
    if options.command == "pay":
        asyncio.run(pay(options.server, options.words))
    elif options.command == "work":
        worker_on(options.words[0]).run(options.server)
    else:
        for name, balance in Accounts(options.words[0]).balances().items():
            print(f"{name} {balance}")


if __name__ == "__main__":
    main()
