"""Check that intruders neither read nor change other clients' objects (SEC-2, SEC-3)."""

from __future__ import annotations

from typing import Any

from oncecast.broker.events import Execute
from oncecast.broker.gateway import ANSWERED_MAX, ClientState, Gateway
from oncecast.broker.lease_queue import QUEUED_OF_CLIENT_MAX
from oncecast.broker.service import Service
from oncecast.kernel.codec import ENCODER
from oncecast.kernel.protocol import Ask, Effect, NodeId, Send, Unwatch, Value, Watch
from oncecast.lab.scenarios.intruder import Overheard
from oncecast.lab.scenarios.intruder_rules import (
    is_foreign,
    is_hostile,
    may,
    may_see,
    may_use,
    principal_of,
    refusals,
)
from oncecast.lab.scenarios.paxos_history import CLIENT
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire import commands as do
from oncecast.wire.frames import (
    AccessView,
    Delivery,
    Elsewhere,
    GroupView,
    LookGroup,
    LookRing,
    RingView,
    View,
)
from oncecast.wire.limits import NAME_BYTES_MAX, PARTS_MAX

ANSWER_BYTES_MAX = 4096  # maximum size of an answer that a node keeps
HOSTILE_NAMES = ("mallory", "oscar")


class Watchman(Checker):
    """Overhears honest clients for the intruders, and checks each step that an intruder causes."""

    def __init__(self, calls_max: int, bytes_max: int) -> None:
        self.overheard = Overheard()
        self.refused = self.served = 0
        self._calls_max, self._bytes_max = calls_max, bytes_max

    def after(self, sim: Simulation, step: Step) -> None:
        if step.node.startswith(CLIENT):
            return
        for effect in step.effects:
            if type(effect) is Send and effect.to.startswith(CLIENT):
                if is_hostile(effect.to):
                    check_answer(effect.to, effect.message)
                else:
                    self.overheard.hear_answer(effect.message)
        if step.kind != "receive":
            return
        sender, message = step.subject
        if is_hostile(sender):
            self._check_request(sim, step, sender, message)
        elif sender.startswith(CLIENT):
            self.overheard.hear(message)

    def _check_request(self, sim: Simulation, step: Step, sender: NodeId, message: Value) -> None:
        principal = principal_of(sender)
        service = sim.protocol(step.node, Service)
        if is_foreign(principal, message):
            self.refused += 1
            for effect in step.effects:
                if not reveals_nothing(effect, sender, message, service):
                    raise Violation(
                        f"{step.node}: {sender} sent {message!r:.300}, which caused {effect!r:.300}"
                    )
            return
        self.served += 1
        for effect in step.effects:
            if isinstance(effect, Ask):
                check_executed(principal, effect.request, service)
        self._check_memory(sim.protocol(step.node, Gateway), sender)

    def _check_memory(self, gateway: Gateway, client: NodeId) -> None:
        state = gateway._clients.get(client)
        if state is None:
            return
        kept = {
            "calls in flight": (len(state.calls), self._calls_max),
            "bytes in flight": (state.bytes, self._bytes_max),
            "answers": (len(state.answered), ANSWERED_MAX),
            "waiting reads": (waiting(gateway, client), QUEUED_OF_CLIENT_MAX),
        }
        for what, (found, limit) in kept.items():
            if found > limit:
                raise Violation(f"{gateway.me} holds {found} {what} for {client} (limit {limit})")

    def finish(self, sim: Simulation) -> None:
        for node in sim.nodes.values():
            for protocol in node.stack.protocols if node.stack is not None else ():
                if isinstance(protocol, Gateway):
                    for client, state in protocol._clients.items():
                        if is_hostile(client):
                            check_kept_answers(node.me, client, state)


def waiting(gateway: Gateway, client: NodeId) -> int:
    return gateway._awaiting_lease._of_client.get(client, 0)


def check_kept_answers(node: NodeId, client: NodeId, state: ClientState) -> None:
    for answer in state.answered.values():
        size = len(ENCODER.encode(answer))
        if size > ANSWER_BYTES_MAX:
            raise Violation(
                f"{node} keeps an answer of {size} bytes for {client} (limit {ANSWER_BYTES_MAX}): "
                f"{answer!r:.300}"
            )


def reveals_nothing(effect: Effect, sender: NodeId, message: Value, service: Service) -> bool:
    """Return whether an effect of a forbidden request depends only on the request."""
    if isinstance(effect, Watch | Unwatch):
        return effect.peer == sender
    if not isinstance(effect, Send) or effect.to != sender:
        return False
    answer = effect.message
    if isinstance(answer, Elsewhere) and not service.leading:
        return True
    if service.machine.registry.access.open and isinstance(message, LookGroup | LookRing):
        # A node that has just joined does not know the rules yet and shows its own view.
        return isinstance(answer, GroupView | RingView)
    return answer in refusals(message)


def check_executed(principal: str, request: Value, service: Service) -> None:
    """Check a command that a node proposes for an intruder."""
    command: Any = request.command if isinstance(request, Execute) else request
    topics = [command.topic] if getattr(command, "topic", "") else []
    if isinstance(command, do.Ack):
        allowed = may(principal, "ack", command.topic)
    elif isinstance(command, do.PublishStaged):
        topics += service.machine.registry.staging.topics(command.source, command.number)
        allowed = all(may(principal, "put", topic) for topic in topics)
    else:
        allowed = True  # `is_foreign` has already decided this
    if not allowed or is_oversized(command):
        raise Violation(
            f"{service.me} executes a forbidden command for {principal!r}: {command!r:.300}"
        )


def is_oversized(command: Value) -> bool:
    """Return whether a name is too long for the log, or the command has too many parts."""
    texts = [getattr(command, field) for field in command.__struct_fields__]
    parts = getattr(command, "parts", ())
    texts = [text for text in (*texts, *parts) if isinstance(text, str)]
    return len(parts) > PARTS_MAX or any(len(text.encode()) > NAME_BYTES_MAX for text in texts)


def check_answer(client: NodeId, message: Value) -> None:
    """Check that an answer can be encoded and shows only what the client may see."""
    ENCODER.encode(message)
    principal = principal_of(client)
    if isinstance(message, View):
        shown = [view.name for view in message.topics if not may_see(principal, view.name)]
    elif isinstance(message, Delivery):
        may_read = may(principal, "read", message.topic)
        shown = [] if may_read and may_use(principal, message.subscription) else [message.topic]
    else:
        shown = list(message.users) if isinstance(message, AccessView) else []
    if shown:
        raise Violation(f"{client} got a {type(message).__name__} that reveals {shown[:3]}")


def check_state(service: Service, honest: Overheard, version: int) -> None:
    """Check that honest clients created every object, except those that an intruder may create."""
    registry = service.machine.registry
    found: list[str] = []
    for topic in registry.topics.values():
        names = (*topic.subscriptions, *topic.producers)
        if topic.name.startswith("mallory"):
            found += [name for name in names if not name.startswith(HOSTILE_NAMES)]
        else:
            found += [name for name in (topic.name, *names) if name not in honest.names]
            found += [name for name in names if name.startswith(HOSTILE_NAMES)]
    sources = [name for name in registry.staging.sources if not name.startswith(HOSTILE_NAMES)]
    found += [name for name in sources if name not in honest.names]
    if found:
        raise Violation(f"{service.me}: intruders have created {found[:3]!r:.300}")
    if registry.access.version != version:
        raise Violation(
            f"{service.me}: users and rules have version {registry.access.version}, expected "
            f"{version}"
        )
