"""Permissions are withdrawn and granted while calls are in flight and links lose messages.

A client puts, commits transactions, and acknowledges as a reader and as a worker. At the end, each
outcome must fit the state of the node: a call that is reported as denied has changed nothing, and
a confirmed call is not lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from oncecast.client.session import local
from oncecast.client.session.reading import Reader
from oncecast.kernel.protocol import Emit, Send, Value
from oncecast.wire import batch, errors, results
from oncecast.wire import commands as do
from oncecast.wire.retention import Policy
from oncecast.wire.sharing import Shared
from oncecast.wire.transactions import EndTransaction, Output
from tests.broker.desk import BOB
from tests.broker.guarded_desk import ROOT, GuardedDesk
from tests.client.session.lone import Lone, packed
from tests.seeds import seeds

PER_TEST = 10
RULES = (("ack", "in"), ("put", "out"), ("read", "in"))
SHARED = Shared(lease_us=2_000_000, deliveries_max=0, backoff_min_us=0, backoff_max_us=0)
READER, WORKER = ("in", "s"), ("in", "w")
MESSAGES = 12
LOSS = 0.25
SILENCE = 60.0  # seconds after which the storm is over

Lease = tuple[int, int]


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.desk = GuardedDesk()
        self.set_up()
        self.granted = dict.fromkeys(RULES)
        self.lone = Lone(rng=Random(seed + 1)).start()
        self.to_node: list[Value] = []
        self.to_client: list[Value] = []
        self.ticket = 0
        self.outcomes: dict[int, Any] = {}
        self.puts: dict[int, bytes] = {}  # values of puts and transactions, by ticket
        self.begun: list[local.Begun] = []
        self.read_upto = self.acked = 0
        self.acks: dict[int, int] = {}
        self.held: list[Lease] = []
        self.accepted: list[Lease] = []  # not confirmed yet
        self.confirms: dict[int, list[Lease]] = {}
        self.lost: set[Lease] = set()
        self.open: dict[str, bool] = {"s": False, "w": False}

    def set_up(self) -> None:
        desk = self.desk
        desk.secure()
        for topic in ("in", "out"):
            desk.call(ROOT, do.CreateTopic(topic, 0, Policy(keep_all=True)))
        desk.call(ROOT, do.Subscribe(*READER, do.FromEarliest(), 0))
        desk.call(ROOT, do.SubscribeShared(*WORKER, do.FromEarliest(), 0, SHARED))
        epoch = desk.call(ROOT, do.OpenProducer("in", "root", "inc", 0)).epoch
        data = packed(*[b"%d" % number for number in range(MESSAGES)])
        desk.call(ROOT, do.Put("in", "root", epoch, 0, MESSAGES, len(data), 0, data))
        for verb, topic in RULES:
            desk.allow("bob", verb, topic=topic)
        desk.allow("bob", name="*")

    # -- the client --

    def ask(self, make: Callable[[int], Value]) -> int:
        self.ticket += 1
        self.lone.ask(make(self.ticket))
        self.collect()
        return self.ticket

    def collect(self) -> None:
        for output in self.lone.outputs:
            if isinstance(output, Send):
                self.to_node.append(output.message)
            elif isinstance(output, Emit):
                self.hear(output.event)

    def hear(self, event: Value) -> None:
        match event:
            case local.Begun():
                self.begun.append(event)
            case local.Finished(ticket, outcome):
                self.outcomes[ticket] = outcome
            case local.Stored(ticket):
                self.outcomes[ticket] = event
            case local.NotStored(ticket, why):
                self.outcomes[ticket] = why
            case local.Positioned(_, _, offset):
                self.read_upto = self.acked = offset
            case local.Arrived(_, _, messages):
                self.read_upto = messages[-1].offset + 1
            case local.Given(_, _, token, messages):
                self.held += [(token, each.offset) for each in messages]
            case local.Lost(_, _, leases):
                self.lost.update(leases)
                self.held = [each for each in self.held if each not in leases]
            case local.Ended(_, name):
                self.open[name] = False
                self.held.clear()
                self.accepted.clear()
            case _:
                pass

    def act(self) -> None:
        self.rng.choice((self.put, self.begin, self.commit, self.read, self.read, self.work))()

    def value(self) -> bytes:
        return b"value %d" % (self.ticket + 1)

    def put(self) -> None:
        value = self.value()
        self.puts[self.ask(lambda ticket: local.Produce(ticket, "out", 1, packed(value)))] = value

    def begin(self) -> None:
        self.ask(lambda ticket: local.Begin(ticket, "source", "out", 1000.0))

    def commit(self) -> None:
        if not self.begun:
            return
        begun, value = self.begun.pop(0), self.value()
        data = packed(value)
        outputs = (Output("out", 1, len(data), data),)
        facts = ("source", begun.topic, begun.epoch, begun.number, 0, 0)
        end = EndTransaction(*facts, outputs=outputs)
        self.puts[self.ask(lambda ticket: local.End(ticket, end))] = value

    def read(self) -> None:
        if not self.open["s"]:
            self.open["s"], self.read_upto, self.acked = True, 0, 0
            self.ask(lambda _: local.Read(*READER))
        elif self.read_upto:
            upto, end = self.rng.randint(self.acked, self.read_upto), self.read_upto
            self.acked = upto
            draw = self.rng.random()
            if draw < 0.3:
                self.ask(lambda _: local.Want(*READER, end, upto))
            else:
                self.open["s"] = draw < 0.6
                kind = local.Settle if draw < 0.6 else local.Leave
                self.acks[self.ask(lambda ticket: kind(ticket, *READER, end, upto))] = upto

    def work(self) -> None:
        if not self.open["w"]:
            self.open["w"] = True
            self.ask(lambda _: local.Join(*WORKER, 3))
        elif self.held and self.rng.random() < 0.7:
            lease = self.held.pop(0)
            self.accepted.append(lease)
            self.ask(lambda _: local.Handle(*WORKER, accept=(lease,)))
        elif self.accepted:
            ticket = self.ask(lambda ticket: local.Confirm(ticket, *WORKER))
            self.confirms[ticket], self.accepted = self.accepted, []

    # -- the storm --

    def send(self, loss: float = LOSS) -> None:
        if self.to_node:
            message = self.to_node.pop(0)
            if self.rng.random() >= loss:
                self.to_client += self.desk.send(BOB, message)

    def deliver(self, loss: float = LOSS) -> None:
        if self.to_client:
            message = self.to_client.pop(0)
            if self.rng.random() >= loss:
                self.lone.hear(message)
                self.collect()

    def wait(self, seconds: float) -> None:
        self.desk.pass_time(seconds)
        self.to_client += self.desk.took(BOB)
        self.lone.wait(seconds)
        self.collect()

    def change_rule(self) -> None:
        rule = self.rng.choice(RULES)
        verb, topic = rule
        if rule in self.granted:
            del self.granted[rule]
            self.desk.disallow("bob", verb, topic=topic)
        else:
            self.granted[rule] = None
            self.desk.allow("bob", verb, topic=topic)
        self.to_client += self.desk.took(BOB)

    def run(self) -> None:
        for _ in range(self.rng.randint(40, 160)):
            draw = self.rng.random()
            if draw < 0.25:
                self.act()
            elif draw < 0.5:
                self.send()
            elif draw < 0.75:
                self.deliver()
            elif draw < 0.92:
                self.wait(self.rng.choice((0.01, 0.1, 0.6, 2.0)))
            else:
                self.change_rule()
        for rule in [each for each in RULES if each not in self.granted]:
            self.desk.allow("bob", rule[0], topic=rule[1])
        end = self.lone.now + SILENCE
        while self.lone.now < end:
            while self.to_node or self.to_client:
                self.send(0.0)
                self.deliver(0.0)
            self.wait(0.5)

    # -- the end --

    def stored(self) -> list[bytes]:
        index = self.desk.service.machine.registry.topics["out"].index
        extents = index.extents(index.first, 1 << 30, 1 << 62)
        batches = [self.desk.service.batch_at(each.slot, "out").batch for each in extents]
        return [value for each in batches for value in batch.values(each)]

    def check(self) -> None:
        stored = self.stored()
        for ticket, value in self.puts.items():
            outcome, count = self.outcomes[ticket], stored.count(value)
            done = isinstance(outcome, local.Stored | results.TransactionEnded)
            denied = isinstance(outcome, errors.Denied)
            assert count <= 1, f"{value!r} is stored {count} times"
            assert count or not done, f"{value!r} is lost: {outcome}"
            assert not (count and denied), f"{value!r} is stored: {outcome}"
        subscriptions = self.desk.service.machine.registry.topics["in"].subscriptions
        for ticket, upto in self.acks.items():
            outcome = self.outcomes[ticket]
            refused = isinstance(outcome, errors.Refusal | local.NoAnswer)
            assert refused or upto <= subscriptions["s"].cursor, f"{upto} is lost: {outcome}"
        queue = subscriptions["w"].queue
        assert queue is not None
        for ticket, leases in self.confirms.items():
            if isinstance(self.outcomes[ticket], results.Settled):
                left = [each for each in leases if each[1] in queue.open and each not in self.lost]
                assert left == []


def storm(seed: int) -> None:
    made = Storm(seed)
    made.run()
    made.check()


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(30, 600, PER_TEST))
def test_outcomes_are_true_while_permissions_change(first: int) -> None:
    """SVC-7 SEC-2 TXN-1 WRK-3"""
    for seed in range(first, first + PER_TEST):
        storm(seed)


@pytest.mark.mutants
def test_storm_finds_a_reader_that_hides_denied_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of this file detect a lost acknowledgement."""

    def detach(self: Reader, then: Callable[[Any], None], timeout: float) -> None:
        where = (self.topic, self.subscription, self.epoch)
        self._calls.do(do.Ack(*where, self._acks.upto), lambda _: None, timeout)
        self._calls.do(do.Detach(*where, self._acks.upto), then, timeout)

    monkeypatch.setattr(Reader, "_detach", detach)
    with pytest.raises(AssertionError, match="is lost"):
        for seed in range(200):
            storm(seed)
