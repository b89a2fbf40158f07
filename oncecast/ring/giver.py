"""The giver's side of a move: it answers from what it has decided, and remembers nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.estate import Estate, Frozen
from oncecast.broker.service import Service
from oncecast.broker.topic import Topic
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Missing
from oncecast.ring.events import GroupFacts, WhereIs
from oncecast.ring.moves import (
    TOPICS_MAX,
    Dropped,
    Follow,
    Give,
    Given,
    Gone,
    NotGiven,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Survey,
    Surveyed,
    Taken,
    TopicEnds,
    Waiting,
)
from oncecast.storage.errors import Corrupt

if TYPE_CHECKING:
    from oncecast.ring.mover import Mover

REMIND_EVERY = 2.0
ROWS_BYTES_MAX = 16 << 20  # they must fit into one message, and into one command


class Giver:
    def __init__(self, mover: Mover, service: Service) -> None:
        self._mover, self._service = mover, service
        self._reminded = 0.0
        self._turn = 0
        self._move = ""  # for which it is frozen
        self._nodes: tuple[NodeId, ...] = ()  # of its taker, as far as is known now
        self._followed = False

    def receive(
        self,
        sender: NodeId,
        estate: Estate,
        message: Survey | Pull | PullParts | Give | Taken | Dropped,
    ) -> None:
        match message:
            case Survey(move, until):
                mine = estate.may_give(until)
                answer = self._surveyed(estate, message) if mine else NotGiven(move)
                self._mover.send(sender, answer)
            case Pull():
                self._pull(sender, estate, message)
            case PullParts():
                self._pull_parts(sender, estate, message)
            case Give():
                self._give(sender, estate, message)
            case Taken(move):
                self._release(sender, estate, move)
            case Dropped(move):
                if estate.frozen is not None and estate.frozen.move == move:
                    self._mover.execute_once(do.Thaw(move))
            case _:
                assert_never(message)

    def _surveyed(self, estate: Estate, survey: Survey) -> Surveyed:
        topics = self._service.machine.registry.topics
        names = sorted(
            name for name in topics if name > survey.behind and estate.in_part(name, survey.until)
        )
        ends = tuple(ends_of(topics[name]) for name in names[:TOPICS_MAX])
        return Surveyed(survey.move, survey.behind, ends, len(names) > TOPICS_MAX)

    def _pull(self, sender: NodeId, estate: Estate, pull: Pull) -> None:
        found = self._service.machine.registry.topics.get(pull.topic)
        topic = estate.outgoing.get(pull.topic, found)
        batches: list[do.Import] = []
        if topic is not None and topic.id == pull.life:
            room = self._mover.pull_bytes
            for entry in topic.index.entries(pull.offset):
                if room <= 0:
                    break
                try:
                    command = self._service.batch_at(entry.place)
                except (Missing, Corrupt):
                    if not batches:
                        return  # it is being fetched; or the move waits for a person
                    break
                facts = (entry.offset, entry.messages, entry.size, entry.time)
                note = (entry.skip, entry.sequence)
                batches.append(do.Import(pull.move, pull.topic, pull.life, *facts, *note, command))
                room -= entry.size
        self._mover.send(sender, Pulled(pull.move, pull.topic, pull.offset, tuple(batches)))

    def _pull_parts(self, sender: NodeId, estate: Estate, pull: PullParts) -> None:
        batches: list[do.Import] = []
        room = self._mover.pull_bytes
        for key, number, name in pull.names:
            source = estate.sources.get(key)
            part = source.staged.get(number, {}).get(name) if source is not None else None
            if part is None or room <= 0:
                break
            try:
                command = self._service.batch_at(part.place)
            except (Missing, Corrupt):
                break
            facts = (part.topic, 0, -1, part.count, part.size, part.time, 0, -1)
            batches.append(do.Import(pull.move, *facts, command))
            room -= part.size
        if batches:
            self._mover.send(sender, PulledParts(pull.move, tuple(batches)))

    def _give(self, sender: NodeId, estate: Estate, give: Give) -> None:
        frozen = estate.frozen
        if frozen is not None and frozen.move == give.move:
            self._tell(sender, estate, frozen)
        elif frozen is not None or not estate.may_give(give.until) or not give.taker.nodes:
            self._mover.send(sender, NotGiven(give.move))
        else:

            def answer(so: bool) -> None:
                now = self._mover.estate
                if now is not None and now.frozen is not None and now.frozen.move == give.move:
                    self._tell(sender, now, now.frozen)

            self._mover.execute_once(do.Freeze(give.move, give.until, give.taker), answer)

    def _tell(self, taker: NodeId, estate: Estate, frozen: Frozen) -> None:
        """What cannot be told cannot be adopted, and must not stay frozen."""
        given = self._given(estate, frozen)
        if len(given.rows) <= ROWS_BYTES_MAX:
            self._mover.send(taker, given)
        else:
            self._mover.execute_once(do.Thaw(frozen.move))
            self._mover.send(taker, NotGiven(frozen.move))

    def _given(self, estate: Estate, frozen: Frozen) -> Given:
        registry = self._service.machine.registry
        assert estate.low is not None
        clock = registry.clock
        counters = (clock.trusted, registry.lives, registry.epochs)
        answers = registry.answered.about(lambda topic: estate.in_part(topic, frozen.until))
        rows = state.moved_out(estate, answers)
        return Given(frozen.move, estate.low, frozen.until, *counters, rows, clock.now)

    def _release(self, sender: NodeId, estate: Estate, move: str) -> None:
        if estate.frozen is None or estate.frozen.move != move:
            self._mover.send(sender, Gone(move))
        else:
            self._mover.execute_once(
                do.Release(move), lambda _: self._mover.send(sender, Gone(move))
            )

    # -- a taker that is not heard of --

    def remind(self, estate: Estate) -> None:
        """Does the taker still want what is frozen for it? Its replicas are asked in turn."""
        mover, frozen = self._mover, estate.frozen
        if frozen is not None and mover.now >= self._reminded + REMIND_EVERY:
            self._reminded, self._followed = mover.now, False
            if frozen.move != self._move:
                self._move, self._nodes = frozen.move, frozen.taker.nodes
            self._turn += 1
            mover.send(self._nodes[self._turn % len(self._nodes)], Waiting(frozen.move))
            mover.send(mover.home, WhereIs(frozen.taker.group))

    def follow(self, follow: Follow) -> None:
        """Once a reminder: two may take each other for the leader."""
        estate = self._mover.estate
        frozen = estate.frozen if estate is not None else None
        known = frozen is not None and frozen.move == follow.move
        if known and follow.leader and not self._followed:
            self._followed = True
            self._mover.send(follow.leader, Waiting(follow.move))

    def found_again(self, estate: Estate, facts: GroupFacts) -> None:
        frozen = estate.frozen
        if frozen is not None and frozen.taker.group == facts.group:
            if facts.gone:
                self._mover.execute_once(do.Thaw(frozen.move))
            elif facts.nodes:
                self._move, self._nodes = frozen.move, facts.nodes


def ends_of(topic: Topic) -> TopicEnds:
    return TopicEnds(topic.name, topic.id, topic.index.first, topic.index.next)
