"""The node's side of group administration: show and change the replica group.

    LookGroup, Govern →    GroupView, Answer, Elsewhere ←    and News ↑ for the node's log

Any node answers LookGroup and LookRing with its local view, which may be stale. Only the leader
changes the group. It answers a request when the change is complete, and only while it holds its
lease. If it steps down, clients repeat the request at the next leader. A change that is already
complete is answered immediately.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

import msgspec

from oncecast.broker.lease_queue import LeaseQueue
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import (
    Added,
    Change,
    HandOver,
    Installed,
    LeaderChanged,
    LevelRaised,
    Mended,
    NotSeated,
    Removed,
    Suspected,
)
from oncecast.replication.quorum import SIZE_MAX, Config, Member
from oncecast.replication.status import Status
from oncecast.wire import errors
from oncecast.wire.frames import (
    Answer,
    Elsewhere,
    Govern,
    GroupView,
    LookGroup,
    LookRing,
    MemberView,
    RingView,
)

PENDING_MAX = 64
HEARD_WITHIN = 1.5  # in suspicion times; a live node sends at least one message per suspicion time

Event = LeaderChanged | Added | Removed | LevelRaised | NotSeated | Suspected | Mended | Installed


class News(Value):
    """Event: something that an operator should see in the node's log."""

    what: str
    node: str = ""
    level: int = 0  # the group's feature level
    known: int = 0  # the highest level that the node supports


class Healing(Value):
    """Timer: check whether lost entries have been refilled."""


class GovernDue(Value):
    """Timer: check whether the lease was renewed."""


class Governor(Protocol):
    name = "governor"
    Message: ClassVar = LookGroup | Govern | LookRing
    Observed = Event
    Timer: ClassVar = Healing | GovernDue

    def __init__(self, me: NodeId, rng: Random, *, group: Status) -> None:
        super().__init__(me, rng)
        self.group = group
        self._pending: dict[tuple[NodeId, int], Change | HandOver] = {}
        self._awaiting_lease: LeaseQueue[Govern] = LeaseQueue(self, GovernDue())
        self.elections = 0  # leader changes observed

    def start(self) -> None:
        if self.group.log.damage:
            self.later(self.group.options.heartbeat, Healing())

    def timeout(self, timer: Healing | GovernDue) -> None:
        if isinstance(timer, Healing):
            self._look_for_healing(timer)
        else:
            for client, question in self._awaiting_lease.take():
                self.receive(client, question)
            self._answer_pending()

    def _look_for_healing(self, timer: Healing) -> None:
        group = self.group
        if (
            group.is_member
            and group.leader
            and group.applied >= group.log.known
            and not group.log.holes
        ):
            self.emit(News("refilled"))
        else:
            self.later(group.options.heartbeat, timer)

    # -- requests --

    def receive(self, sender: NodeId, message: LookGroup | Govern | LookRing) -> None:
        if isinstance(message, LookRing):
            self.send(sender, RingView(message.id, self.me, (), (), None))
        elif isinstance(message, LookGroup):
            self.send(sender, view_of(self.group, self.now, message.id))
        elif not self._leading:
            self._send_elsewhere(sender)
        elif not self.group.leads(self.now):
            self._awaiting_lease.add(sender, message)
        else:
            self._govern(sender, message.id, message.request)

    @property
    def _leading(self) -> bool:
        return self.group.leader == self.me

    def _send_elsewhere(self, client: NodeId) -> None:
        self.send(client, Elsewhere(self.group.leader, self.group.nodes()))

    def _govern(self, client: NodeId, id: int, request: Change | HandOver) -> None:
        why = refusal(self.group, request)
        if why:
            self.send(client, Answer(id, errors.InvalidArgument(why)))
        elif is_done(self.group, request):
            self.send(client, view_of(self.group, self.now, id))
        elif (client, id) not in self._pending:
            if len(self._pending) >= PENDING_MAX:
                self.send(client, Answer(id, errors.Overloaded("pending group changes")))
                return
            self._pending[client, id] = request
            self.watch(client)
            self.ask(sized(self.group, request) if isinstance(request, Change) else request)

    def down(self, client: NodeId) -> None:
        for key in [key for key in self._pending if key[0] == client]:
            del self._pending[key]

    # -- events --

    def observe(self, event: Event) -> None:
        news = news_of(event)
        self.elections += news.what == "leader" and bool(news.node)
        self.emit(news)
        self._answer_pending()

    def _answer_pending(self) -> None:
        for (client, id), request in list(self._pending.items()):
            if not self._leading:
                self._send_elsewhere(client)
            elif not self.group.leads(self.now):
                self._awaiting_lease.watch()
                return
            elif is_done(self.group, request):
                self.send(client, view_of(self.group, self.now, id))
            else:
                continue
            del self._pending[client, id]


def news_of(event: Event) -> News:
    match event:
        case LeaderChanged(leader):
            return News("leader", leader)
        case Added(node):
            return News("added", node)
        case Removed(node):
            return News("removed", node)
        case LevelRaised(level):
            return News("level_raised", level=level)
        case NotSeated(node, known, level):
            return News("not_seated", node, level, known)
        case Suspected(node, silent):
            return News("suspected" if silent else "heard_again", node)
        case Mended():
            return News("refilled")
        case Installed():
            return News("installed")


