"""The exporter in a move. It answers from decided state, so any leader can continue the move."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.delays import Delayed
from oncecast.broker.holdings import Frozen, Holdings
from oncecast.broker.service import Service
from oncecast.broker.staging import Part
from oncecast.broker.topic import Topic
from oncecast.dht.identifiers import Key, key_of
from oncecast.errors import Corrupt
from oncecast.kernel.protocol import NodeId
from oncecast.replication.events import Missing
from oncecast.ring.events import GroupFacts, WhereIs
from oncecast.ring.moves import (
    TOPICS_MAX,
    Abandoned,
    Adopted,
    Export,
    Exported,
    ExportRefused,
    NotLeader,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Released,
    StillWanted,
    Survey,
    Surveyed,
    TopicEnds,
)
from oncecast.ring.neighbors import group_of

if TYPE_CHECKING:
    from oncecast.ring.mover import Mover

REMIND_EVERY = 2.0
# Maximum bytes of metadata, which must fit in one message and in one command.
ROWS_BYTES_MAX = 16 << 20


class Exporter:
    def __init__(self, mover: Mover, service: Service) -> None:
        self._mover, self._service = mover, service
        self._reminded = 0.0
        self._turn = 0
        self._move = ""  # id of the move that froze the part
        self._nodes: tuple[NodeId, ...] = ()  # the importer's last known replicas
        self._redirected = False

    def receive(
        self,
        sender: NodeId,
        holdings: Holdings,
        message: Survey | Pull | PullParts | Export | Adopted | Abandoned,
    ) -> None:
        match message:
            case Survey(move, until):
                mine = may_ask_for(until, group_of(sender), holdings)
                answer = self._surveyed(holdings, message) if mine else ExportRefused(move)
                self._mover.send(sender, answer)
            case Pull():
                self._pull(sender, holdings, message)
            case PullParts():
                self._pull_parts(sender, holdings, message)
            case Export():
                self._export(sender, holdings, message)
            case Adopted(move):
                self._release(sender, holdings, move)
            case Abandoned(move):
                if is_importer(sender, holdings, move):
                    self._mover.execute_once(do.Thaw(move))
            case _:
                assert_never(message)

    def _surveyed(self, holdings: Holdings, survey: Survey) -> Surveyed:
        topics = self._service.machine.registry.topics
        names = sorted(
            name for name in topics if name > survey.behind and holdings.in_part(name, survey.until)
        )
        ends = tuple(ends_of(topics[name]) for name in names[:TOPICS_MAX])
        level = self._service.machine.registry.level
        return Surveyed(survey.move, survey.behind, ends, len(names) > TOPICS_MAX, level)

    def _pull(self, sender: NodeId, holdings: Holdings, pull: Pull) -> None:
        found = self._service.machine.registry.topics.get(pull.topic)
        topic = holdings.outgoing.get(pull.topic, found)
        batches: list[do.Import] = []
        if topic is not None and topic.id == pull.topic_id:
            budget = self._mover.pull_bytes
            for entry in topic.index.entries(pull.offset):
                if budget <= 0:
                    break
                try:
                    command = self._service.batch_at(entry.slot, pull.topic)
                except (Missing, Corrupt):
                    if not batches:
                        return  # the batch is being fetched from another replica, or it is lost
                    break
                facts = (entry.offset, entry.messages, entry.size, entry.time)
                note = (entry.skip, entry.sequence)
                batches.append(
                    do.Import(pull.move, pull.topic, pull.topic_id, *facts, *note, command)
                )
                budget -= entry.size
        self._mover.send(sender, Pulled(pull.move, pull.topic, pull.offset, tuple(batches)))

    def _pull_parts(self, sender: NodeId, holdings: Holdings, pull: PullParts) -> None:
        batches: list[do.Import] = []
        budget = self._mover.pull_bytes
        for key, number, name in pull.names:
            part: Part | Delayed | None
            if key:
                source = holdings.sources.get(key)
                part = source.staged.get(number, {}).get(name) if source is not None else None
                topic = part.topic if part is not None else ""
            else:
                topic, found = name, holdings.outgoing.get(name)
                part = found.delays.batches.get(number) if found is not None else None
            if part is None or budget <= 0:
                break
            try:
                command = self._service.batch_at(part.slot, topic)
            except (Missing, Corrupt):
                break
            facts = (topic, 0, -1, part.count, part.size, part.time, 0, -1 if key else number)
            batches.append(do.Import(pull.move, *facts, command))
            budget -= part.size
        if batches:
            self._mover.send(sender, PulledParts(pull.move, tuple(batches)))

    def _export(self, sender: NodeId, holdings: Holdings, export: Export) -> None:
        if export.level < self._service.machine.registry.level:
            return  # the importer asks again later, and may have reached the level by then
        frozen, importer = holdings.frozen, export.importer
        named = sender in importer.nodes and group_of(sender) == importer.group
        mine = may_ask_for(export.until, importer.group, holdings)
        if frozen is not None and is_importer(sender, holdings, export.move):
            self._tell(sender, holdings, frozen)
        elif frozen is not None or not named or not mine:
            self._mover.send(sender, ExportRefused(export.move))
        else:

            def answer(done: bool) -> None:
                now = self._mover.holdings
                if now is not None and now.frozen is not None and now.frozen.move == export.move:
                    self._tell(sender, now, now.frozen)

            self._mover.execute_once(do.Freeze(export.move, export.until, export.importer), answer)

    def _tell(self, importer: NodeId, holdings: Holdings, frozen: Frozen) -> None:
        """Send the metadata of the frozen part, or a refusal if the metadata is too large.

        The part stays frozen until the importer has abandoned the move. An earlier, shorter answer
        may still lead the importer to adopt the part.
        """
        thawing = self._mover.in_flight(do.Thaw)
        exported = None if thawing else self._exported(holdings, frozen)
        if exported is not None and len(exported.rows) <= ROWS_BYTES_MAX:
            self._mover.send(importer, exported)
        else:
            self._mover.send(importer, ExportRefused(frozen.move))

    def _exported(self, holdings: Holdings, frozen: Frozen) -> Exported:
        registry = self._service.machine.registry
        assert holdings.low is not None
        clock = registry.clock
        counters = (clock.trusted, registry.last_topic_id, registry.last_epoch)
        answers = registry.answered.about(lambda topic: holdings.in_part(topic, frozen.until))
        rows = state.moved_out(holdings, answers, registry.access)
        facts = (*counters, rows, clock.now, registry.level)
        return Exported(frozen.move, holdings.low, frozen.until, *facts)

    def _release(self, sender: NodeId, holdings: Holdings, move: str) -> None:
        if holdings.frozen is None or holdings.frozen.move != move:
            self._mover.send(sender, Released(move))
        elif is_importer(sender, holdings, move):
            self._mover.execute_once(
                do.Release(move), lambda _: self._mover.send(sender, Released(move))
            )

    # -- an importer that does not answer --

    def remind(self, holdings: Holdings) -> None:
        """Ask the importer's replicas in turn whether the importer still wants the frozen part."""
        mover, frozen = self._mover, holdings.frozen
        if frozen is not None and mover.now >= self._reminded + REMIND_EVERY:
            self._reminded, self._redirected = mover.now, False
            if frozen.move != self._move:
                self._move, self._nodes = frozen.move, frozen.importer.nodes
            self._turn += 1
            mover.send(self._nodes[self._turn % len(self._nodes)], StillWanted(frozen.move))
            mover.send(mover.process, WhereIs(frozen.importer.group))

    def redirect(self, sender: NodeId, not_leader: NotLeader) -> None:
        """Resend a reminder to the leader that a replica names, at most once.

        Without this limit, two replicas that name each other would redirect it forever.
        """
        holdings = self._mover.holdings
        frozen = holdings.frozen if holdings is not None else None
        known = frozen is not None and is_importer(sender, holdings, not_leader.move)
        if known and not_leader.leader and not self._redirected:
            self._redirected = True
            self._mover.send(not_leader.leader, StillWanted(not_leader.move))

    def located(self, holdings: Holdings, facts: GroupFacts) -> None:
        frozen = holdings.frozen
        if frozen is not None and frozen.importer.group == facts.group:
            if facts.gone:
                self._mover.execute_once(do.Thaw(frozen.move))
            elif facts.nodes:
                self._move, self._nodes = frozen.move, facts.nodes


def may_ask_for(until: Key, importer: str, holdings: Holdings) -> bool:
    """Return whether a group may import the part up to `until`.

    The part must end at the importer's position. If the exporter is retiring, the next group on the
    ring may import everything.
    """
    if importer == holdings.group or not holdings.may_export(until):
        return False
    return until == key_of(importer) or (holdings.retired and until == holdings.position)


def is_importer(sender: NodeId, holdings: Holdings | None, move: str) -> bool:
    """Return whether the sender belongs to the group for which this move froze the part."""
    frozen = holdings.frozen if holdings is not None else None
    if frozen is None or frozen.move != move:
        return False
    return group_of(sender) == frozen.importer.group


def ends_of(topic: Topic) -> TopicEnds:
    return TopicEnds(topic.name, topic.id, topic.index.first, topic.index.next)
