"""A stand-in for a client session, used to test its parts in isolation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from oncecast.client.session.local import Outcome
from oncecast.kernel.protocol import NodeId, Protocol
from tests.dice import HighDice

ME, NODE = NodeId("client/me"), NodeId("node")


class StandIn(Protocol):
    """Records the calls of the part under test. The effects show which calls wait for the disk."""

    def __init__(self, rng: Random | None = None) -> None:
        super().__init__(ME, rng or HighDice())
        self.after = 5
        self.dues: list[float] = []
        self.called: list[tuple[Any, Callable[[Outcome], None]]] = []
        self.redialed: list[Any] = []
        self.given_up: list[Any] = []
        self.left: list[NodeId] = []
        self.owed: list[Any] = []
        self.used: set[str] = set()
        self.resent: list[Callable[[str], bool]] = []
        self.moved: Callable[[NodeId], int | None] = lambda _: None
        self.calls: Any = SimpleNamespace(
            do=lambda command, then: self.called.append((command, then))
        )
        self.alarm: Any = SimpleNamespace(due=self.dues.append)
        self.routes: Any = SimpleNamespace(
            moved=lambda topic: self.moved(NODE),
            left=self.left.append,
            give_up=self.given_up.append,
        )
        self.redial = self.redialed.append
        self.resend = self.resent.append

    def owing(self) -> list[Any]:
        return self.owed

    def topics_in_use(self) -> set[str]:
        return self.used
