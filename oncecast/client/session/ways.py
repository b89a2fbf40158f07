"""Whom a client asks about which topic.

A plain group answers for all topics, and `home`, the nodes that the application has named, is the
only way. A ring of groups shares the topics out: there home answers `Owned`, and the topic is bound
to the way of its group, until that group says `NotHere`. Then home is asked again: at once, and
later and later if the ring contradicts itself. Whatever waits about a topic when its way changes is
asked for again, as after a lost link.

Bindings are a cache: what nobody uses is forgotten, and groups without any are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncecast.client.session.local import NEVER
from oncecast.client.session.patience import RETRY_MAX
from oncecast.client.session.whereabouts import Whereabouts
from oncecast.kernel.protocol import NodeId, Value
from oncecast.wire.frames import Owned

if TYPE_CHECKING:
    from oncecast.client.session.client import ClientSession

BOUND_MAX, WAYS_MAX = 10_000, 128  # beyond, only what is in use
SWEEP_EVERY = 60.0  # what was not used in between is forgotten
MISS_MIN = 0.1  # a topic on its way from one group to another is soon there
FORGIVEN_AFTER = 2 * RETRY_MAX  # that a topic was not where it should be


class Rebound(Value):
    """Timer: the ways of some topics have changed."""


class Sweep(Value):
    """Timer."""


class Bound:
    """A topic is there."""

    __slots__ = ("used", "way")

    def __init__(self, way: Whereabouts) -> None:
        self.way = way
        self.used = True  # since the last sweep


class Ways:
    def __init__(self, session: ClientSession, home: Whereabouts) -> None:
        self._session, self.home = session, home
        self.at: dict[NodeId, Whereabouts] = {}  # by the node that is talked to
        self._groups: dict[str, Whereabouts] = {}  # by name
        self._bound: dict[str, Bound] = {}  # by topic
        self._fresh: dict[str, float] = {}  # topics that are asked about anew, and when
        self._due = NEVER  # the first of them
        self._misses: dict[str, tuple[float, int]] = {}  # of a topic: the last, how many before it
        self._bound_max, self._ways_max = BOUND_MAX, WAYS_MAX

    def __iter__(self) -> Iterator[Whereabouts]:
        yield self.home
        yield from self._groups.values()

    def of(self, topic: str) -> Whereabouts:
        """Whom to ask about it."""
        bound = self._bound.get(topic)
        if bound is None:
            return self.home
        bound.used = True
        return bound.way

    def to(self, group: str) -> Whereabouts | None:
        return self._groups.get(group) if group else self.home

    def bound_to(self, topic: str) -> Whereabouts:
        """The same; but to look is not to use."""
        bound = self._bound.get(topic)
        return self.home if bound is None else bound.way

    def whose(self, node: NodeId) -> Whereabouts | None:
        """Whose node this is, though nobody talks to it now; None of those that were left."""
        if not self.home.of_ring:
            return self.home
        return next((way for way in self if node in way.nodes), None)

    # -- where they are --

    def begin(self) -> None:
        self._index()
        self._session.watch(self.home.node)

    def left(self, node: NodeId) -> None:
        """Somebody goes from this node to another one."""
        self._index()
        if node not in self.at:
            self._session.unwatch(node)

    def _index(self) -> None:
        self.at.clear()
        self.at.update({way.node: way for way in self})

    def _show_to(self, group: str, leader: str, nodes: tuple[str, ...]) -> Whereabouts:
        way = self._groups.get(group)
        if way is not None:
            way.hint(leader, nodes)
            return way
        if not self._groups:
            self._session.later(SWEEP_EVERY, Sweep())
        known = tuple(map(NodeId, dict.fromkeys((leader or nodes[0], *nodes))))
        way = self._groups[group] = Whereabouts(self._session, group, known)
        self._index()
        self._session.watch(way.node)
        return way

    def _let_go(self, way: Whereabouts) -> None:
        del self._groups[way.group]
        self.left(way.node)

    # -- which topics are there --

    def owned(self, owned: Owned) -> None:
        """Home says whose a topic is. While it is bound already, only its group knows better."""
        topic, nodes = owned.topic, owned.nodes
        if not (topic and owned.group and (owned.leader or nodes)):
            return
        self.home.of_ring = True
        self._meet(nodes)
        bound = self._bound.get(topic)
        if bound is None:
            self._make_room()
            self._bound[topic] = Bound(self._show_to(owned.group, owned.leader, nodes))
            self._ask_anew(topic, 0.0)
        elif bound.way.group == owned.group:
            bound.way.hint(owned.leader, nodes)

    def _meet(self, nodes: tuple[str, ...]) -> None:
        """A replica is called as its process, with the group behind a slash; any process is home
        should the others be gone."""
        processes = [node.partition("/")[0] for node in nodes if "/" in node]
        if not all(each in self.home.nodes for each in processes):
            self.home.learn((*self.home.nodes, *processes))

    def not_here(self, topic: str, way: Whereabouts) -> None:
        """That way has said so: it may have been asked before the topic was bound to another."""
        if self.bound_to(topic) is way and topic not in self._fresh:
            self._bound.pop(topic, None)
            self._miss(topic)

    def give_up(self, way: Whereabouts) -> None:
        """None of its nodes can be reached: the topics may be elsewhere by now, or others be."""
        topics = [topic for topic, bound in self._bound.items() if bound.way is way]
        for topic in topics:
            del self._bound[topic]
            self._miss(topic)
        self._let_go(way)

    def _miss(self, topic: str) -> None:
        session = self._session
        last, before = self._misses.get(topic, (0.0, -1))
        before = before + 1 if session.now < last + FORGIVEN_AFTER else 0
        self._misses[topic] = (session.now, before)
        longest = min(RETRY_MAX, MISS_MIN * 2.0 ** min(before, 10)) if before else 0.0
        self._ask_anew(topic, longest * session.rng.uniform(0.5, 1.0))

    # -- asking anew --

    def _ask_anew(self, topic: str, pause: float) -> None:
        """One look at all that waits will serve all topics whose time has come by then."""
        self._fresh[topic] = at = self._session.now + pause
        self._wait_until(at)

    def _wait_until(self, at: float) -> None:
        if at < self._due:
            self._due = at
            self._session.later(at - self._session.now, Rebound())

    def timeout(self, timer: Rebound | Sweep) -> None:
        if isinstance(timer, Sweep):
            self._sweep()
            return
        now, fresh, self._due = self._session.now, self._fresh, NEVER
        self._fresh = {topic: at for topic, at in fresh.items() if at > now}
        self._session.resend(lambda topic: topic in fresh and topic not in self._fresh)
        self._wait_until(min(self._fresh.values(), default=NEVER))

    # -- forgetting --

    def _make_room(self) -> None:
        if len(self._bound) >= self._bound_max or len(self._groups) >= self._ways_max:
            self._keep(self._session.topics_in_use())

    def _sweep(self) -> None:
        used = [topic for topic, bound in self._bound.items() if bound.used]
        self._keep({*used, *self._session.topics_in_use()})
        for bound in self._bound.values():
            bound.used = False
        if self._groups:
            self._session.later(SWEEP_EVERY, Sweep())

    def _keep(self, topics: set[str]) -> None:
        forgiven = self._session.now - FORGIVEN_AFTER
        self._misses = {each: miss for each, miss in self._misses.items() if miss[0] > forgiven}
        self._bound = {each: bound for each, bound in self._bound.items() if each in topics}
        kept = {bound.way.group for bound in self._bound.values()}
        for way in list(self._groups.values()):
            if way.group not in kept:
                self._let_go(way)
        # What is in use may be more than that: let it double before it is gone through again.
        self._bound_max = max(BOUND_MAX, 2 * len(self._bound))
        self._ways_max = max(WAYS_MAX, 2 * len(self._groups))
