"""Apply random commands to a machine and its model, and compare both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from oncecast.broker.machine import Machine
from oncecast.wire import commands as do
from oncecast.wire import results as done
from oncecast.wire.limits import LIMITS, Limits
from oncecast.wire.retention import DEFAULT, Policy
from tests.broker.machine_model import Model

Choose = Callable[[Sequence[Any]], Any]

TOPICS = ["a", "b"]
NAMES = ["p", "q"]
LIVES = ["x", "y", "z"]
RUNS = ["", "", "", "one", "two", "three"]
SOON_IDLE = msgspec.structs.replace(LIMITS, producer_idle_us=30, source_idle_us=30)
POLICIES = [
    DEFAULT,
    Policy(age_us=15),
    Policy(bytes_max=250),
    Policy(age_us=15, bytes_max=250, drop_unread=True),
    Policy(bytes_max=150, drop_unread=True),
    Policy(keep_all=True),
]
ALL = 1 << 30


class Pair:
    """Applies every command to a machine and its model, and compares their visible state."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  # frozen
        self.machine, self.model = Machine(limits), Model(limits)
        self.log: dict[int, do.Put | do.Stage] = {}
        self.slot, self.now = -1, 0
        self.cursors: dict[tuple[int, str, int], int] = {}
        self.bounds: dict[int, tuple[int, int]] = {}
        self.history: list[tuple[int, do.Command]] = []

    def apply(self, command: do.Command) -> done.Result:
        self.slot += 3
        if isinstance(command, do.Put | do.Stage):
            self.log[self.slot] = command
        elif isinstance(command, do.Carry):
            self.log[self.slot] = command.command
        self.history.append((self.slot, command))
        expected = self.model.apply(self.slot, command)
        result = self.machine.apply(self.slot, command)
        if isinstance(result, done.Already) and result.offset < 0:
            assert isinstance(expected, done.Already)
        else:
            assert result == expected, f"{command}: {result}, not {expected}"
        self.check()
        return result

    def check(self) -> None:
        assert list(self.machine.registry.topics) == list(self.model.topics)
        for name in self.model.topics:
            self._check_messages(name)
            self._check_rules(name)
        needed = self.model.live_slots()
        assert self.machine.needed() == (needed[0][0] if needed else self.slot + 1)
        half = self.slot // 2
        extents = sorted((each.slot, each.offset) for _, each in self.machine.extents_before(half))
        assert extents == [each for each in needed if each[0] < half]

    def snapshot(self) -> None:
        """Continue with a restored copy, which must equal the original."""
        copy = Machine.restore(list(self.machine.state()))
        assert copy.checksum() == self.machine.checksum()
        assert b"".join(copy.state()) == b"".join(self.machine.state())
        self.machine = copy
        self.check()

    def _check_messages(self, name: str) -> None:
        """Check that each expected message exists once, in order, with its producer."""
        topic = self.model.topics[name]
        assert self.machine.bounds(name) == (topic.first, topic.next)
        found = []
        for extent in self.machine.fetch(name, 0, ALL, ALL):
            command = self.log[extent.slot]
            for position in range(extent.count):
                if isinstance(command, do.Put):
                    whose, sequence = command.producer, command.sequence + extent.skip
                else:
                    whose, sequence = command.source, extent.sequence
                found.append(
                    (
                        extent.offset + position,
                        extent.slot,
                        extent.skip + position,
                        whose,
                        sequence + position,
                    )
                )
        assert found == [
            (offset, each.batch.slot, each.position, each.producer, each.sequence)
            for offset, each in enumerate(topic.messages)
            if not each.gone
        ]

    def _check_rules(self, name: str) -> None:
        """Check the invariants of the machine."""
        topic = self.machine.registry.topics[name]
        first, end = self.machine.bounds(name)
        first_before, end_before = self.bounds.get(topic.id, (0, 0))
        assert first_before <= first <= end
        assert end >= end_before, "an offset would be assigned twice"
        self.bounds[topic.id] = first, end
        for label, each in topic.subscriptions.items():
            key = (topic.id, label, each.epoch)
            assert each.cursor >= self.cursors.get(key, 0), "a cursor moved back without a seek"
            assert each.cursor <= end
            self.cursors[key] = each.cursor
            if first > first_before and not topic.policy.drop_unread:
                assert first <= each.cursor, "messages above the low-water mark were deleted"
        for each in topic.subscriptions.values():
            reached = self.machine.fetch(name, max(each.cursor, first), ALL, ALL)
            assert sum(extent.count for extent in reached) == end - max(each.cursor, first)


