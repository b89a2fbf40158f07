"""The Kafka brokers that clients see: the nodes that serve Kafka clients, and their leadership.

A front end in a node's process names the node that leads the owner of a topic as the leader of its
partition. If another node leads, it refuses to put and get, so the client connects to that node. A
front end in a process of its own names only itself.

The coordinator of a consumer group is the leader of the topic with the name of the group. The name
of a transactional id decides its coordinator in the same way. So all front ends agree without
talking to each other. No such topic needs to exist.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable

from oncecast.errors import BadAddress
from oncecast.kafka.backend import Backend
from oncecast.kafka.messages import MetadataBroker
from oncecast.kernel.protocol import Protocol, Value
from oncecast.network.addresses import split
from oncecast.wire.frames import ArcView, BrokerView

TIMEOUT = 10.0
FRESH = 10.0  # seconds for which an address is used without another look
FORGET_AFTER = 30.0  # seconds after which a broker is no longer named
NEVER = -1e9
LEADERS_MAX = 100_000  # topics whose leader the front end remembers; it looks up other topics again

Found = Callable[[MetadataBroker | None], None]


def broker_id(process: str) -> int:
    """Return the id of a node, which only its address decides. So the id outlives a restart."""
    return zlib.crc32(process.encode()) & 0x7FFFFFFF


def process_of(node: str) -> str:
    return node.partition("/")[0]


class Brokers:
    def __init__(
        self,
        host: Protocol,
        backend: Backend,
        own: MetadataBroker,
        *,
        process: str,  # the node's address, or "" for a front end in a process of its own
        node_of: Callable[[str], str],  # returns the node that requests about a topic go to
    ) -> None:
        self._host, self._backend, self.own = host, backend, own
        self._process, self._node_of = process, node_of
        self._known: dict[str, tuple[MetadataBroker, float]] = {}  # with the time, by process
        self._leaders: OrderedDict[str, str] = OrderedDict()  # processes by topic
        self._told: dict[str, float] = {}  # when each process was last seen as a leader
        self._of_group = ""  # the leader of all topics, outside a ring
        self._looking: dict[str, list[Found]] = {}  # requests that wait, by topic

    @property
    def alone(self) -> bool:
        """Return whether this front end names only itself."""
        return not self._process

    def all(self) -> tuple[MetadataBroker, ...]:
        """Return all brokers that have been seen lately, with the own one first."""
        since = self._host.now - FORGET_AFTER
        self._told = {name: time for name, time in self._told.items() if time >= since}
        self._known = {name: each for name, each in self._known.items() if each[1] >= since}
        others = [each for name, (each, _) in self._known.items() if name != self._process]
        return (self.own, *others)

    def locate(self, topic: str, then: Found) -> None:
        """Call `then` with the leader of a topic, or with None if no node answers."""
        if self.alone:
            then(self.own)
            return
        waiting = self._looking.setdefault(topic, [])
        waiting.append(then)
        if len(waiting) > 1:
            return

        def seen(outcome: Value) -> None:
            leader = None
            if isinstance(outcome, BrokerView):
                leader = self._learned(outcome)
                self._leaders[topic] = process_of(outcome.node)
                self._leaders.move_to_end(topic)
                if len(self._leaders) > LEADERS_MAX:
                    self._leaders.popitem(last=False)
            for each in self._looking.pop(topic):
                each(leader)

        self._backend.find_broker(topic, seen, TIMEOUT)

    def survey(self, arcs: list[ArcView | None], then: Callable[[], None]) -> None:
        """Learn the brokers of the groups of a ring, or of the group (None), then call `then`."""
        left = len(arcs)
        if self.alone:
            then()
            return

        def seen(outcome: Value) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, BrokerView):
                self._learned(outcome)
            if not left:
                then()

        for arc in arcs:
            self._backend.find_broker("", seen, TIMEOUT, arc)

    def _learned(self, view: BrokerView) -> MetadataBroker:
        """Note the brokers of a group. Return the leader, or this front end in its place.

        A leader that does not serve Kafka clients has no broker. Any front end can do its work.
        """
        for node, address in view.brokers:
            process = process_of(node)
            try:
                host, port = split(address)
            except BadAddress:
                continue
            broker = MetadataBroker(node_id=broker_id(process), host=host, port=port)
            self._known[process] = (broker, self._host.now)
        leader = process_of(view.node)
        self._of_group = leader if leader == view.node else ""
        self._told[leader] = self._host.now
        if all(process_of(node) != leader for node, _ in view.brokers):
            self._known.pop(leader, None)
        return self._broker_of(leader)

    def _broker_of(self, process: str) -> MetadataBroker:
        known = self._known.get(process)
        return self.own if known is None or process == self._process else known[0]

    def leader(self, topic: str) -> MetadataBroker | None:
        """Return the leader of a topic, or None if it is unknown or may have changed."""
        if self.alone:
            return self.own
        process = self._of_group or self._leaders.get(topic)
        if process is None or process_of(self._node_of(topic)) != process:
            return None
        if self._host.now - self._told.get(process, NEVER) > FRESH:
            return None
        return self._broker_of(process)

    def is_elsewhere(self, topic: str) -> bool:
        """Return whether another broker certainly leads the topic.

        If the leader is unknown, look it up for later requests. This front end can serve the topic
        in any case.
        """
        leader = self.leader(topic)
        if leader is None:
            self.locate(topic, lambda _: None)
        return leader is not None and leader is not self.own

    def check(self, topic: str, then: Callable[[bool], None]) -> None:
        """Call `then` with whether this front end is the place for a topic. Look it up if needed.

        Without an answer, this front end is the place, because it can serve any topic.
        """
        leader = self.leader(topic)
        if leader is None:
            self.locate(topic, lambda found: then(found is None or found is self.own))
        else:
            then(leader is self.own)
