"""The importer in a move. It asks for missing data until it can adopt the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.holdings import ActiveClaim, Holdings, PartName, PeerGroup
from oncecast.broker.live_slots import LiveSlots
from oncecast.broker.moving import names_of_parts
from oncecast.broker.service import Service
from oncecast.kernel.protocol import NodeId, Value
from oncecast.ring.events import GroupFacts, MoveWaits, WhereIs
from oncecast.ring.moves import (
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
    Survey,
    Surveyed,
    TopicEnds,
)

if TYPE_CHECKING:
    from oncecast.ring.mover import Mover

ANSWER_WITHIN = 1.0
ROUNDS_MAX = 8
REDIRECTS_MAX = 3  # number of redirects to another replica after which the importer waits
PARTS_MAX = 64  # maximum number of parts per request
UNREADABLE = (ValueError, TypeError, LookupError, OverflowError, AssertionError, RecursionError)


class ImportProgress:
    """The progress of a claim, which only the leader keeps. A new leader starts over."""

    def __init__(self, claim: ActiveClaim) -> None:
        self.move, self.nodes = claim.move, claim.exporter.nodes
        self.contact = claim.exporter.nodes[0]
        self.rounds = self.copied = 0
        # The last topic in the survey so far, or None if the survey is complete.
        self.behind: str | None = ""
        self.topics: dict[str, TopicEnds] = {}  # topics that may have uncopied messages
        self.parts: list[PartName] = []  # staged parts
        self.exported: Exported | None = None
        self.question: Value | None = None
        self.asked, self.redirects = 0.0, 0
        self.importing = 0  # number of imports in flight
        self.deciding = False  # whether the move's last command is in flight
        self.waits = False  # whether the exporter has a higher feature level

    def asked_of(self, node: NodeId) -> bool:
        """Return whether this node is a replica of the exporter and may answer."""
        return node in self.nodes or node == self.contact


class Importer:
    def __init__(self, mover: Mover, service: Service) -> None:
        self._mover, self._service = mover, service
        self._progress: ImportProgress | None = None

    def forget(self) -> None:
        """Discard the progress. The next leader starts from decided state."""
        self._progress = None

    def take(self, holdings: Holdings, claim: ActiveClaim) -> None:
        progress = self._progress
        if progress is None or progress.move != claim.move:
            progress = self._progress = ImportProgress(claim)
        if progress.question is None:
            self._go_on(holdings, claim, progress)
        elif self._mover.now >= progress.asked + ANSWER_WITHIN:
            at = (
                progress.nodes.index(progress.contact) if progress.contact in progress.nodes else -1
            )
            progress.contact = progress.nodes[(at + 1) % len(progress.nodes)]
            self._ask_exporter(progress, progress.question)
            self._mover.send(self._mover.process, WhereIs(claim.exporter.group))

    def _ask_exporter(self, progress: ImportProgress, question: Value) -> None:
        progress.question, progress.asked, progress.redirects = question, self._mover.now, 0
        self._mover.send(progress.contact, question)

    def located(self, holdings: Holdings, facts: GroupFacts) -> None:
        """Store the exporter's replicas, or end the move if the exporter is gone.

        A group that is gone has released all parts that other groups adopted, and owns nothing.
        """
        claim, progress = holdings.claim, self._progress
        if claim is not None and claim.exporter.group == facts.group:
            if not facts.gone:
                if progress is not None:
                    progress.nodes = tuple(dict.fromkeys((*facts.nodes, *progress.nodes)))
            elif claim.adopted:
                self._finish(claim)
            else:
                self.abandon(claim)

    def redirect(self, sender: NodeId, not_leader: NotLeader) -> bool:
        """Ask the leader that a replica reports. Return whether the message is about this claim."""
        progress = self._progress
        if progress is None or progress.move != not_leader.move:
            return False
        if not progress.asked_of(sender):
            return True
        progress.nodes = tuple(dict.fromkeys((*not_leader.nodes, *progress.nodes)))
        # Two replicas may name each other as the leader, so limit the redirects.
        too_many = progress.redirects >= REDIRECTS_MAX or progress.question is None
        if not_leader.leader and not_leader.leader != progress.contact and not too_many:
            progress.contact = not_leader.leader
            progress.redirects += 1
            assert progress.question is not None
            self._mover.send(progress.contact, progress.question)
        return True

    def _go_on(self, holdings: Holdings, claim: ActiveClaim, progress: ImportProgress) -> None:
        """Take the next step of the move, unless a command is in flight."""
        if progress.importing or progress.deciding:
            return
        move = claim.move
        if claim.adopted:
            self._ask_exporter(progress, Adopted(move))
            return
        until = holdings.position if holdings.low is None else holdings.low
        if progress.behind is not None:
            self._ask_exporter(progress, Survey(move, until, progress.behind))
            return
        pull = self._pull(holdings, progress)
        if pull is not None:
            self._ask_exporter(progress, pull)
        elif progress.exported is not None:
            # Wait while this group's own frozen part moves, because it borders on the adopted part.
            if holdings.frozen is None and not self._mover.in_flight(do.Freeze):
                self._adopt(progress, progress.exported)
        elif progress.copied > self._mover.little_bytes and progress.rounds < ROUNDS_MAX:
            progress.rounds += 1
            progress.copied, progress.behind = 0, ""
            self._go_on(holdings, claim, progress)
        else:
            nodes, level = self._service.group.nodes(), self._service.machine.registry.level
            importer = PeerGroup(self._mover.group, nodes)
            self._ask_exporter(progress, Export(move, until, importer, level))

    def _pull(self, holdings: Holdings, progress: ImportProgress) -> Pull | PullParts | None:
        """Return a request for the next missing data, or None. Drop complete topics."""
        while progress.topics:
            name, ends = next(iter(progress.topics.items()))
            copied = holdings.incoming.get(name)
            offset = ends.first
            if copied is not None and copied.id == ends.topic_id:
                offset = max(offset, copied.index.next)
            if offset < ends.next:
                return Pull(progress.move, name, ends.topic_id, offset)
            del progress.topics[name]
        lacking = [name for name in progress.parts if name not in holdings.parts][:PARTS_MAX]
        return PullParts(progress.move, tuple(lacking)) if lacking else None

    def receive(
        self,
        sender: NodeId,
        holdings: Holdings,
        answer: Surveyed | Pulled | PulledParts | Exported | ExportRefused | Released,
    ) -> None:
        progress, claim = self._progress, holdings.claim
        if progress is None or claim is None or answer.move != claim.move:
            return
        if not progress.asked_of(sender):
            return
        question = progress.question
        match answer, question:
            case Surveyed(), Survey() if self._waits(progress, claim, answer.level):
                return  # the importer asks again after a while
            case Surveyed(), Survey(behind=behind) if answer.behind == behind:
                progress.topics.update((each.topic, each) for each in answer.topics)
                progress.behind = answer.topics[-1].topic if answer.more and answer.topics else None
            case Pulled(), Pull() if (answer.topic, answer.offset) == (
                question.topic,
                question.offset,
            ):
                if not answer.batches:
                    progress.topics.pop(answer.topic, None)
                self._import(progress, answer.batches)
            case PulledParts(), PullParts():
                self._import(progress, answer.batches)
            case Exported(), Export():
                if not self._note_metadata(progress, answer):
                    self.abandon(claim)
                    return
            case ExportRefused(), Survey() | Export():
                self.abandon(claim)
            case Released(), Adopted():
                self._finish(claim)
            case _:
                return
        progress.question = None
        self._go_on(holdings, claim, progress)

    def _waits(self, progress: ImportProgress, claim: ActiveClaim, needed: int) -> bool:
        """Return whether this group must first raise its feature level. Report it once."""
        level = self._service.machine.registry.level
        if needed > level and not progress.waits:
            self._mover.emit(MoveWaits(claim.exporter.group, needed, level))
        progress.waits = needed > level
        return progress.waits

    def _note_metadata(self, progress: ImportProgress, exported: Exported) -> bool:
        """Store the part's metadata. Return False if it is unreadable."""
        try:
            moved = state.moved_in(exported.rows, LiveSlots())
        except UNREADABLE:
            return False
        progress.exported = exported
        progress.parts = list(names_of_parts(moved.sources, moved.topics))
        ends = (TopicEnds(t.name, t.id, t.index.first, t.index.next) for t in moved.topics)
        progress.topics = {each.topic: each for each in ends}
        return True

    def abandon(self, claim: ActiveClaim) -> None:
        progress, contact = self._progress, claim.exporter.nodes[0]
        if progress is not None and progress.move == claim.move:
            contact = progress.contact

        def abandoned(done: bool) -> None:
            now = self._mover.holdings.claim if self._mover.holdings is not None else None
            if now is None or now.move != claim.move:
                # Otherwise the exporter would notice only at its next reminder.
                self._mover.send(contact, Abandoned(claim.move))

        self._decide()
        self._mover.execute_once(do.Abandon(claim.move), abandoned)

    def _finish(self, claim: ActiveClaim) -> None:
        self._decide()
        self._mover.execute_once(do.Finish(claim.move), lambda _: self._mover.report())

    def _decide(self) -> None:
        """Stop asking the exporter. The move's last command has been proposed."""
        if self._progress is not None:
            self._progress.deciding = True

    def _import(self, progress: ImportProgress, batches: tuple[do.Import, ...]) -> None:
        """Propose an Import for each valid batch."""

        def imported(done: bool) -> None:
            progress.importing -= 1
            holdings = self._mover.holdings
            claim = holdings.claim if holdings is not None else None
            if holdings is not None and claim is not None and self._progress is progress:
                self._go_on(holdings, claim, progress)

        batches = tuple(each for each in batches if each.possible and each.move == progress.move)
        progress.importing += len(batches)
        for batch in batches:
            progress.copied += batch.size
            self._mover.execute(batch, imported)

    def _adopt(self, progress: ImportProgress, exported: Exported) -> None:
        def adopted(done: bool) -> None:
            progress.deciding = False
            claim = self._mover.holdings.claim if self._mover.holdings is not None else None
            if not done and claim is not None and claim.move == exported.move:
                # The copies have a gap, or the part is no longer next to this group's arc.
                self.abandon(claim)
            self._mover.report()

        progress.deciding = True
        facts = (
            exported.low,
            exported.until,
            exported.clock,
            exported.last_topic_id,
            exported.last_epoch,
            exported.rows,
            exported.newest,
            exported.level,
        )
        self._mover.execute(do.Adopt(exported.move, *facts), adopted)
