"""Check permissions: a stack asks its guard before a message reaches any protocol.

A request without permission gets the same answer whether or not its topic exists. Only a leader
that holds its lease is sure to have the newest rules. Other nodes therefore do not refuse requests
that the leader will check, but redirect the client to the leader. A leader without its lease drops
the request, and the client retries.

A process that joins a ring starts without rules. Until it receives the ring's rules, it answers
administrative requests with Overloaded, and the client retries. The process answers user commands
with NotHere, as the state machine of a group without topics does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from oncecast.broker.acts import asked_of, is_act, object_of
from oncecast.broker.needs import COMMANDS, FRAMES, Need
from oncecast.broker.service import Service
from oncecast.broker.sizes import too_long
from oncecast.kernel.protocol import NodeId, Value
from oncecast.security.access import ACK, ADMIN, MANAGE, PUT, Access
from oncecast.security.principals import ANONYMOUS
from oncecast.wire.commands import CreateTopic, DeleteTopic, PublishStaged, SubscribeShared
from oncecast.wire.errors import RULES, Denied, NotHere, Overloaded
from oncecast.wire.frames import (
    Answer,
    Call,
    Fetch,
    FlowEnded,
    Govern,
    Look,
    LookAccess,
    LookBroker,
    Scan,
    Tune,
    Work,
    WorkEnded,
)
from oncecast.wire.partitions import is_partition
from oncecast.wire.ring_transactions import ResolveTransaction
from oncecast.wire.transactions import EndTransaction

PrincipalOf = Callable[[NodeId], str]

# Requests that only a leader executes, and requests that a ring process only redirects.
OF_LEADER = (Call, Fetch, Work, Look, Scan, Govern, LookAccess, LookBroker)
OF_OWNER = (Call, Fetch, Work, Look, Scan, LookBroker)

Publish = PublishStaged | EndTransaction | ResolveTransaction
DENIED = Denied()
ADMINISTRATIVE = (MANAGE, ADMIN)
# Commands that may append to more topics, or acknowledge messages of other topics.
OF_PARTITION = CreateTopic | DeleteTopic  # commands that say which topic a partition belongs to
PUTTING = PublishStaged | SubscribeShared | EndTransaction | ResolveTransaction


def anonymous(client: NodeId) -> str:
    """Return the anonymous principal, shared by all clients of a node without logins."""
    return ANONYMOUS


class Verdict(Enum):
    """How to handle a request that this node's rules do not allow."""

    REFUSE = auto()
    REDIRECT = auto()  # let the request in, because this node only redirects the client
    DROP = auto()  # ignore the request, because this node's rules may be stale


class Checked(Value):
    """A denied request, or an allowed administrative request, for the audit log."""

    client: NodeId
    principal: str
    request: str  # type of the command or frame
    verb: str
    topic: str
    name: str
    object: str = ""  # the user, token, rule or node that the request names
    allowed: bool = False


class Guard:
    def __init__(
        self,
        access: Callable[[], Access],
        principal_of: PrincipalOf = anonymous,
        *,
        verdict: Callable[[Value], Verdict] = lambda message: Verdict.REFUSE,
        staged: Callable[[Publish], Iterable[str]] = lambda command: (),
        report: Callable[[Checked], None] = lambda checked: None,
        # Whether this node does not know the rules yet.
        unsettled: Callable[[], bool] = lambda: False,
        # Returns the topic that a topic is a partition of, or "".
        base_of: Callable[[str], str] = lambda topic: "",
    ) -> None:
        self._base_of = base_of
        self._access, self._principal_of, self.unsettled = access, principal_of, unsettled
        self._verdict, self._staged, self.report = verdict, staged, report
        self.denied = 0  # requests denied so far
        # Whether administrative requests are also reported before the first user is added.
        self.audits_open = False

    def __call__(self, sender: NodeId, message: Value) -> tuple[Value, ...] | None:
        """Return None to let a message in, or else the answers to send."""
        access = self._access()
        if access.open and not self.audits_open and not self.unsettled():
            return None
        return self.judge(access, sender, message)

    def judge(self, access: Access, sender: NodeId, message: Value) -> tuple[Value, ...] | None:
        """Return the answers to a message under the rules of `access`, or None to let it in."""
        if type(message) is Call:  # the most frequent message
            verb, topic, name = COMMANDS[type(message.command)](message.command)
        else:
            needs = FRAMES.get(type(message))
            if needs is None:
                return None  # the message comes from a node
            verb, topic, name = needs(message)
        if access.open:
            if verb == ADMIN and self.unsettled():
                redirects = self._verdict(message) is Verdict.REDIRECT
                return None if redirects else (try_again(message),)
            if not self.audits_open:
                return None
        principal = self._principal_of(sender)
        if self._permits(access, principal, verb, topic, name, message) and (
            type(message) is not Call
            or not isinstance(message.command, PUTTING)
            or self._may_publish(access, principal, message.command)
        ):
            if (
                verb in ADMINISTRATIVE
                and is_act(message)
                and self._verdict(message) is not Verdict.REDIRECT
            ):
                self._report(sender, principal, message, (verb, topic, name), allowed=True)
            return None
        verdict = self._verdict(message)
        if verdict is Verdict.REDIRECT:
            return None
        if verdict is Verdict.DROP:
            return ()
        self.denied += 1
        self._report(sender, principal, message, (verb, topic, name), allowed=False)
        return (refusal_of(message),)

    def _permits(
        self,
        access: Access,
        principal: str,
        verb: str,
        topic: str,
        name: str,
        message: Value | None = None,
    ) -> bool:
        """Return whether the rules allow this. A rule on a topic covers its partitions."""
        if access.permits(principal, verb, topic, name):
            return True
        base = self._base_of(topic)
        if not base and type(message) is Call and isinstance(message.command, OF_PARTITION):
            base = message.command.partition_of
            base = base if is_partition(topic, base) else ""
        return bool(base) and access.permits(principal, verb, base, name)

    def _report(
        self, client: NodeId, principal: str, message: Value, need: Need, *, allowed: bool
    ) -> None:
        kind = type(asked_of(message)).__name__
        self.report(Checked(client, principal, kind, *need, object_of(message), allowed))

    def _may_publish(
        self,
        access: Access,
        principal: str,
        command: PublishStaged | SubscribeShared | EndTransaction | ResolveTransaction,
    ) -> bool:
        """Return whether the principal may put to the topics that the command appends to.

        For a transaction, also return whether it may acknowledge what it consumed. Outside a ring,
        the topics of staged parts may differ from the command's topic. The default dead-letter
        topic belongs to its subscription and needs no permission.
        """
        if isinstance(command, SubscribeShared):
            named = command.settings.dead_letters if command.settings is not None else ""
            return not named or self._permits(access, principal, PUT, named, "")
        topics = [*self._staged(command)]
        if isinstance(command, EndTransaction):
            topics += [each.topic for each in command.outputs]
            for each in command.inputs:
                if not self._permits(access, principal, ACK, each.topic, each.subscription):
                    return False
        return all(self._permits(access, principal, PUT, topic, "") for topic in topics)