# The functions below describe the group as one replica sees it.


def has_quorum(group: Status, now: float) -> bool:
    """Return whether this node believes that a majority is up."""
    if group.leader == group.me:
        return group.leads(now)
    # Leave time for an election after the suspicion time.
    return bool(group.leader) and now <= group.heard + 1.25 * group.options.suspicion


def role_of(group: Status) -> str:
    if group.leader == group.me:
        return "leader"
    return "replica" if group.is_member else "joining"


def reachable(group: Status, node: NodeId, now: float) -> bool | None:
    """Return whether this node receives messages from `node`, or None if unknown.

    A leader hears from all members. A follower hears only from its leader, or from all members
    during an election.
    """
    if node == group.me:
        return True
    if group.leader == group.me and node in group.silent:
        return False
    within = HEARD_WITHIN * group.options.suspicion
    heard = group.last_message.get(node, -within)
    if now <= heard + within:
        return True
    if not group.leader and (node in group.silent or now > group.heard + within):
        return False
    return None


def member_view(
    group: Status, node: NodeId, incarnation: int, applied: int, now: float
) -> MemberView:
    reached = reachable(group, node, now)
    heard = now if node == group.me else group.last_message.get(node)
    ago = -1.0 if heard is None else max(0.0, now - heard)
    level = group.log.level_of(Member(node, incarnation))
    return MemberView(node, incarnation, applied, reached is False, reached, ago, level)


def view_of(group: Status, now: float, id: int = 0) -> GroupView:
    leading, config = group.leader == group.me, group.config
    applied = dict(group.reported) if leading else {}
    applied[group.self_as_member] = group.applied
    members = tuple(
        member_view(group, each.node, each.incarnation, applied.get(each, -1), now)
        for each in config.members
    )
    offers = group.offers.values() if leading else ()
    waiting = [offered for offered in offers if offered.member not in config.members]
    return GroupView(
        id,
        group.me,
        group.leader,
        has_quorum(group, now),
        config.version,
        config.size,
        group.applied,
        members,
        tuple(offered.member.node for offered in waiting),
        config.level,
    )


def is_done(group: Status, request: Change | HandOver) -> bool:
    if isinstance(request, HandOver):
        return group.leader == request.successor
    members = group.config.nodes()
    added = not request.add or request.add in members
    return added and request.remove not in members and request.size in (0, group.config.size)


def sized(group: Status, change: Change) -> Change:
    """Return the change with the new group size, one more or one less than before.

    With the old size, a removed node would rejoin immediately. If the removed node is silent, the
    size stays the same, so that another node can replace it.
    """
    size = group.config.size
    count = min(len(group.config.members), size)  # during a change, there may be one more member
    if change.add and not change.remove:
        size = max(size, count + 1)
    elif change.remove and not change.add and change.remove not in group.silent:
        size = count - 1
    return msgspec.structs.replace(change, size=change.size or size)


def refused_size(config: Config, change: Change) -> str:
    """Return why the group cannot have this size, or "" if it can.

    Without this check, a client could remove a group's redundancy or even all its members.
    """
    size = change.size
    members = [node for node in config.nodes() if node != change.remove]
    members += [change.add] if change.add and change.add not in members else []
    if not 0 <= size <= SIZE_MAX or len(members) > SIZE_MAX:
        wanted = size if not 0 <= size <= SIZE_MAX else len(members)
        return f"a group cannot have {wanted} replicas (limit {SIZE_MAX}); choose 1 to {SIZE_MAX}"
    if not size or size == config.size:
        return ""
    if size < len(members):
        return f"the group has {len(members)} replicas; remove one by name to reduce its size"
    if change.force:
        return ""
    if size < min(config.size, 3):
        return f"a group of {size} tolerates no failure; choose 3 or more, or set force"
    if size % 2 == 0:
        return (
            f"a group of {size} tolerates no more failures than one of {size - 1}; choose an odd "
            "size, or set force"
        )
    return ""


def refusal(group: Status, request: Change | HandOver) -> str:
    """Return why the change is impossible and what to do, or "" if it is possible."""
    config = group.config
    members = config.nodes()
    if isinstance(request, HandOver):
        if request.successor not in members:
            choice = ", ".join(members)
            return f"{request.successor} is not a replica of this group; choose one of {choice}"
        if group.absent(request.successor):
            return f"{request.successor} does not answer; choose another replica to lead"
        return ""
    if request.add and request.add not in members and request.add not in group.offers:
        return f"{request.add} has not asked to join; start it with --join {group.me}"
    if why := refused_size(config, request):
        return why
    if request.remove not in members:
        return ""
    left = [node for node in members if node != request.remove]
    left += [request.add] if request.add and request.add not in left else []
    absent = [node for node in left if group.absent(node)]
    there = len(left) - len(absent)
    if not left:
        return f"{request.remove} is the only replica; add another replica first"
    if there < len(left) // 2 + 1:
        renewed = [node for node in absent if group.has_new_incarnation(node)]
        remedy = f"bring back or remove {', '.join(absent)} first"
        if renewed:
            remedy = f"wait until {', '.join(renewed)}, which lost its disk, is a member again"
        return (
            f"without {request.remove}, only {there} of {len(left)} replicas would be up, which is "
            f"not a majority; {remedy}"
        )
    return ""
