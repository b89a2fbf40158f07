"""Run random moves while a client puts, reads and acknowledges messages.

Messages are reordered, lost and duplicated; leaders change; groups join and leave.
"""

from __future__ import annotations

from random import Random
from unittest.mock import patch

from oncecast.broker.moves import Retire
from oncecast.kernel.protocol import NodeId, Value
from oncecast.ring import exporter
from oncecast.wire import commands as do
from oncecast.wire import results as done
from tests.ring.pair import GIVER, LOOKUP, MESSAGES, MINE, TAKER, Group, World, arcs_are_apart

STEPS = 250
ROWS_BYTES_MAX = exporter.ROWS_BYTES_MAX
LEADERS_MAX = 4  # leader changes in a group during the move


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(self.rng)
        self.world.spoil = self.spoil
        self.put, self.acked, self.reader_id, self.epoch = MESSAGES, 0, 0, 0
        self.topic_id = 1
        # The size of the metadata varies with the rules, so it may exceed the limit at times.
        self._sizes = Random(f"{seed}/sizes")
        # Fraction of the steps with oversized metadata.
        self._oversized = self._sizes.choice((0.0, 0.0, 0.2, 0.5))

    def spoil(self, sender: NodeId, to: NodeId, message: Value) -> int:
        return 1 if to == LOOKUP else self.rng.choices((0, 1, 2), (5, 90, 5))[0]

    def go(self) -> None:
        rng, world = self.rng, self.world
        world.found(TAKER)
        comes = rng.choice(("", "", "g-0", "g-5", "g-b"))
        goes = rng.choice(("", "", TAKER, GIVER))
        when = [rng.randrange(STEPS) for _ in range(2)]
        for step in range(STEPS):
            self.step()
            if step == when[0] and comes:
                world.found(comes)
            if step == when[1] and goes in world.groups:
                group = world.groups[goes]
                if group.leader.mover.holdings is not None and len(world.groups) > 1:
                    group.apply(Retire())
        self.calm()

    def step(self) -> None:
        rng, world = self.rng, self.world
        oversized = self._sizes.random() < self._oversized
        with patch.object(exporter, "ROWS_BYTES_MAX", 10 if oversized else ROWS_BYTES_MAX):
            world.step()
        if rng.random() < 0.1:
            world.remove_gone_groups()
        arcs_are_apart(world)
        if rng.random() < 0.3:
            self.use()
        if rng.random() < 0.03:
            group = rng.choice(list(world.groups.values()))
            if len(group.replicas) < LEADERS_MAX:
                group.new_leader()

    def calm(self) -> None:
        self.world.rng = None
        self.world.spoil = lambda *_: 1

        def over() -> bool:
            self.world.remove_gone_groups()
            arcs_are_apart(self.world)
            return self.world.settled

        self.world.run(over)
        self.check()

    # -- the client --

    def owner(self) -> Group | None:
        """Return the group that accepts a put now."""
        owners = self.world.owners(MINE)
        return self.world.groups[owners[0]] if owners else None

    def use(self) -> None:
        owner = self.owner()
        if owner is None:
            return
        act = self.rng.choice((self.put_one, self.put_one, self.acknowledge, self.attach))
        act(owner)

    def put_one(self, owner: Group) -> None:
        opened = owner.result(do.OpenProducer(MINE, "p", "inc-1", 0))
        assert isinstance(opened, done.Opened), opened
        assert opened.next_sequence == self.put, (
            f"{self.put} messages were put, but the answer is {opened}"
        )
        assert opened.topic_id == self.topic_id, f"the topic id has changed: {opened}"
        again = owner.result(do.Put(MINE, "p", opened.epoch, self.put - 1, 1, 100, 0, b"bytes"))
        assert isinstance(again, done.Already), again
        put = owner.result(do.Put(MINE, "p", opened.epoch, self.put, 1, 100, 0, b"bytes"))
        assert isinstance(put, done.Appended), put
        self.put += 1

    def attach(self, owner: Group) -> None:
        attached = owner.result(do.Attach(MINE, "s", f"inc-{self.rng.random()}"))
        assert isinstance(attached, done.Attached), attached
        assert attached.epoch > self.epoch, "the epoch has not increased"
        assert attached.cursor == self.acked, f"the cursor is {attached.cursor}, not {self.acked}"
        self.epoch = attached.epoch

    def acknowledge(self, owner: Group) -> None:
        if self.epoch and self.acked < self.put:
            upto = self.rng.randint(self.acked, self.put)
            owner.apply(do.Acks((do.Ack(MINE, "s", self.epoch, upto),), 0))
            self.acked = max(self.acked, upto)

    def check(self) -> None:
        owner = self.owner()
        assert owner is not None, "no group owns the topic"
        kept = self.world.kept(MINE)
        assert kept == list(range(self.acked, self.put)), (
            f"kept {kept}, not {self.acked}..{self.put}"
        )
        self.put_one(owner)
        self.attach(owner)
        owner.apply(do.DeleteTopic(MINE, 0))
        subscribed = owner.result(do.Subscribe(MINE, "s", do.FromNew(), 0))
        assert isinstance(subscribed, done.Subscribed), subscribed
        assert subscribed.topic_id > self.topic_id, "the topic id has not increased"