def refusal_of(message: Value) -> Value:
    """Return the answer to an unauthorized request."""
    if isinstance(message, Tune):
        message = message.fetch
    if isinstance(message, Work):
        where = (message.topic, message.subscription, message.worker)
        return WorkEnded(*(("", "", "") if any(map(too_long, where)) else where), DENIED)
    if not isinstance(message, Fetch):
        return Answer(id_of(message), DENIED)
    names = (message.topic, message.subscription)
    if any(map(too_long, names)):
        names = ("", "")  # the names may be too long for a frame
    return FlowEnded(*names, message.epoch, DENIED)


def try_again(message: Value) -> Answer:
    """Return the answer to an administrative request that arrives before the rules are known."""
    early = NotHere("") if isinstance(message, Call) else Overloaded(RULES)
    return Answer(id_of(message), early)


def id_of(message: Value) -> int:
    """Return the id of a request. Every frame except Fetch, Tune and Work has an id."""
    id: int = getattr(message, "id")  # noqa: B009  # the frames have no common base
    return id


def guard_of_replica(
    service: Service,
    principal_of: PrincipalOf = anonymous,
    report: Callable[[Checked], None] = lambda checked: None,
    *,
    on_ring: bool = False,
) -> Guard:
    """Return a guard that applies the rules of the replica's group.

    A group in a ring receives the rules with its first topics, or later from its process.
    """

    def verdict(message: Value) -> Verdict:
        if not isinstance(message, OF_LEADER):
            return Verdict.REFUSE
        if not service.leading:
            return Verdict.REDIRECT
        return Verdict.REFUSE if service.group.leads(service.now) else Verdict.DROP

    def staged(command: Publish) -> Iterable[str]:
        registry = service.machine.registry
        ends = isinstance(command, EndTransaction | ResolveTransaction)
        key_of = registry.transaction_key if ends else registry.source_key
        key = key_of(command.source, command.topic)
        return registry.staging.topics(key, command.number)

    def unsettled() -> bool:
        return on_ring and not service.machine.registry.owns_arc

    return Guard(
        lambda: service.machine.registry.access,
        principal_of,
        verdict=verdict,
        staged=staged,
        report=report,
        unsettled=unsettled,
        base_of=lambda topic: service.machine.registry.base_of(topic),
    )


def guard_of_process(
    access: Callable[[], Access],
    principal_of: PrincipalOf = anonymous,
    report: Callable[[Checked], None] = lambda checked: None,
    unsettled: Callable[[], bool] = lambda: False,
) -> Guard:
    """Return the guard of a ring stack, which redirects topic requests to their owners.

    The process serves a Tune itself, but only while the owner confirms that the client may read.
    It drops a Tune that its rules do not allow, because its rules may be stale.
    """

    def verdict(message: Value) -> Verdict:
        if isinstance(message, Tune):
            return Verdict.DROP
        return Verdict.REDIRECT if isinstance(message, OF_OWNER) else Verdict.REFUSE

    return Guard(access, principal_of, verdict=verdict, report=report, unsettled=unsettled)
