"""A consumer group: its members, generation and assignments (Kafka's classic group protocol).

    EMPTY ──join──▶ PREPARING ──all joined──▶ COMPLETING ──leader's assignment──▶ STABLE
                        ▲                         │                                  │
                        └──────── a member joins, leaves or expires ◀────────────────┘

The leader among the members computes the assignment. The coordinator only passes it on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from random import Random

from oncecast.kafka.errors import Code
from oncecast.kafka.messages import (
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

FIRST_DELAY = 0.2  # seconds that a new group waits for more members
MEMBERS_MAX = 1000
SESSION_MIN, SESSION_MAX = 1.0, 1800.0  # seconds

ReplyJoin = Callable[[JoinGroupResponse], None]
ReplySync = Callable[[SyncGroupResponse], None]


class State(StrEnum):
    """The names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member:
    def __init__(self, id: str, client_id: str, host: str) -> None:
        self.id, self.client_id, self.host = id, client_id, host
        self.instance: str | None = None
        self.session = self.rebalance = 0.0  # timeouts in seconds
        self.expires = 0.0
        self.protocols: dict[str, bytes] = {}
        self.assignment = b""
        self.joining: ReplyJoin | None = None  # the reply that a join waits for
        self.syncing: ReplySync | None = None

    def update(self, request: JoinGroupRequest, reply: ReplyJoin, now: float) -> None:
        self.instance = request.group_instance_id
        self.session = request.session_timeout_ms / 1000
        self.rebalance = max(request.rebalance_timeout_ms / 1000, self.session)
        self.protocols = {each.name: each.metadata for each in request.protocols}
        self.joining = reply
        self.expires = now + self.session


