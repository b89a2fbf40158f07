"""Finish transactions across groups without their client (TXN-2).

    participant → coordinator    AskOutcomes           coordinator → participant    Outcomes
    coordinator → participant    AskSettled            participant → coordinator    Settled

The leader of a group that holds a share asks the coordinator for the decision, and then publishes
or drops the share. Once a share has waited for `HOLD_US`, the coordinator aborts the transaction
unless it is decided. The coordinator asks the participants of each decision whether they have
settled their shares. Once all have, it deletes the decision.

Each answer comes from decided state, and from a leader with a lease whose group owns the tag. So a
message that is late, lost or repeated does no harm. The process's directory names the owner of each
tag. A leader accepts answers only from the owner's replicas, and expires a transaction only at the
request of such a replica.

Needs the group's service and the process's ring stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import ClassVar, NamedTuple, assert_never

from oncecast.broker.events import Execute, Executed
from oncecast.broker.holding import outcome_of
from oncecast.broker.service import Service
from oncecast.broker.staging import HeldShare, source_of_key, topic_of_key
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.replication.events import LeaderChanged
from oncecast.ring.events import WhoseTopic
from oncecast.wire.commands import Command
from oncecast.wire.frames import Owned
from oncecast.wire.ring_transactions import (
    HOLD_US,
    Confirmed,
    ConfirmTransactions,
    ExpireTransaction,
    ResolveTransaction,
    Share,
)

TOKENS = 1 << 49  # the first token; high, so that no other layer uses the same tokens
EVERY = 0.5
ASK_AFTER_US = 1_000_000  # until then, the client is probably still at work
TAGS_MAX = 200  # maximum number of tags per turn
QUESTIONS_MAX = 500  # maximum number of questions and answers per message
DECISIONS_PER_TURN = 10_000  # maximum number of participants to ask about per turn


class Question(Value, tag=False):
    """Ask for the outcome of `coordinator`, for a share of the tag `participant`."""

    source: str
    coordinator: Share
    participant: str
    late: bool  # whether the coordinator should no longer wait for its client


class Outcome(Value, tag=False):
    source: str
    coordinator: Share
    committed: bool


class Settlement(Value, tag=False):
    """A participant of a decision."""

    source: str
    coordinator: Share
    participant: Share


class AskOutcomes(Value, tag="AskOutcomes"):
    questions: tuple[Question, ...]


class Outcomes(Value, tag="Outcomes"):
    """The decided outcomes. Undecided transactions are left out."""

    outcomes: tuple[Outcome, ...]


class AskSettled(Value, tag="AskSettled"):
    settlements: tuple[Settlement, ...]


class Settled(Value, tag="SharesSettled"):
    """The participants that hold their share no more."""

    settlements: tuple[Settlement, ...]


class Resume(Value):
    """Timer: ask about held shares and decisions."""


class Held(NamedTuple):
    """A held share, with its source and its own tag and number."""

    source: str
    tag: str
    number: int
    share: HeldShare


class Resolver(Protocol):
    name = "resolver"
    Message: ClassVar = Owned | AskOutcomes | Outcomes | AskSettled | Settled
    Observed: ClassVar = Executed | LeaderChanged
    Timer = Resume

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        process: NodeId,  # the ring stack of the process
        every: float = EVERY,
    ) -> None:
        super().__init__(me, rng)
        self._service, self._process, self._every = service, process, every
        self._tokens, self._turn = TOKENS, 0
        self._in_flight: dict[Command, int] = {}  # the token of each command
        self._by_token: dict[int, Command] = {}
        # The held shares and the decisions to ask about in this turn, by tag.
        self._asking: dict[str, tuple[list[Question], list[Settlement]]] = {}
        self._owners: dict[str, tuple[NodeId, ...]] = {}  # replicas by tag, since the last turn
        # Late questions by the tag of their participant, each with its sender.
        self._late: dict[str, list[tuple[NodeId, Question]]] = {}

    def start(self) -> None:
        self.later(self._every, Resume())

    @property
    def _has_lease(self) -> bool:
        return self._service.leading and self._service.group.leads(self.now)

    def _owns(self, tag: str) -> bool:
        return self._service.machine.registry.elsewhere(tag) is None

    # -- decided state --

    def _held(self) -> Iterator[Held]:
        for key, source in self._service.machine.registry.staging.unsettled.items():
            for number, share in source.held.items():
                yield Held(source_of_key(key), topic_of_key(key), number, share)

    def _decided(self) -> Iterator[Settlement]:
        """Yield the participants that may not have settled their shares."""
        for key, source in self._service.machine.registry.staging.unsettled.items():
            for (epoch, number), participants in source.decisions.items():
                coordinator = Share(topic_of_key(key), epoch, number)
                for each in participants.values():
                    yield Settlement(source_of_key(key), coordinator, each)

    def _questions(self) -> Iterator[Question]:
        now = self._service.expected_time()
        for source, tag, _, share in self._held():
            waited = now - share.time
            if waited >= ASK_AFTER_US:
                yield Question(source, share.coordinator, tag, waited >= HOLD_US)

    # -- inputs --

    def timeout(self, timer: Resume) -> None:
        self.later(self._every, timer)
        self._asking.clear()
        self._owners.clear()
        self._late.clear()
        self._turn += 1
        if not self._has_lease or not self._service.machine.registry.staging.unsettled:
            return
        self._gather()
        tags = list(self._asking)
        first = self._turn * TAGS_MAX % len(tags) if tags else 0
        for tag in (*tags[first:], *tags[:first])[:TAGS_MAX]:
            if self._owns(tag):
                self._ask(self.me, tag)
            else:
                self.send(self._process, WhoseTopic(tag))

    def observe(self, event: Executed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self._in_flight.clear()
            self._by_token.clear()
        elif event.token in self._by_token:
            del self._in_flight[self._by_token.pop(event.token)]

    def receive(
        self, sender: NodeId, message: Owned | AskOutcomes | Outcomes | AskSettled | Settled
    ) -> None:
        if not self._has_lease:
            return
        match message:
            case Owned():
                if sender == self._process:
                    self._located(message)
            case AskOutcomes(questions):
                self._tell_outcomes(sender, questions[:QUESTIONS_MAX])
            case Outcomes(outcomes):
                self._resolve(sender, outcomes[:QUESTIONS_MAX])
            case AskSettled(settlements):
                self._tell_settled(sender, settlements[:QUESTIONS_MAX])
            case Settled(settlements):
                self._confirm(sender, settlements[:QUESTIONS_MAX])
            case _:
                assert_never(message)

    def _located(self, owned: Owned) -> None:
        """Ask the owner of a tag, and believe its late questions."""
        nodes = tuple(map(NodeId, owned.nodes))
        if not nodes:
            return
        self._owners[owned.topic] = nodes
        self._ask(NodeId(owned.leader or nodes[self._turn % len(nodes)]), owned.topic)
        for asker, question in self._late.pop(owned.topic, ()):
            if asker in nodes:
                self._expire(question)

    def _gather(self) -> None:
        """Collect what to ask about in this turn, by tag."""
        for question in self._questions():
            questions, _ = self._asking.setdefault(question.coordinator.topic, ([], []))
            if len(questions) < QUESTIONS_MAX:
                questions.append(question)
        count = self._service.machine.registry.staging.decisions
        first = self._turn * DECISIONS_PER_TURN % count if count > DECISIONS_PER_TURN else 0
        for settlement in islice(self._decided(), first, first + DECISIONS_PER_TURN):
            _, settlements = self._asking.setdefault(settlement.participant.topic, ([], []))
            if len(settlements) < QUESTIONS_MAX:
                settlements.append(settlement)

    def _ask(self, owner: NodeId, tag: str) -> None:
        questions, settlements = self._asking.get(tag, ((), ()))
        if questions:
            self._tell(owner, AskOutcomes(tuple(questions)))
        if settlements:
            self._tell(owner, AskSettled(tuple(settlements)))

    def _tell(self, node: NodeId, message: AskOutcomes | Outcomes | AskSettled | Settled) -> None:
        """Send a message, or handle it here if this group owns both tags."""
        if node == self.me:
            self.receive(node, message)
        else:
            self.send(node, message)

    def _trusts(self, sender: NodeId, tag: str) -> bool:
        """Return whether the sender is a replica of the tag's owner."""
        return sender in self._owners.get(tag, ()) or (sender == self.me and self._owns(tag))

    # -- coordinator --

    def _tell_outcomes(self, sender: NodeId, questions: tuple[Question, ...]) -> None:
        registry, outcomes = self._service.machine.registry, []
        for question in questions:
            source, (tag, epoch, number) = question.source, parts_of(question.coordinator)
            if not self._owns(tag):
                continue
            known = registry.staging.sources.get(registry.transaction_key(source, tag))
            committed = outcome_of(known, epoch, number)
            if committed is not None:
                outcomes.append(Outcome(source, question.coordinator, committed))
            elif question.late:
                self._doubt(sender, question)
        if outcomes:
            self._tell(sender, Outcomes(tuple(outcomes)))

    def _doubt(self, sender: NodeId, question: Question) -> None:
        """Expire a transaction, if the sender is a replica of the participant's owner."""
        tag = question.participant
        if self._trusts(sender, tag):
            self._expire(question)
        elif tag in self._late or len(self._late) < TAGS_MAX:
            waiting = self._late.setdefault(tag, [])
            if len(waiting) < QUESTIONS_MAX:
                waiting.append((sender, question))
            self.send(self._process, WhoseTopic(tag))

    def _expire(self, question: Question) -> None:
        tag, epoch, number = parts_of(question.coordinator)
        self._execute(ExpireTransaction(question.source, tag, epoch, number, 0))

    def _confirm(self, sender: NodeId, settlements: tuple[Settlement, ...]) -> None:
        tags: dict[tuple[str, Share], list[str]] = {}
        for each in settlements:
            if self._trusts(sender, each.participant.topic):
                tags.setdefault((each.source, each.coordinator), []).append(each.participant.topic)
        confirmed: dict[tuple[str, str], list[Confirmed]] = {}
        for (source, share), settled in tags.items():
            numbers = Confirmed(share.epoch, share.number, tuple(settled))
            confirmed.setdefault((source, share.topic), []).append(numbers)
        for (source, tag), each_ in confirmed.items():
            self._execute(ConfirmTransactions(source, tag, tuple(each_)))

    # -- participant --

    def _resolve(self, sender: NodeId, outcomes: tuple[Outcome, ...]) -> None:
        decided = {
            (each.source, each.coordinator): each.committed
            for each in outcomes
            if self._trusts(sender, each.coordinator.topic)
        }
        for source, tag, number, share in list(self._held()):
            committed = decided.get((source, share.coordinator))
            if committed is not None:
                self._execute(ResolveTransaction(source, tag, share.epoch, number, 0, committed))

    def _tell_settled(self, sender: NodeId, settlements: tuple[Settlement, ...]) -> None:
        registry, settled = self._service.machine.registry, []
        for each in settlements:
            tag, epoch, number = parts_of(each.participant)
            if not self._owns(tag):
                continue
            known = registry.staging.sources.get(registry.transaction_key(each.source, tag))
            share = None if known is None else known.held.get(number)
            if share is None or share.epoch != epoch:
                settled.append(each)
        if settled:
            self._tell(sender, Settled(tuple(settled)))

    def _execute(self, command: Command) -> None:
        """Propose a command, unless an equal one is in flight."""
        if command not in self._in_flight:
            self._tokens += 1
            self._in_flight[command] = self._tokens
            self._by_token[self._tokens] = command
            self.ask(Execute(self._tokens, command))


def parts_of(share: Share) -> tuple[str, int, int]:
    return share.topic, share.epoch, share.number
