"""Remove one rule at a time, and check that the storms detect it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oncecast.broker.clock import Clock
from oncecast.broker.delivery import Flow
from oncecast.broker.gateway import Gateway
from oncecast.broker.log_usage import LogUsage
from oncecast.broker.producer import Producer
from oncecast.broker.service import Service
from oncecast.broker.subscription import Subscription
from oncecast.broker.topic import Topic
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Compact
from oncecast.replication.messages import Stored
from oncecast.replication.supply import Supplier
from oncecast.replication.values import Values
from oncecast.simulator.simnode import SimulatedNode
from oncecast.wire import commands as do
from tests.client.session.promises import storm
from tests.mutants import Mutant, Plant, assert_detected

pytestmark = pytest.mark.mutants

SEEDS = 100
MUTANTS: list[Mutant] = []

learn, install = Service.learn, Service.install
on_disk, on_compact = Values.on_disk, Supplier.on_compact
serve, renew, put, append = Gateway._serve, Flow.renew, Topic.put, Topic.append


def mutant(plant: Plant) -> Plant:
    MUTANTS.append(Mutant(plant.__name__.replace("_", " "), plant, storm, SEEDS))
    return plant


@mutant
def ack_before_fsync(patch: pytest.MonkeyPatch) -> None:
    def impatient(self: Values) -> None:
        self.io.send(self.io.me, Stored(self.io.last_record), after=0)

    patch.setattr(Values, "say_stored", impatient)


@mutant
def messages_to_self_survive_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Deliver messages that a node sent to itself before a crash."""

    def hear_itself(self: SimulatedNode, message: Any, starts: int) -> None:
        self.receive(self.me, message)

    def all_that_waits(self: Values, record: int) -> list[tuple[int, Ballot]]:
        return on_disk(self, self.io.last_record)

    patch.setattr(SimulatedNode, "hear_itself", hear_itself)
    patch.setattr(Values, "on_disk", all_that_waits)


@mutant
def log_is_trimmed_above_the_needed_slot(patch: pytest.MonkeyPatch) -> None:
    def compact(self: Supplier, request: Compact) -> None:
        on_compact(self, Compact(request.slot, request.slot + 1, request.state))

    patch.setattr(Supplier, "on_compact", compact)


@mutant
def restart_skips_slots_after_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    def install_only(self: Service, slot: int, value: bytes) -> None:
        if slot % 10:
            learn(self, slot, value)

    patch.setattr(Service, "learn", install_only)


@mutant
def no_dedup(patch: pytest.MonkeyPatch) -> None:
    def put_anyway(self: Topic, slot: int, command: do.Put, clock: Clock) -> Any:
        producer = self.producers.get(command.producer)
        if producer is not None and command.sequence < producer.next:
            self._live_slots.add(slot)
            append(self, slot, producer, command.count, command.size, clock)
        return put(self, slot, command, clock)

    patch.setattr(Topic, "put", put_anyway)


@mutant
def put_with_a_sequence_gap_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def jump(self: Topic, slot: int, command: do.Put, clock: Clock) -> Any:
        producer = self.producers.get(command.producer)
        if producer is not None and command.sequence > producer.next:
            producer.next = command.sequence
        return put(self, slot, command, clock)

    patch.setattr(Topic, "put", jump)


@mutant
def dedup_is_not_in_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Service, slot: int, state: tuple[bytes, ...]) -> None:
        install(self, slot, state)
        for topic in self.machine.registry.topics.values():
            for producer in topic.producers.values():
                producer.next = max(0, producer.next - 1)

    patch.setattr(Service, "install", forgetful)


@mutant
def cursor_moves_at_send(patch: pytest.MonkeyPatch) -> None:
    def serve_and_ack(self: Gateway, flow: Flow) -> None:
        serve(self, flow)
        self.ask(do.Ack(flow.topic, flow.subscription, flow.epoch, flow.next))

    patch.setattr(Gateway, "_serve", serve_and_ack)


@mutant
def collection_above_the_low_water_mark(patch: pytest.MonkeyPatch) -> None:
    def highest(self: Topic) -> int:
        return max(each.cursor for each in self.subscriptions.values())

    patch.setattr(Topic, "low_water", highest)


@mutant
def ack_moves_the_cursor_too_far(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(self: Subscription, upto: int) -> None:
        self.cursor = upto + 2

    patch.setattr(Subscription, "acknowledge", acknowledge)


@mutant
def flow_refuses_to_resend_messages(patch: pytest.MonkeyPatch) -> None:
    def never_back(self: Flow, offset: int, messages: int, size: int) -> None:
        self._base = -1
        renew(self, max(offset, self.next), messages, size)

    patch.setattr(Flow, "renew", never_back)


@mutant
def flow_skips_a_message(patch: pytest.MonkeyPatch) -> None:
    def hop(self: Flow, offset: int, messages: int, size: int) -> None:
        renew(self, offset + (offset % 7 == 6), messages, size)

    patch.setattr(Flow, "renew", hop)


@mutant
def carried_batches_are_mixed_up(patch: pytest.MonkeyPatch) -> None:
    carry = Service._carry

    def carry_wrong(self: Service, needed: int) -> None:
        group, shifted = self.group, Shifted(self.group)
        self.group = cast("Any", shifted)
        carry(self, needed)
        self.group = group

    patch.setattr(Service, "_carry", carry_wrong)


class Shifted:
    """Returns the previously requested batch."""

    def __init__(self, group: Any) -> None:
        self._group, self._last = group, -1

    def entry(self, slot: int) -> bytes:
        last, self._last = self._last, slot
        found: bytes = self._group.entry(slot if last < 0 else last)
        return found


@mutant
def producer_counts_too_few_messages(patch: pytest.MonkeyPatch) -> None:
    """Count fewer messages than the producer put, so that its next sequence is too low."""

    def appended(self: Producer, offset: int, count: int) -> None:
        self.next += max(1, count - 1)

    patch.setattr(Producer, "appended", appended)


@mutant
def log_is_trimmed_before_batches_are_carried(patch: pytest.MonkeyPatch) -> None:
    def snapshot_due(self: LogUsage, needed: int) -> bool:
        return True

    def compact(self: Service, needed: int) -> None:
        slot = self.machine.registry.last_slot
        state = (self._log_usage.state(needed), *self.machine.state())
        self.ask(Compact(slot, needed + 30, state))

    patch.setattr(LogUsage, "snapshot_due", snapshot_due)
    patch.setattr(Service, "_compact", compact)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_storms_detect_a_missing_rule(mutant: Mutant) -> None:
    """SVC-2 SVC-3 SVC-9 SVC-10"""
    assert_detected(mutant)