class Troublemaker:
    """Creates random commands: mostly valid, sometimes stale, repeated, split or out of order."""

    def __init__(self, pair: Pair, choose: Choose) -> None:
        self.pair, self.choose = pair, choose
        self.tokens = 0

    def at(self) -> int:
        self.pair.now += self.choose([0, 0, 1, 5])
        return self.pair.now - int(self.choose([0, 0, 3]))

    def topic(self) -> str:
        return str(self.choose(TOPICS))

    def name(self) -> str:
        return str(self.choose(NAMES))

    def start(self) -> do.Start:
        offset = self.choose(range(12))
        start: do.Start = self.choose(
            [do.FromNew(), do.FromEarliest(), do.FromOffset(offset), do.FromTime(self.pair.now - 5)]
        )
        return start

    def epoch_of(self, known: Any) -> int:
        """Return the current epoch in most cases."""
        present = known.epoch if known is not None else 1
        return int(self.choose([present, present, present, present, max(present - 1, 0)]))

    def create(self) -> do.Command:
        return do.CreateTopic(self.topic(), self.at(), self.choose(POLICIES))

    def set_policy(self) -> do.Command:
        return do.SetPolicy(self.topic(), self.at(), self.choose(POLICIES))

    def delete(self) -> do.Command:
        return do.DeleteTopic(self.topic(), self.at())

    def tick(self) -> do.Command:
        return do.Tick(self.at(), producers=self.choose([True, False]))

    def open(self) -> do.Command:
        create = self.choose([True, True, False])
        directory_id = self.choose(["", "", "one", "two"])
        name, label = self.topic(), self.name()
        producer = self._known(name, label, "producers")
        expected = self._expected(producer.epoch if producer else 0)
        return do.OpenProducer(
            name, label, self.choose(LIVES), self.at(), create, directory_id, expected
        )

    def _expected(self, current: int) -> int:
        """Return the current epoch or ANY_EPOCH in most cases, sometimes another epoch."""
        others = [0, max(current - 1, 0), current + 1]
        return int(self.choose([do.ANY_EPOCH, do.ANY_EPOCH, current, current, current, *others]))

    def put(self) -> do.Command:
        name, label, producer = self._one_of("producers")
        expected = producer.next if producer else 0
        sequence = max(0, expected + self.choose([0, 0, 0, 0, -1, -2, -5, 1]))
        count, size = self.choose([1, 2, 3, 4]), self.choose([10, 100])
        return do.Put(name, label, self.epoch_of(producer), sequence, count, size, self.at(), b"")

    def close(self) -> do.Command:
        name, label, producer = self._one_of("producers")
        return do.CloseProducer(name, label, self.epoch_of(producer))

    def subscribe(self) -> do.Command:
        return do.Subscribe(self.topic(), self.name(), self.start(), self.at())

    def unsubscribe(self) -> do.Command:
        return do.Unsubscribe(self.topic(), self.name(), self.at())

    def attach(self) -> do.Command:
        name, label = self.topic(), self.name()
        known = self._known(name, label, "subscriptions")
        current = known.epoch if known is not None and known.incarnation else 0
        return do.Attach(name, label, self.choose(LIVES), self._expected(current))

    def detach(self) -> do.Command:
        name, label, epoch, offset = self._reader()
        return do.Detach(name, label, epoch, offset)

    def ack(self) -> do.Ack:
        return do.Ack(*self._reader())

    def acks(self) -> do.Command:
        return do.Acks((self.ack(), self.ack()), self.at())

    def seek(self) -> do.Command:
        name, label, epoch, _ = self._reader()
        self.tokens += self.choose([1, 1, 0])
        used, epoch = epoch, self.choose([0, epoch])
        expected = self._expected(used)
        token = f"token {self.tokens}"
        return do.Seek(name, label, self.start(), self.at(), token, epoch, expected)

    def raise_level(self) -> do.Command:
        return do.SetLimits(self.pair.model.limits, do.SEEK_LEVEL)

    def stage(self) -> do.Command:
        part = self.choose(["0", "1", "2"])
        count, size = self.choose([1, 2, 3]), self.choose([10, 100])
        number = self._number()
        run = self.choose(RUNS)
        return do.Stage("p", number, part, self.topic(), count, size, self.at(), b"", run)

    def publish(self) -> do.Command:
        number = self._number()
        source = self.pair.model.sources.get("p")
        staged = [part for at, part in source.staged if at == number] if source else []
        parts = tuple(reversed(staged)) if self.choose([True, True, False]) else ("0", "2")
        refused = self.pair.model.refused
        expected = self.choose([do.ANY_EPOCH, refused, refused, 0])
        run = self.choose(RUNS)
        return do.PublishStaged("p", number, parts, self.at(), expected=expected, run=run)

    def drop(self) -> do.Command:
        renew, run = self.choose([True, False]), self.choose(RUNS)
        return do.DropStaged("p", self._number(), run=run, renew=renew)

    def close_source(self) -> do.Command:
        return do.CloseSource("p", self.at(), renew=self.choose([True, False]))

    def carry(self) -> do.Command:
        live_slots = self.pair.model.live_slots()
        if not live_slots:
            return self.tick()
        slot, offset = self.choose(live_slots)
        return do.Carry(slot + self.choose([0, 0, 0, 1]), offset, self.pair.log[slot])

    def repeat(self) -> do.Command:
        """Repeat an earlier command, as after a lost reply."""
        recent = [command for _, command in self.pair.history[-12:]]
        command: do.Command = self.choose(recent) if recent else self.tick()
        return self.tick() if isinstance(command, do.Carry) else command

    def _one_of(self, what: str) -> tuple[str, str, Any]:
        """Return an existing name in most cases, with its record."""
        topics = self.pair.machine.registry.topics
        known = [(name, each) for name, topic in topics.items() for each in getattr(topic, what)]
        name, label = self.choose([*(known * 3), (self.topic(), self.name())])
        return name, label, self._known(name, label, what)

    def _known(self, name: str, label: str, what: str) -> Any:
        return getattr(self.pair.machine.registry.topics.get(name), what, {}).get(label)

    def _number(self) -> int:
        source = self.pair.model.sources.get("p")
        return max(0, (source.last if source else -1) + int(self.choose([1, 1, 1, 2, 0, -1])))

    def _reader(self) -> tuple[str, str, int, int]:
        name, label, known = self._one_of("subscriptions")
        _, end = self.pair.machine.bounds(name)
        cursor = known.cursor if known else 0
        offset = self.choose([cursor + 1, cursor + 2, end, end, cursor, max(cursor - 1, 0)])
        return name, label, self.epoch_of(known), offset


WEIGHTS = {
    "put": 12, "ack": 5, "acks": 2, "open": 4, "subscribe": 4, "attach": 4, "stage": 4,
    "publish": 3, "repeat": 4, "seek": 2, "detach": 1, "unsubscribe": 1, "close": 1,
    "create": 1, "set_policy": 1, "tick": 1, "drop": 1, "carry": 3, "delete": 1, "close_source": 1,
    "raise_level": 1,
}  # fmt: skip


def random_run(seed: int, steps: int) -> Pair:
    rng, pair = Random(seed), Pair(SOON_IDLE)
    trouble = Troublemaker(pair, rng.choice)
    kinds = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
    for _ in range(steps):
        pair.apply(getattr(trouble, rng.choice(kinds))())
        if rng.random() < 0.05:
            pair.snapshot()
    return pair
