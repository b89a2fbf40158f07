"""Apply random commands to a shared subscription and its model, and compare both at every step."""

from __future__ import annotations

from random import Random

from oncecast.broker.endings import Grant
from oncecast.broker.machine import Machine
from oncecast.broker.queue import BLOCKED, DEAD, WAITING, Queue
from oncecast.lab.scenarios import shared_model as model
from oncecast.lab.scenarios.shared_model import SharedModel
from oncecast.wire import commands as do
from oncecast.wire.results import Buried, Result, SettlesDone, Sought
from oncecast.wire.sharing import Settle, Shared
from tests.broker.machine_steps import Steps

WORKERS = ["ann", "bob", "cat"]
NAMES = {WAITING: model.WAITING, BLOCKED: model.BLOCKED, DEAD: model.DEAD}


class SharedPair:
    def __init__(self, settings: Shared) -> None:
        self.steps = Steps()
        self.steps.apply(do.SubscribeShared("t", "s", do.FromNew(), self.steps.now, settings))
        self.epoch = self.steps.open()
        self.model = SharedModel(settings, self.steps.machine.registry.last_epoch)
        self.holders: dict[
            int, set[tuple[str, int]]
        ] = {}  # the workers and tokens so far, by offset
        self.accepted: dict[int, int] = {}

    @property
    def queue(self) -> Queue:
        found = self.steps.machine.registry.topics["t"].subscriptions["s"].queue
        assert found is not None
        return found

    def put(self, keys: list[int]) -> None:
        self.steps.put(self.epoch, len(self.model.messages), len(keys))
        self.model.append(keys)
        self.check()

    def lease(self, wants: dict[str, int], gone: tuple[str, ...] = (), known: int = 4) -> Result:
        fresh = self.queue.next
        keys = tuple(each.key for each in self.model.messages[fresh : fresh + known])
        pairs = tuple(wants.items())
        command = do.Lease("t", "s", self.steps.now, pairs, gone, fresh, keys)
        leased = self.steps.apply(command)
        expected = self.model.lease(self.steps.now, pairs, gone, len(keys))
        assert leased == expected, f"{command}: {leased}, not {expected}"
        for grant in expected.grants:
            for first, count in grant.runs:
                for offset in range(first, first + count):
                    self._handed_out(offset, grant.worker, grant.token)
        self.check()
        return leased

    def _handed_out(self, offset: int, worker: str, token: int) -> None:
        before = self.holders.setdefault(offset, set())
        assert all(token > earlier for _, earlier in before), "a token did not increase"
        assert offset not in self.accepted, "an accepted message was delivered again"
        before.add((worker, token))

    def settle(self, *settles: Settle) -> Result:
        held = {each: set(self.model.held(each)) for each in WORKERS}
        done = self.steps.apply(do.Settles(settles, self.steps.now))
        expected = tuple(self.model.settle(each, self.steps.now) for each in settles)
        assert done == SettlesDone(expected), f"{settles}: {done}, not {expected}"
        for offset in self.model.in_state(model.DONE):
            owners = [name for name, offsets in held.items() if offset in offsets]
            assert len(owners) <= 1
            self.accepted.setdefault(offset, 0)
        self.check()
        return done

    def bury(self) -> None:
        offsets = tuple(self.model.in_state(model.DEAD))
        put = do.Put("{t}.dead.s", "p", 0, 0, len(offsets), 10, 0, b"letters")
        begin = self.steps.machine.bounds("{t}.dead.s")[1]
        done = self.steps.apply(do.Bury("t", "s", offsets, self.steps.now, put))
        assert done == (Buried(True, begin) if offsets else Buried(False))
        self.model.bury(offsets)
        self.check()

    def seek(self, offset: int) -> None:
        steps = self.steps
        token = f"seek {steps.slot}"
        start = do.FromOffset(offset)
        done = steps.apply(do.Seek("t", "s", start, steps.now, token))
        assert isinstance(done, Sought)
        self.model.seek(done.cursor)
        self.holders.clear()
        self.accepted.clear()
        self.check()

    def snapshot(self) -> None:
        machine = self.steps.machine
        copy = Machine.restore(list(machine.state()))
        assert b"".join(copy.state()) == b"".join(machine.state())
        self.steps.machine = copy
        self.check()

    def check(self) -> None:
        queue, topic = self.queue, self.steps.machine.registry.topics["t"]
        assert topic.subscriptions["s"].cursor == self.model.cursor
        assert topic.index.first == self.model.cursor, "retention does not follow the cursor"
        opened = self.model.in_state(*model.OPEN)
        assert sorted(queue.open) == opened
        assert queue.leased == len(self.model.in_state(model.LEASED))
        assert queue.waiting == len(self.model.in_state(model.WAITING))
        busy: dict[int, int] = {}
        for offset in opened:
            message, found = self.model.messages[offset], queue.open[offset]
            assert queue.deliveries(offset) == message.deliveries
            if isinstance(found, Grant):
                held = (found.worker, found.token, found.until)
                assert held == (message.worker, message.token, message.time)
                if message.key and self.model.settings.by_key:
                    assert message.key not in busy, "two workers hold the same key"
                    busy[message.key] = offset
            else:
                assert NAMES[found] == message.state
            if message.state == model.DEAD:
                assert queue.dead[offset] == message.why
        most = self.model.settings.deliveries_max
        assert not most or all(each.deliveries <= most for each in self.model.messages)
        letters = self.steps.machine.bounds("{t}.dead.s")[1]
        assert letters == len(self.model.letters)
        for name in WORKERS:
            worker = queue.workers.get(name)
            assert (worker.held if worker else 0) == len(self.model.held(name))
            tokens = [token for token, _ in queue.held(name)]
            assert tokens == sorted({self.model.messages[o].token for o in self.model.held(name)})


