"""Run a node with users and rules, without a network."""

from __future__ import annotations

from random import Random
from typing import Any

from oncecast.broker.guard import Checked
from oncecast.kernel.protocol import Emit, NodeId, Send, Value
from oncecast.kernel.stack import Output
from oncecast.kernel.values import Wake
from oncecast.node.assemble import RingMembership, assemble
from oncecast.security.values import Credentials, Rule
from oncecast.storage.journal import Journal
from oncecast.wire import commands as do
from oncecast.wire.results import AccessSet
from tests.broker.desk import ANN, BOB, ME, Desk

KEYS = Credentials(b"salt", 4096, bytes(32), bytes(32))
ROOT, STRANGER = NodeId("client/root"), NodeId("client/stranger")
PRINCIPALS = {ANN: "ann", BOB: "bob", ROOT: "root"}  # STRANGER has no login


class GuardedDesk(Desk):
    """A node with users. The client `client/NAME` has the principal NAME."""

    membership: RingMembership | None = None

    def begin(self) -> None:
        self.waiting = False
        self.events: list[Value] = []
        self.denials: list[Checked] = []
        self.acts: list[Checked] = []  # administrative requests that were allowed
        parts = assemble(
            ME,
            Random(0),
            principal_of=lambda client: PRINCIPALS.get(client, ""),
            membership=self.membership,
        )
        self.parts, self.stack = parts, parts.stack
        self.service, self.gateway = parts.service, parts.gateway
        parts.guard.report = self._hear
        self.journal = Journal.open(self.disk, self.stack, segment_bytes=16 * 1024)
        self.sent: list[tuple[NodeId, Value]] = []
        self.watched: dict[NodeId, None] = {}
        self._awaiting_lease: list[Send] = []
        self._busy = False
        self._wakes: list[Wake] = []
        self._do(self.stack.start(self.now))

    def _hear(self, checked: Checked) -> None:
        (self.acts if checked.allowed else self.denials).append(checked)

    def _do(self, outputs: list[Output]) -> None:
        self.events += [each.event for each in outputs if isinstance(each, Emit)]
        super()._do([each for each in outputs if not isinstance(each, Emit)])

    def secure(self, *commands: Any) -> None:
        """Add the administrator and the users, then execute these commands."""
        first = do.AddUser("root", KEYS, admin=True)
        for command in (first, do.AddUser("ann", KEYS), do.AddUser("bob", KEYS), *commands):
            assert isinstance(self.call(ROOT, command), AccessSet), command

    def allow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> None:
        self.secure_more(do.Allow(Rule(principal, verbs, topic, name)))

    def disallow(self, principal: str, *verbs: str, topic: str = "", name: str = "") -> None:
        self.secure_more(do.Disallow(Rule(principal, verbs, topic, name)))

    def secure_more(self, command: Any) -> None:
        assert isinstance(self.call(ROOT, command), AccessSet), command
