"""The effects of jobs, in a SQLite database that all worker processes share.

A row for each job is guarded by the job's offset and holds its token. The same transaction appends
to a ledger without any constraint, which counts how often the job really had an effect.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

WAIT = 60.0  # maximum seconds to wait for another process's transaction


class Effect(NamedTuple):
    offset: int
    token: int
    value: bytes


class Effects:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(
            path, isolation_level=None, timeout=WAIT, check_same_thread=False
        )
        # A killed process loses nothing without syncs. Only a power failure could.
        self._database.execute("pragma synchronous = off")

    @classmethod
    def create(cls, path: Path) -> Effects:
        made = cls(path)
        made._database.execute("pragma journal_mode = wal")
        made._database.execute(
            "create table effects (offset integer primary key, token integer, value blob)"
        )
        made._database.execute(
            "create table ledger (number integer primary key, offset integer, token integer)"
        )
        return made

    def store(self, effects: Iterable[Effect]) -> None:
        """Store effects in one transaction. Skip jobs that already have an effect."""
        run = self._database.execute
        run("begin immediate")
        for each in effects:
            new = run("insert into effects values (?, ?, ?) on conflict do nothing", each)
            if new.rowcount:
                run("insert into ledger (offset, token) values (?, ?)", each[:2])
        run("commit")

    @property
    def count(self) -> int:
        with closing(self._database.execute("select count(*) from ledger")) as found:
            return int(found.fetchone()[0])

    def ledger(self) -> Iterator[tuple[int, int]]:
        """Yield the offset and the token of each effect, in the order in which it was stored."""
        yield from self._database.execute("select offset, token from ledger order by number")

    def close(self) -> None:
        self._database.close()
