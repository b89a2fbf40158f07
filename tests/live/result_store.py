"""A consumer that stores its result and its offset in one transaction (E3)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from oncecast import blocking, errors
from oncecast.wire.message import Message

PATIENCE = 20.0


class ResultStore:
    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("create table if not exists effects (value blob)")
        self.database.execute("create table if not exists progress (next integer)")
        self.database.execute(
            "insert into progress select 0 where not exists (select * from progress)"
        )

    @property
    def next(self) -> int:
        (found,) = self.database.execute("select next from progress").fetchone()
        return int(found)

    @property
    def effects(self) -> list[bytes]:
        return [value for (value,) in self.database.execute("select value from effects")]

    def handle(self, message: Message) -> None:
        self.database.execute("begin immediate")
        self.database.execute("insert into effects values (?)", (message.value,))

    def commit(self, message: Message) -> bool:
        """Commit the effect, or roll back and return False if another process is ahead."""
        here = message.offset
        moved = self.database.execute(
            "update progress set next = ? where next = ?", (here + 1, here)
        )
        self.database.execute("commit" if moved.rowcount else "rollback")
        return bool(moved.rowcount)


def consume(address: str, topic: str, path: Path, count: int) -> None:
    """Consume until `count` messages are stored. Raise Fenced if another process takes over."""
    store = ResultStore(path)
    with (
        blocking.connect(address) as client,
        client.read(topic, "results", start_at=store.next, auto_ack=False) as sub,
    ):
        while store.next < count:
            message = sub.get(PATIENCE)
            assert message is not None, f"nothing after {store.next}"
            store.handle(message)
            if not store.commit(message):
                raise errors.Fenced
            sub.ack(message)
    store.database.close()
