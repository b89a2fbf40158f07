"""Move leadership to a member with disk space when the leader's disk is full.

A leader with a full disk refuses puts that other members could store. It asks the members whether
they have disk space, and hands over to the first that has enough. If no member has enough, it keeps
leading, because it can still serve reads and acknowledgements.

    full leader    AskSpace →    ← Space    member
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from oncecast.broker.gateway import Gateway
from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import HandOver

CHECK_EVERY = 1.0
STAY = 10.0  # seconds between attempts to step down, so that an election can finish
LAG_MAX = 10_000  # maximum number of slots that the next leader may be behind


class AskSpace(Value, tag="AskSpace"):
    """Message: ask a member whether it has disk space."""


class Space(Value, tag="Space"):
    """Message: a member's answer, with the last slot that it has applied."""

    enough: bool
    applied: int


class SpaceDue(Value):
    """Timer: check the disk space."""


class SpaceKeeper(Protocol):
    name = "space"
    Message: ClassVar = AskSpace | Space
    Timer = SpaceDue

    def __init__(self, me: NodeId, rng: Random, *, service: Service, gateway: Gateway) -> None:
        super().__init__(me, rng)
        self._service, self._gateway = service, gateway
        self._wait_until = 0.0

    def start(self) -> None:
        if self._gateway.free_disk_bytes is not None:
            self.later(CHECK_EVERY, SpaceDue())

    def timeout(self, timer: SpaceDue) -> None:
        self.later(CHECK_EVERY, SpaceDue())
        if self._must_leave:
            for node in self._service.group.nodes():
                if node != self.me:
                    self.send(node, AskSpace(), after=0)

    def receive(self, sender: NodeId, message: AskSpace | Space) -> None:
        group = self._service.group
        if sender not in group.nodes():
            return
        if isinstance(message, AskSpace):
            self.send(sender, Space(self._gateway.disk_is_roomy, group.applied), after=0)
        elif message.enough and message.applied + LAG_MAX >= group.applied and self._must_leave:
            self._wait_until = self.now + STAY
            self.ask(HandOver(sender))

    @property
    def _must_leave(self) -> bool:
        """Return whether this node leads, its disk is full, and no handover is in progress."""
        leading = self._service.leading and self.now >= self._wait_until
        return leading and self._gateway.disk_is_full
