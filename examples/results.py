"""One result for each job in SQLite, although a job can be delivered more than once."""

from __future__ import annotations

import sqlite3

import oncecast


class Results:
    """Results by offset. The offset identifies a job, and the token its delivery."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(
            path, isolation_level=None, timeout=30, check_same_thread=False
        )
        self._database.execute("pragma journal_mode = wal")
        self._database.execute(
            "create table if not exists results "
            "(offset integer primary key, token integer not null, result text not null)"
        )

    def store(self, job: oncecast.Job, result: str) -> bool:
        """Store the result of a job. Return False if a newer delivery has stored one."""
        stored = self._database.execute(
            "insert into results values (?, ?, ?) on conflict (offset) do update "
            "set token = excluded.token, result = excluded.result "
            "where excluded.token > results.token",
            (job.offset, job.token, result),
        )
        return stored.rowcount == 1

    def get(self, offset: int) -> str | None:
        found = self._database.execute("select result from results where offset = ?", (offset,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        self._database.close()