class Group:
    def __init__(self, name: str, rng: Random) -> None:
        self.name, self._rng = name, rng
        self.state = State.EMPTY
        self.members: dict[str, Member] = {}
        self.promised: dict[str, float] = {}  # ids given to new members, and when these ids expire
        self.protocol_type = self.protocol = self.leader = ""
        # Random, so that a member of an earlier front end does not have the current generation.
        self.generation = rng.getrandbits(24)
        self.due = 0.0  # when members that have not joined or synced are removed
        self._not_before = 0.0

    # -- joining --

    def join(
        self,
        request: JoinGroupRequest,
        reply: ReplyJoin,
        now: float,
        client_id: str,
        host: str,
        version: int,
    ) -> None:
        fault = self._fault(request)
        if fault is not None:
            reply(JoinGroupResponse(error_code=fault, member_id=request.member_id))
            return
        member = self._member(request, client_id, host, now)
        if member is None:
            code = self.fault_of(request.member_id, self.generation, request.group_instance_id)
            reply(JoinGroupResponse(error_code=code, member_id=request.member_id))
        elif member.id not in self.members and version >= 4 and self._needs_id(request, member):
            self.promised[member.id] = now + request.session_timeout_ms / 1000
            if len(self.promised) > MEMBERS_MAX:
                del self.promised[next(iter(self.promised))]
            code = Code.MEMBER_ID_REQUIRED
            reply(JoinGroupResponse(error_code=code, member_id=member.id))
        else:
            self._joined(member, request, reply, now)

    def _fault(self, request: JoinGroupRequest) -> Code | None:
        if not SESSION_MIN <= request.session_timeout_ms / 1000 <= SESSION_MAX:
            return Code.INVALID_SESSION_TIMEOUT
        if not request.protocols or not request.protocol_type:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        others = [each for each in self.members.values() if each.id != request.member_id]
        if others:
            names = {each.name for each in request.protocols}
            common = names.intersection(*(each.protocols for each in others))
            if request.protocol_type != self.protocol_type or not common:
                return Code.INCONSISTENT_GROUP_PROTOCOL
        if len(self.members) >= MEMBERS_MAX and request.member_id not in self.members:
            return Code.GROUP_MAX_SIZE_REACHED
        return None

    def _member(
        self, request: JoinGroupRequest, client_id: str, host: str, now: float
    ) -> Member | None:
        """Return the member that joins, or None if its id is unknown."""
        known = self.members.get(request.member_id)
        if known is not None:
            return known
        if request.member_id and self.promised.get(request.member_id, 0.0) <= now:
            return None
        if request.group_instance_id is not None:
            self._replace(request.group_instance_id)
        new = request.member_id or f"{client_id[:100]}-{self._rng.getrandbits(128):032x}"
        return Member(new, client_id, host)

    def _needs_id(self, request: JoinGroupRequest, member: Member) -> bool:
        """Return whether the client must repeat its join with the id that it gets.

        So a client that loses the first response leaves no member behind.
        """
        return not request.member_id and request.group_instance_id is None

    def _replace(self, instance: str) -> None:
        """Remove the earlier member with this instance id, which has restarted."""
        for each in list(self.members.values()):
            if each.instance == instance:
                self._answer_join(each, JoinGroupResponse(error_code=Code.FENCED_INSTANCE_ID))
                self._answer_sync(each, SyncGroupResponse(error_code=Code.FENCED_INSTANCE_ID))
                del self.members[each.id]

    def _joined(
        self, member: Member, request: JoinGroupRequest, reply: ReplyJoin, now: float
    ) -> None:
        self.promised.pop(member.id, None)
        first = self.state == State.EMPTY
        self.members[member.id] = member
        # A client that has reconnected repeats its join.
        self._answer_join(member, JoinGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
        member.update(request, reply, now)
        self.protocol_type = request.protocol_type
        self._answer_sync(member, SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
        if self.state != State.PREPARING:
            self.rebalance(now, delay=FIRST_DELAY if first else 0.0)
        self.check(now)

    def rebalance(self, now: float, *, delay: float = 0.0) -> None:
        """Ask all members to join again."""
        for each in self.members.values():
            self._answer_sync(each, SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
        if not self.members:
            self.state = State.EMPTY
            self.generation += 1
            return
        self.state = State.PREPARING
        self._not_before = now + delay
        self.due = now + max(each.rebalance for each in self.members.values())

    def check(self, now: float) -> None:
        """Remove members that are late, and end the rebalance when all others have joined."""
        self.promised = {id: until for id, until in self.promised.items() if until > now}
        late = [each for each in self.members.values() if self._is_late(each, now)]
        for each in late:
            self.remove(each, now)
        if self.state == State.PREPARING and now >= self._not_before:
            waiting = [each for each in self.members.values() if each.joining is None]
            if not waiting or now >= self.due:
                self._begin_generation(waiting, now)
        elif self.state == State.COMPLETING and now >= self.due:
            for each in [each for each in self.members.values() if each.syncing is None]:
                self.remove(each, now)

    def _is_late(self, member: Member, now: float) -> bool:
        return member.joining is None and member.syncing is None and now >= member.expires

    def remove(self, member: Member, now: float) -> None:
        del self.members[member.id]
        self._answer_join(member, JoinGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
        if self.state != State.PREPARING or not self.members:
            self.rebalance(now)

    def _begin_generation(self, missing: list[Member], now: float) -> None:
        for each in missing:
            del self.members[each.id]
        if not self.members:
            self.rebalance(now)
            return
        self.generation = (self.generation + 1) & 0x7FFFFFFF
        self.state = State.COMPLETING
        self.due = now + max(each.rebalance for each in self.members.values())
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self._chosen_protocol()
        everyone = tuple(
            JoinedMember(
                member_id=each.id,
                group_instance_id=each.instance,
                metadata=each.protocols[self.protocol],
            )
            for each in self.members.values()
        )
        for each in self.members.values():
            each.assignment, each.expires = b"", now + each.session
            self._answer_join(
                each,
                JoinGroupResponse(
                    generation_id=self.generation,
                    protocol_name=self.protocol,
                    leader=self.leader,
                    member_id=each.id,
                    members=everyone if each.id == self.leader else (),
                ),
            )

    def _chosen_protocol(self) -> str:
        """Return the first protocol of the leader that all members know."""
        others = [each.protocols for each in self.members.values()]
        wanted = self.members[self.leader].protocols
        return next(name for name in wanted if all(name in each for each in others))

    # -- assignments --

    def sync(self, request: SyncGroupRequest, reply: ReplySync, now: float) -> None:
        code = self.fault_of(request.member_id, request.generation_id, request.group_instance_id)
        if code == Code.NONE and self.state == State.PREPARING:
            code = Code.REBALANCE_IN_PROGRESS
        if code != Code.NONE:
            reply(SyncGroupResponse(error_code=code))
            return
        member = self.members[request.member_id]
        member.expires = now + member.session
        if self.state == State.STABLE:
            reply(SyncGroupResponse(assignment=member.assignment))
            return
        self._answer_sync(member, SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        if member.id == self.leader:
            given = {each.member_id: each.assignment for each in request.assignments}
            self.state = State.STABLE
            for each in self.members.values():
                each.assignment = given.get(each.id, b"")
                if each.syncing is not None:
                    each.expires = now + each.session
                self._answer_sync(each, SyncGroupResponse(assignment=each.assignment))

    def fault_of(self, member_id: str, generation: int, instance: str | None = None) -> Code:
        """Return why a request of this member is refused, or NONE."""
        member = self.members.get(member_id)
        if member is None:
            taken = instance is not None and any(
                each.instance == instance for each in self.members.values()
            )
            return Code.FENCED_INSTANCE_ID if taken else Code.UNKNOWN_MEMBER_ID
        return Code.NONE if generation == self.generation else Code.ILLEGAL_GENERATION

    def heartbeat(self, member_id: str, generation: int, instance: str | None, now: float) -> Code:
        code = self.fault_of(member_id, generation, instance)
        if code == Code.NONE:
            member = self.members[member_id]
            member.expires = now + member.session
            if self.state == State.PREPARING:
                return Code.REBALANCE_IN_PROGRESS
        return code

    @property
    def bytes(self) -> int:
        """Return the bytes that the members have sent: their metadata and assignments."""
        return sum(
            len(each.assignment)
            + sum(len(name) + len(data) for name, data in each.protocols.items())
            for each in self.members.values()
        )

    def next_check(self) -> float | None:
        """Return when `check` must run next, or None if the group has nothing to wait for."""
        times = [
            each.expires
            for each in self.members.values()
            if each.joining is None and each.syncing is None
        ]
        if self.state == State.PREPARING:
            times.append(self._not_before if self._all_joined else self.due)
        elif self.state == State.COMPLETING:
            times.append(self.due)
        times += self.promised.values()
        return min(times, default=None)

    @property
    def _all_joined(self) -> bool:
        return all(each.joining is not None for each in self.members.values())

    # -- replies --

    def _answer_join(self, member: Member, response: JoinGroupResponse) -> None:
        reply, member.joining = member.joining, None
        if reply is not None:
            reply(response)

    def _answer_sync(self, member: Member, response: SyncGroupResponse) -> None:
        reply, member.syncing = member.syncing, None
        if reply is not None:
            reply(response)
