"""Show users, tokens and rules to administrators: `LookAccess →`, `AccessView ←`.

Only the leader answers, and only while it holds its lease. An answer contains no hashes or keys.
"""

from __future__ import annotations

from itertools import islice
from random import Random

from oncecast.broker.events import AccessChanged
from oncecast.broker.lease_queue import LeaseQueue
from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.security.access import Access
from oncecast.security.values import Rule, Token, User
from oncecast.wire.frames import AccessView, Elsewhere, LookAccess, TokenView

PAGE = 1000  # maximum entries per answer
FIRST_MAX = 1 << 32  # maximum number of entries to skip; no list is this long


class AccessDue(Value):
    """Timer: check whether the lease was renewed."""


class AccessViewer(Protocol):
    name = "access"
    Message = LookAccess
    Observed = AccessChanged
    Timer = AccessDue

    def __init__(self, me: NodeId, rng: Random, *, service: Service) -> None:
        super().__init__(me, rng)
        self._service = service
        self._awaiting_lease: LeaseQueue[LookAccess] = LeaseQueue(self, AccessDue())

    def timeout(self, timer: AccessDue) -> None:
        for client, look in self._awaiting_lease.take():
            self.receive(client, look)

    def observe(self, event: AccessChanged) -> None:
        self._awaiting_lease.take()  # drop the requests; clients repeat them under the new rules

    def receive(self, sender: NodeId, look: LookAccess) -> None:
        service = self._service
        if not service.leading:
            self.send(sender, Elsewhere(service.leader, service.group.nodes()))
        elif not service.group.leads(self.now):
            self._awaiting_lease.add(sender, look)
        else:
            self.send(sender, view_of(service.machine.registry.access, look))


def view_of(access: Access, look: LookAccess) -> AccessView:
    """Return one page of users, tokens and rules."""
    first = min(max(0, look.first), FIRST_MAX)
    entries = list(islice(access.entries(), first, first + PAGE + 1))
    page = entries[:PAGE]
    return AccessView(
        look.id,
        access.version,
        tuple(each.name for each in page if isinstance(each, User)),
        tuple(
            TokenView(each.id, each.principal, each.expires_us)
            for each in page
            if isinstance(each, Token)
        ),
        tuple(each for each in page if isinstance(each, Rule)),
        first + PAGE if len(entries) > PAGE else 0,
    )
