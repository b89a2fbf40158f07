"""A reference for the decided commands of one shared subscription.

It applies each decided command to a state machine and to the slow model of `shared_model`, and
compares both after each command. It also records what workers may rely on: the worker that holds
each message under a token, and how each message was settled.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from oncecast.broker.clock import Clock
from oncecast.broker.endings import Grant
from oncecast.broker.letters import hashed
from oncecast.broker.machine import Machine
from oncecast.broker.moves import AnyCommand
from oncecast.broker.queue import BLOCKED, DEAD, WAITING, Queue
from oncecast.broker.sharing import dead_letters
from oncecast.lab.scenarios import shared_model as model_
from oncecast.lab.scenarios.paxos_history import GroupHistory
from oncecast.lab.scenarios.shared_model import SharedModel
from oncecast.replication.messages import COMMAND
from oncecast.simulator.checkers import Checker, Violation
from oncecast.simulator.simulated import Simulation
from oncecast.simulator.step import Step
from oncecast.wire import batch
from oncecast.wire import commands as do
from oncecast.wire.errors import InvalidArgument, TooMany
from oncecast.wire.results import (
    Appended,
    Buried,
    Leased,
    Settled,
    SettlesDone,
    Subscribed,
    Unsubscribed,
)
from oncecast.wire.sharing import DEAD_OFFSET, DEFAULT_SHARED, Settle, dead_letter_topic

TOPIC, SUBSCRIPTION = "topic", "workers"
LETTERS = dead_letter_topic(TOPIC, SUBSCRIPTION)
OTHER_LETTERS = "{topic}.failed"
NAMES = {WAITING: model_.WAITING, BLOCKED: model_.BLOCKED, DEAD: model_.DEAD}

decode = msgspec.msgpack.Decoder(AnyCommand).decode

Lease = tuple[int, int]  # a token and an offset


class Reference(Checker):
    def __init__(self, history: GroupHistory) -> None:
        self._history = history
        self._machine = Machine()
        self._slot = 0
        self.model: SharedModel | None = None
        self.values: list[bytes] = []  # the values in the topic, by offset
        self.holders: dict[Lease, tuple[str, int]] = {}  # worker and number of deliveries, by lease
        self.accepted: dict[int, int] = {}  # the token of each accepted message
        self.letters: list[int] = []  # the offsets of all dead letters, in order
        self._answered: dict[str, Any] = {}  # the result of each SubscribeShared, by token
        self._buried = {LETTERS: 0, OTHER_LETTERS: 0}  # number of letters in each dead-letter topic
        self.leases = self.refused = 0
        self.corrections = 0  # number of clock corrections that moved deadlines

    def after(self, sim: Simulation, step: Step) -> None:
        while self._slot < self._history.last:
            self._slot += 1
            item = self._history.chosen[self._slot].item
            if item.kind == COMMAND:
                self._apply(decode(item.data))

    @property
    def checksum(self) -> int:
        return self._machine.checksum()

    # -- commands --

    def _apply(self, command: Any) -> None:
        registry, clock = self._machine.registry, Clock()
        clock.restore(registry.clock.now, registry.clock.state())
        fresh, last, step = self._fresh, registry.last_epoch, registry.limits.clock_step_us
        result: Any = self._machine.apply(self._slot, command)
        if self.model is not None and registry.clock.state() != clock.state():
            retiming = clock.pass_time(command.at, step, getattr(command, "elapsed", 0))
            if retiming is not None and retiming.shift:
                self.corrections += 1
                self.model.shift(retiming.shift)
        now = registry.clock.trusted
        match command:
            case do.SubscribeShared():
                self._subscribed(command, result)
            case do.Unsubscribe() if self.model is not None and result == Unsubscribed(False):
                self.model.remove()
            case do.DeleteTopic(topic=topic) if topic in self._buried:
                if topic not in registry.topics:  # a late copy deletes nothing
                    self._buried[topic] = 0
            case do.Put(topic=topic) if topic == TOPIC and isinstance(result, Appended):
                self._append(command.batch)
            case do.Lease() if self._subscribed_model is not None:
                self._subscribed_model.token = last
                known = len(command.keys) if command.keys_from == fresh else 0
                expected = self._subscribed_model.lease(now, command.wants, command.gone, known)
                self._leased(command, result, expected)
            case do.Settles() if self._subscribed_model is not None:
                settled = tuple([self._settle(each, now) for each in command.settles])
                self._compare(command, result, SettlesDone(settled))
            case do.Bury() if self._subscribed_model is not None:
                self._bury(command, result)
        if self.model is not None:
            self._check(self.model)

    @property
    def _subscribed_model(self) -> SharedModel | None:
        """Return the model while the subscription exists."""
        return None if self.model is None or self.model.removed else self.model

    def _subscribed(self, command: do.SubscribeShared, result: Any) -> None:
        if command.token in self._answered:  # a copy has no effect
            self._compare(command, result, self._answered[command.token])
            return
        already = isinstance(result, Subscribed)
        self._answered[command.token] = replace(result, already=True) if already else result
        model, settings = self.model, command.settings or DEFAULT_SHARED
        if isinstance(result, Subscribed) and model is None:
            self.model = SharedModel(settings, 0)
        elif isinstance(result, Subscribed) and model is not None and model.removed:
            self._compare(command, result.cursor, len(self.values))
            model.create(settings)
        elif isinstance(result, Subscribed | InvalidArgument) and model is not None:
            changed = command.settings is None or model.change(settings)
            self._compare(command, isinstance(result, Subscribed), changed)

    @property
    def _queue(self) -> Queue:
        queue = self._machine.registry.topics[TOPIC].subscriptions[SUBSCRIPTION].queue
        assert queue is not None
        return queue

    @property
    def _fresh(self) -> int:
        return self._queue.next if self._subscribed_model is not None else 0

    def _append(self, data: bytes) -> None:
        assert self.model is not None, "no subscription keeps the messages"
        found = batch.messages(data, topic=TOPIC, offset=0, producer="", sequence=0)
        self.values += [message.value for message in found]
        self.model.append([hashed(message.key) for message in found])

    def _leased(self, command: do.Lease, result: Any, expected: Leased) -> None:
        self._compare(command, result, expected)
        assert self.model is not None
        for grant in expected.grants:
            self.leases += 1
            for first, count in grant.runs:
                for offset in range(first, first + count):
                    self._granted(grant.worker, grant.token, offset)

    def _granted(self, worker: str, token: int, offset: int) -> None:
        assert self.model is not None
        if offset in self.accepted or offset in self.letters:
            raise Violation(f"offset {offset} is already settled, but leased again to {worker}")
        earlier = [each for each, at in self.holders if at == offset]
        if earlier and token <= max(earlier):
            raise Violation(f"token {token} of offset {offset} is not above {max(earlier)}")
        self.holders[token, offset] = worker, self.model.messages[offset].deliveries

    def _settle(self, settle: Settle, now: int) -> Settled:
        assert self.model is not None
        held = {
            (message.token, offset)
            for offset, message in enumerate(self.model.messages)
            if message.state == model_.LEASED and message.worker == settle.worker
        }
        settled = self.model.settle(settle, now)
        for token, first, count in settle.accept:
            for offset in range(first, first + count):
                done = offset < len(self.model.messages) and (token, offset) in held
                if done and self.model.messages[offset].state == model_.DONE:
                    self._accept(token, offset)
        self.refused += len(settled.stale)
        return settled

    def _accept(self, token: int, offset: int) -> None:
        if self.accepted.setdefault(offset, token) != token or offset in self.letters:
            raise Violation(f"offset {offset} is settled twice")

    def _bury(self, command: do.Bury, result: Any) -> None:
        model, name, registry = self.model, command.put.topic, self._machine.registry
        assert model is not None
        if isinstance(result, TooMany) and len(registry.topics) >= registry.limits.topics_max:
            return
        current = name == dead_letters(TOPIC, SUBSCRIPTION, model.settings)
        due = current and all(model.messages[each].state == model_.DEAD for each in command.offsets)
        self._compare(command, result, Buried(True, self._buried[name]) if due else Buried(False))
        if not due:
            return
        self._buried[name] += len(command.offsets)
        found = batch.messages(command.put.batch, topic="", offset=0, producer="", sequence=0)
        for offset, letter in zip(command.offsets, found, strict=True):
            origin = int(letter.headers[DEAD_OFFSET])
            if origin != offset or letter.value != self.values[offset]:
                raise Violation(
                    f"the dead letter of offset {offset} has another origin or value: {letter}"
                )
            if offset in self.accepted or offset in self.letters:
                raise Violation(
                    f"offset {offset} is already settled, but was written as a dead letter"
                )
            self.letters.append(offset)
        model.bury(command.offsets)

    def _compare(self, command: object, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"slot {self._slot}: {command} returned {found}, expected {expected}")

    # -- state --

    def _check(self, expected: SharedModel) -> None:
        topic = self._machine.registry.topics.get(TOPIC)
        if expected.removed:
            if topic is not None and SUBSCRIPTION in topic.subscriptions:
                raise Violation(f"slot {self._slot}: the subscription still exists")
            return
        queue = self._queue
        fault = difference(queue, expected)
        if fault:
            raise Violation(f"slot {self._slot}: {fault}")
        assert topic is not None
        cursor = topic.subscriptions[SUBSCRIPTION].cursor
        if cursor != expected.cursor:
            raise Violation(
                f"slot {self._slot}: the cursor is {cursor}, expected {expected.cursor}"
            )
        for name, count in self._buried.items():
            found = self._machine.bounds(name)[1]
            if found != count:
                raise Violation(
                    f"slot {self._slot}: expected {count} dead letters in {name}, found {found}"
                )

    @property
    def unsettled(self) -> list[int]:
        """Return the offsets that are neither accepted, nor dead letters, nor removed."""
        dropped = self.model.dropped if self.model is not None else set()
        done = {*self.accepted, *self.letters, *dropped}
        return [offset for offset in range(len(self.values)) if offset not in done]


def difference(queue: Queue, expected: SharedModel) -> str:
    """Return how the state of the machine differs from the model, or "" if they are equal."""
    opened = expected.in_state(*model_.OPEN)
    if sorted(queue.open) != opened:
        return f"the open offsets are {sorted(queue.open)}, expected {opened}"
    keys: set[int] = set()
    most = expected.deliveries_max
    for offset in opened:
        message, found = expected.messages[offset], queue.open[offset]
        deliveries = queue.deliveries(offset)
        if deliveries != message.deliveries or 0 < most < deliveries:
            wanted = f"expected {message.deliveries} (limit {most})"
            return f"offset {offset} has {deliveries} deliveries, {wanted}"
        if isinstance(found, Grant):
            held = (found.worker, found.token, found.until)
            if held != (message.worker, message.token, message.time):
                return f"offset {offset} is held by {held}, expected {message}"
            if message.key and expected.settings.by_key:
                if message.key in keys:
                    return f"two messages with the key of offset {offset} are leased"
                keys.add(message.key)
        elif NAMES[found] != message.state:
            return f"offset {offset} is {NAMES[found]}, expected {message}"
    return ""
