"""A ring of three processes, each with its own group and replicas of the other two."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncecast import blocking
from oncecast.client.starts import EARLIEST
from oncecast.node.directory import RING
from tests.live.replicas import PATIENCE, Replica, Replicas, until
from tests.network.talk import port_of, reserve

pytestmark = pytest.mark.long

TOPICS = [f"topic-{number}" for number in range(6)]


class RingReplicas(Replicas):
    def __init__(self, directory: Path, count: int) -> None:
        self.pages: dict[str, int] = {}
        self.all = []
        for number in range(count):
            with reserve() as free:
                page = port_of(free)
            founds = () if number else ("--own-group",)  # a node that joins a ring needs no flag
            each = Replica(directory, "--http", f"127.0.0.1:{page}", *founds)
            self.all.append(each)
            self.pages[each.address] = page

    def start(self) -> None:
        for number, each in enumerate(self.all):
            each.start(*self.addresses[:number])

    def health(self, process: Replica) -> dict[str, Any] | None:
        try:
            url = f"http://127.0.0.1:{self.pages[process.address]}/health"
            with urllib.request.urlopen(url, timeout=PATIENCE) as page:
                known: dict[str, Any] = json.load(page)
        except OSError:
            return None
        return known

    def whole(self) -> dict[str, str]:
        """Wait until all groups are complete. Return the leader of each group."""
        return until("all groups have replicas and leaders", self._leaders, self._logs)

    def _leaders(self) -> dict[str, str] | None:
        running = [each for each in self.all if each.process is not None]
        views = [health["groups"] for each in running if (health := self.health(each))]
        if len(views) < len(running) or any(len(groups) < len(self.all) for groups in views):
            return None
        leaders = [{name: known["leader"] for name, known in groups.items()} for groups in views]
        settled = all(
            known["quorum"] and known["role"] in ("leader", "replica")
            for groups in views
            for known in groups.values()
        )
        alike = all(each == leaders[0] for each in leaders)
        here = tuple(each.address for each in running)
        there = all(leader.startswith(here) for leader in leaders[0].values())
        return leaders[0] if settled and alike and there else None


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingReplicas]:
    made = RingReplicas(tmp_path_factory.mktemp("ring"), 3)
    try:
        made.start()
        yield made
    finally:
        made.close()


def put(server: str, value: bytes) -> None:
    """Put a message in each topic."""
    with blocking.connect(server) as client:
        for topic in TOPICS:
            client.create_topic(topic)
            client.subscribe(topic, "all", start=EARLIEST).close()
            client.put(topic, value)


def read(server: str, count: int) -> dict[str, list[bytes]]:
    """Return the values in each topic, when each has at least `count`."""
    found: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    with blocking.connect(server) as client:
        for topic, values in found.items():
            with client.read(topic, "all", auto_ack=False) as reading:
                while len(values) < count:
                    more = reading.get_many(count, PATIENCE)
                    assert more, f"{topic} has only {values}"
                    values += [message.value for message in more]
    return found


def every(values: list[bytes]) -> dict[str, list[bytes]]:
    return dict.fromkeys(TOPICS, values)


def own_group(process: Replica) -> str:
    return str(json.loads((process.data / RING).read_text())["group"])


def test_each_process_has_a_replica_of_each_group(ring: RingReplicas) -> None:
    groups = sorted(ring.whole())
    assert groups == sorted(map(own_group, ring.all))
    for each in ring.all:
        assert sorted(path.name for path in (each.data / "groups").iterdir()) == groups


def test_client_finds_all_topics_through_any_process(ring: RingReplicas) -> None:
    """SVC-10"""
    ring.whole()
    for number, each in enumerate(ring.all):
        put(each.address, b"%d" % number)
    for each in ring.all:
        assert read(each.address, 3) == every([b"0", b"1", b"2"])


def test_groups_survive_a_killed_process_which_can_return(ring: RingReplicas) -> None:
    """SVC-10"""
    victim = ring.all[0]
    group = own_group(victim)
    victim.end(signal.SIGKILL)
    put(ring.all[1].address, b"3")
    assert read(ring.all[2].address, 4) == every([b"0", b"1", b"2", b"3"])
    victim.start()  # its directory contains the addresses of the other processes
    assert len(ring.whole()) == 3
    assert own_group(victim) == group
    assert len(read(victim.address, 4)) == len(TOPICS)


def test_stopping_process_hands_over_every_group_it_leads(
    ring: RingReplicas,
) -> None:
    """REP-4: another process leads each group before the stopping process ends."""
    leaders = ring.whole()
    process = next(iter(leaders.values())).partition("/")[0]
    stopped = ring.named(process)
    led = sorted(group for group, leader in leaders.items() if leader.partition("/")[0] == process)
    assert stopped.end(signal.SIGTERM) == 0
    said = dict(re.findall(r"handed_over group=(\S+) to=(\S+)", stopped.log.read_text()))
    assert sorted(said) == led
    for group, leader in said.items():
        with blocking.connect(leader) as client:
            assert client.group().leader == leader, group
    stopped.start()
    ring.whole()


def test_restarted_ring_has_the_same_groups(ring: RingReplicas) -> None:
    """SVC-10"""
    groups = sorted(ring.whole())
    assert [each.end(signal.SIGTERM) for each in ring.all] == [0, 0, 0]
    for each in ring.all:
        each.start()
    assert sorted(ring.whole()) == groups
    put(ring.all[0].address, b"4")
    assert read(ring.all[1].address, 5) == every([b"0", b"1", b"2", b"3", b"4"])
