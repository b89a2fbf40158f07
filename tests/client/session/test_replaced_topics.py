"""A durable client returns to a topic that was deleted and created again."""

from __future__ import annotations

import pytest

from oncecast.client.session import local
from oncecast.kernel.protocol import Value
from oncecast.wire import commands as do
from oncecast.wire.retention import Policy
from tests.client.session.client_world import TOPIC, App, Subscriber, World
from tests.client.session.test_idle_clients import Absent

BEFORE, TOTAL = 20, 30


class Replacer(App):
    """Deletes the topic, and creates it again with a policy that keeps every message."""

    done = False

    def begin(self) -> None:
        self.ask(local.Do(1, do.DeleteTopic(TOPIC, 0)))

    def hear(self, event: Value) -> None:
        match event:
            case local.Finished(1):
                self.ask(local.Do(2, do.CreateTopic(TOPIC, 0, Policy(keep_all=True))))
            case local.Finished(2):
                self.done = True
            case _:
                pass


def replaced(seed: int) -> None:
    """Kill the publisher after its last ack; replace the topic before it restarts."""
    world = World(seed)
    sim = world.sim
    publisher = Absent(world, "publisher", BEFORE, durable=True)
    while len(publisher.promised) < BEFORE:
        sim.run(until=sim.now + 0.01)
    sim.crash(publisher.me)
    replacer = Replacer(world, "replacer")
    world.run_until(lambda: replacer.done)
    publisher.puts = TOTAL
    sim.restart(publisher.me)
    world.run_until(lambda: publisher.put == TOTAL)
    sim.run(until=sim.now + 5.0)
    subscriber = Subscriber(world, "subscriber")
    sim.run(until=sim.now + 5.0)
    expected = [publisher.value(number) for number in range(BEFORE, TOTAL)]
    assert subscriber.seen == expected
    assert publisher.forgotten


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_message_is_not_resent_to_a_recreated_topic(seed: int) -> None:
    """SVC-2: later puts by the restarted client are stored in the new topic."""
    replaced(seed)
