"""The routes of a client, which map each topic to the group that owns it.

The route `entry` leads to the nodes that the application named. If they form a single group, it is
the only route, because the group owns all topics. A ring distributes topics over groups. There,
`entry` answers `Owned`, and the topic is bound to its group's route until that group answers
`NotHere`. The client then asks `entry` again, first at once and later with increasing pauses. When
a topic's route changes, all requests about the topic are resent, as after a lost link.

Bindings are a cache. Unused bindings are deleted, and so are routes without bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oncecast.client.session.local import NEVER
from oncecast.client.session.patience import RETRY_MAX
from oncecast.client.session.records import Rebound, Sweep
from oncecast.client.session.route import Pending, Route
from oncecast.kernel.backoff import backoff
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.wire.frames import ArcView, Owned

BOUND_MAX, GROUPS_MAX = 10_000, 128  # beyond these limits, only entries in use are kept
SWEEP_EVERY = 60.0  # seconds before an unused binding is deleted
MISS_MIN = 0.1  # seconds before the first retry; few, because topics move quickly
FORGIVEN_AFTER = 2 * RETRY_MAX  # seconds before a miss no longer counts


class Bound:
    """The route of one topic."""

    __slots__ = ("route", "used")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.used = True  # whether the binding was used since the last sweep


class Routes:
    """All routes of a client. `moved` returns the bytes that crossed the link to a node."""

    def __init__(
        self,
        host: Protocol,
        nodes: tuple[NodeId, ...],
        pending: Pending,
        moved: Callable[[NodeId], int] | None,
        *,
        any_replica: bool = False,  # start at any replica of a group, not at its leader
    ) -> None:
        self.any_replica = any_replica
        self._host, self._pending, self._moved = host, pending, moved
        self.entry = Route(host, "", nodes, self, pending)
        self.at: dict[NodeId, Route] = {}  # by current node
        self._groups: dict[str, Route] = {}  # by name
        self._bound: dict[str, Bound] = {}  # by topic
        self._fresh: dict[str, float] = {}  # when to resend requests, by topic
        self._due = NEVER  # the earliest of these times
        # The time of the last miss and the number of misses before it, by topic.
        self._misses: dict[str, tuple[float, int]] = {}
        self._bound_max, self._groups_max = BOUND_MAX, GROUPS_MAX

    def __iter__(self) -> Iterator[Route]:
        yield self.entry
        yield from self._groups.values()

    def of(self, topic: str) -> Route:
        """Return the route for requests about the topic, and mark it as used."""
        bound = self._bound.get(topic)
        if bound is None:
            return self.entry
        bound.used = True
        return bound.route

    def to(self, group: str) -> Route | None:
        return self._groups.get(group) if group else self.entry

    def moved(self, topic: str) -> int | None:
        """Return the bytes that crossed the topic's link, or None if not measured."""
        return None if self._moved is None else self._moved(self.of(topic).node)

    def bound_to(self, topic: str) -> Route:
        """Return the topic's route without marking it as used."""
        bound = self._bound.get(topic)
        return self.entry if bound is None else bound.route

    def whose(self, node: NodeId) -> Route | None:
        """Return the route whose nodes include `node`, or None if no route does.

        The route may currently use another of its nodes. Outside a ring, return the entry route.
        """
        if not self.entry.of_ring:
            return self.entry
        return next((route for route in self if node in route.nodes), None)

    # -- links --

    def begin(self) -> None:
        self._index()
        self._host.watch(self.entry.node)

    def left(self, node: NodeId) -> None:
        """Drop the link to a node that a route has left, unless another route uses it."""
        self._index()
        if node not in self.at:
            self._host.unwatch(node)

    def _index(self) -> None:
        self.at.clear()
        self.at.update({route.node: route for route in self})

    def _route_to(self, group: str, leader: str, nodes: tuple[str, ...]) -> Route:
        route = self._groups.get(group)
        if route is not None:
            route.hint(leader, nodes)
            return route
        if not self._groups:
            self._host.later(SWEEP_EVERY, Sweep())
        first = leader or nodes[0]
        if self.any_replica and nodes:
            first = self._host.rng.choice(nodes)
        known = tuple(map(NodeId, dict.fromkeys((first, *nodes))))
        route = self._groups[group] = Route(self._host, group, known, self, self._pending)
        self._index()
        self._host.watch(route.node)
        return route

    def _drop(self, route: Route) -> None:
        del self._groups[route.group]
        self.left(route.node)

    # -- bindings --

    def owned(self, owned: Owned) -> None:
        """Bind a topic to the group that `entry` reports, unless the topic is already bound."""
        topic, nodes = owned.topic, owned.nodes
        if not (topic and owned.group and (owned.leader or nodes)):
            return
        self.entry.of_ring = True
        self._meet(nodes)
        bound = self._bound.get(topic)
        if bound is None:
            self._limit()
            self._bound[topic] = Bound(self._route_to(owned.group, owned.leader, nodes))
            self._ask_again(topic, 0.0)
        elif bound.route.group == owned.group:
            bound.route.hint(owned.leader, nodes)

    def pinned(self, arc: ArcView) -> str:
        """Bind a name to a group, and return it. No topic can have this name."""
        name = f"\0{arc.group}"
        if name not in self._bound:
            self._limit()
            self._bound[name] = Bound(self._route_to(arc.group, arc.leader, arc.nodes))
        return name

    def _meet(self, nodes: tuple[str, ...]) -> None:
        """Add the processes of these replicas to `entry`. A replica is named PROCESS/GROUP."""
        processes = [node.partition("/")[0] for node in nodes if "/" in node]
        if not all(each in self.entry.nodes for each in processes):
            self.entry.learn((*self.entry.nodes, *processes))

    def not_here(self, topic: str, route: Route) -> None:
        """Unbind the topic, unless the answer came over an earlier route."""
        if self.bound_to(topic) is route and topic not in self._fresh:
            self._bound.pop(topic, None)
            self._miss(topic)

    def give_up(self, route: Route) -> None:
        """Unbind all topics of a group that has no reachable node."""
        topics = [topic for topic, bound in self._bound.items() if bound.route is route]
        for topic in topics:
            del self._bound[topic]
            self._miss(topic)
        self._drop(route)

    def _miss(self, topic: str) -> None:
        host = self._host
        last, before = self._misses.get(topic, (0.0, -1))
        before = before + 1 if host.now < last + FORGIVEN_AFTER else 0
        self._misses[topic] = (host.now, before)
        longest = backoff(before, MISS_MIN, RETRY_MAX) if before else 0.0
        self._ask_again(topic, longest * host.rng.uniform(0.5, 1.0))

    # -- asking again --

    def _ask_again(self, topic: str, pause: float) -> None:
        """Resend all requests about the topic after `pause`. One timer serves all topics."""
        self._fresh[topic] = at = self._host.now + pause
        self._wait_until(at)

    def _wait_until(self, at: float) -> None:
        if at < self._due:
            self._due = at
            self._host.later(at - self._host.now, Rebound())

    def timeout(self, timer: Rebound | Sweep) -> None:
        if isinstance(timer, Sweep):
            self._sweep()
            return
        now, fresh, self._due = self._host.now, self._fresh, NEVER
        self._fresh = {topic: at for topic, at in fresh.items() if at > now}
        self._pending.resend(lambda topic: topic in fresh and topic not in self._fresh)
        self._wait_until(min(self._fresh.values(), default=NEVER))

    # -- limits --

    def _limit(self) -> None:
        if len(self._bound) >= self._bound_max or len(self._groups) >= self._groups_max:
            self._keep(self._pending.topics_in_use())

    def _sweep(self) -> None:
        used = [topic for topic, bound in self._bound.items() if bound.used]
        self._keep({*used, *self._pending.topics_in_use()})
        for bound in self._bound.values():
            bound.used = False
        if self._groups:
            self._host.later(SWEEP_EVERY, Sweep())

    def _keep(self, topics: set[str]) -> None:
        forgiven = self._host.now - FORGIVEN_AFTER
        self._misses = {each: miss for each, miss in self._misses.items() if miss[0] > forgiven}
        self._bound = {each: bound for each, bound in self._bound.items() if each in topics}
        kept = {bound.route.group for bound in self._bound.values()}
        for route in list(self._groups.values()):
            if route.group not in kept:
                self._drop(route)
        # More than the limit may be in use. Let the count double before checking again.
        self._bound_max = max(BOUND_MAX, 2 * len(self._bound))
        self._groups_max = max(GROUPS_MAX, 2 * len(self._groups))