def settings_of(rng: Random) -> Shared:
    return Shared(
        lease_us=rng.choice([1000, 3000]),
        deliveries_max=rng.choice([0, 1, 2, 4]),
        backoff_min_us=rng.choice([0, 500]),
        backoff_max_us=rng.choice([500, 1500, 9000]),
        in_flight_max=rng.choice([1, 4, 100]),
        by_key=rng.random() < 0.5,
    )


def random_settle(pair: SharedPair, rng: Random, number: int) -> Settle:
    """Return a settlement with runs that are mostly current, and sometimes stale or foreign."""
    worker = rng.choice(WORKERS)
    verbs: dict[str, list[tuple[object, ...]]] = {}
    for _ in range(rng.randrange(1, 4)):
        token, first, count = _run(pair, rng, worker)
        verb = rng.choice(["accept", "accept", "accept", "release", "reject", "unused", "renew"])
        rest: tuple[object, ...] = ()
        if verb == "release":
            rest = (rng.choice([-1, 0, 700]), rng.choice(["", "it failed"]))
        elif verb == "reject":
            rest = (rng.choice(["", "it is malformed"]),)
        verbs.setdefault(verb, []).append((token, first, count, *rest))
    found = {verb: tuple(some) for verb, some in verbs.items()}
    leave = rng.random() < 0.05
    return Settle("t", "s", worker, number, leave=leave, **found)  # type: ignore[arg-type]


def _run(pair: SharedPair, rng: Random, worker: str) -> tuple[int, int, int]:
    owner = worker if rng.random() < 0.8 else rng.choice(WORKERS)
    held = pair.model.held(owner)
    if held and rng.random() < 0.9:
        offset = rng.choice(held)
        return pair.model.messages[offset].token, offset, rng.choice([1, 1, 2])
    return rng.randrange(pair.model.token + 2), rng.randrange(len(pair.model.messages) + 2), 1


def shared_run(seed: int, steps: int = 60) -> None:
    rng = Random(seed)
    pair = SharedPair(settings_of(rng))
    last: Settle | None = None
    for number in range(1, steps + 1):
        pair.steps.now += rng.choice([0, 0, 100, 600, 1000, 2500])
        draw = rng.random()
        if draw < 0.2:
            pair.put([rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randrange(1, 5))])
        elif draw < 0.5:
            wants = {each: rng.choice([0, 1, 3, 10]) for each in rng.sample(WORKERS, 2)}
            gone = (rng.choice(WORKERS),) if rng.random() < 0.1 else ()
            pair.lease(wants if rng.random() < 0.95 else {}, gone, rng.choice([0, 2, 8]))
        elif draw < 0.85:
            last = random_settle(pair, rng, number)
            pair.settle(last, *([random_settle(pair, rng, number)] if draw > 0.8 else []))
        elif draw < 0.88 and last is not None:
            pair.settle(last)  # a late copy of the last settlement
        elif draw < 0.93:
            pair.bury()
        elif draw < 0.94:
            pair.seek(rng.randrange(len(pair.model.messages) + 1))
        else:
            pair.snapshot()
