"""The taker's side of a move: it asks for what it needs next, until it can adopt all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncecast.broker import moves as do
from oncecast.broker import state
from oncecast.broker.estate import Claim, Estate, PartName, Party
from oncecast.broker.moving import names_of_parts
from oncecast.broker.places import Places
from oncecast.broker.service import Service
from oncecast.kernel.protocol import Value
from oncecast.ring.events import GroupFacts, WhereIs
from oncecast.ring.moves import (
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
)

if TYPE_CHECKING:
    from oncecast.ring.mover import Mover

ANSWER_WITHIN = 1.0
ROUNDS_MAX = 8
FOLLOWS_MAX = 3  # from one replica to another that may lead, before it waits a while
PARTS_MAX = 64  # asked for at once


class Taking:
    """What the leader of a taker remembers of its claim; any other could begin again."""

    def __init__(self, claim: Claim) -> None:
        self.move, self.nodes = claim.move, claim.giver.nodes
        self.contact = claim.giver.nodes[0]
        self.rounds = self.copied = 0
        self.behind: str | None = ""  # of the topics surveyed so far; None: these are all
        self.topics: dict[str, TopicEnds] = {}  # that may have more than was copied
        self.parts: list[PartName] = []  # staged
        self.given: Given | None = None
        self.question: Value | None = None
        self.asked, self.follows = 0.0, 0
        self.importing = 0  # not yet decided
        self.deciding = False  # how it ends


class Taker:
    def __init__(self, mover: Mover, service: Service) -> None:
        self._mover, self._service = mover, service
        self._taking: Taking | None = None

    def forget(self) -> None:
        """Whoever leads next begins from what is decided."""
        self._taking = None

    def take(self, estate: Estate, claim: Claim) -> None:
        taking = self._taking
        if taking is None or taking.move != claim.move:
            taking = self._taking = Taking(claim)
        if taking.question is None:
            self._go_on(estate, claim, taking)
        elif self._mover.now >= taking.asked + ANSWER_WITHIN:
            at = taking.nodes.index(taking.contact) if taking.contact in taking.nodes else -1
            taking.contact = taking.nodes[(at + 1) % len(taking.nodes)]
            self._ask_giver(taking, taking.question)
            self._mover.send(self._mover.home, WhereIs(claim.giver.group))

    def _ask_giver(self, taking: Taking, question: Value) -> None:
        taking.question, taking.asked, taking.follows = question, self._mover.now, 0
        self._mover.send(taking.contact, question)

    def found_again(self, estate: Estate, facts: GroupFacts) -> None:
        """Where a group is that was lost sight of. One that is gone has released all it had, and
        has abandoned what it had not adopted."""
        claim, taking = estate.claim, self._taking
        if claim is not None and claim.giver.group == facts.group:
            if not facts.gone:
                if taking is not None:
                    taking.nodes = tuple(dict.fromkeys((*facts.nodes, *taking.nodes)))
            elif claim.adopted:
                self._finish(claim)
            else:
                self.abandon(claim)

    def follow(self, follow: Follow) -> bool:
        """Whether this is about its claim."""
        taking = self._taking
        if taking is None or taking.move != follow.move:
            return False
        taking.nodes = tuple(dict.fromkeys((*follow.nodes, *taking.nodes)))
        # Two that take each other for the leader must not keep us running to and fro.
        tired = taking.follows >= FOLLOWS_MAX or taking.question is None
        if follow.leader and follow.leader != taking.contact and not tired:
            taking.contact = follow.leader
            taking.follows += 1
            assert taking.question is not None
            self._mover.send(taking.contact, taking.question)
        return True

    def _go_on(self, estate: Estate, claim: Claim, taking: Taking) -> None:
        """Ask for what is needed next, if nothing is under way."""
        if taking.importing or taking.deciding:
            return
        move = claim.move
        if claim.adopted:
            self._ask_giver(taking, Taken(move))
            return
        until = estate.position if estate.low is None else estate.low
        if taking.behind is not None:
            self._ask_giver(taking, Survey(move, until, taking.behind))
            return
        pull = self._pull(estate, taking)
        if pull is not None:
            self._ask_giver(taking, pull)
        elif taking.given is not None:
            # Else what is given away would reach over what comes.
            if estate.frozen is None and not self._mover.under_way(do.Freeze):
                self._adopt(taking, taking.given)
        elif taking.copied > self._mover.little_bytes and taking.rounds < ROUNDS_MAX:
            taking.rounds += 1
            taking.copied, taking.behind = 0, ""
            self._go_on(estate, claim, taking)
        else:
            nodes = self._service.group.nodes()
            self._ask_giver(taking, Give(move, until, Party(self._mover.group, nodes)))

    def _pull(self, estate: Estate, taking: Taking) -> Pull | PullParts | None:
        """The next that is not here; topics of which all is here are not looked at again."""
        while taking.topics:
            name, ends = next(iter(taking.topics.items()))
            copied = estate.incoming.get(name)
            offset = ends.first
            if copied is not None and copied.id == ends.life:
                offset = max(offset, copied.index.next)
            if offset < ends.next:
                return Pull(taking.move, name, ends.life, offset)
            del taking.topics[name]
        lacking = [name for name in taking.parts if name not in estate.parts][:PARTS_MAX]
        return PullParts(taking.move, tuple(lacking)) if lacking else None

    def told(
        self,
        estate: Estate,
        told: Surveyed | Pulled | PulledParts | Given | NotGiven | Gone,
    ) -> None:
        taking, claim = self._taking, estate.claim
        if taking is None or claim is None or told.move != claim.move:
            return
        question = taking.question
        match told, question:
            case Surveyed(), Survey(behind=behind) if told.behind == behind:
                taking.topics.update((each.topic, each) for each in told.topics)
                taking.behind = told.topics[-1].topic if told.more and told.topics else None
            case Pulled(), Pull() if (told.topic, told.offset) == (question.topic, question.offset):
                if not told.batches:
                    taking.topics.pop(told.topic, None)
                self._import(taking, told.batches)
            case PulledParts(), PullParts():
                self._import(taking, told.batches)
            case Given(), Give():
                taking.given = told
                topics, sources, _ = state.moved_in(told.rows, Places())
                taking.parts = list(names_of_parts(sources))
                ends = (TopicEnds(t.name, t.id, t.index.first, t.index.next) for t in topics)
                taking.topics = {each.topic: each for each in ends}
            case NotGiven(), Survey() | Give():
                self.abandon(claim)
            case Gone(), Taken():
                self._finish(claim)
            case _:
                return
        taking.question = None
        self._go_on(estate, claim, taking)

    def abandon(self, claim: Claim) -> None:
        taking, contact = self._taking, claim.giver.nodes[0]
        if taking is not None and taking.move == claim.move:
            contact = taking.contact

        def abandoned(so: bool) -> None:
            now = self._mover.estate.claim if self._mover.estate is not None else None
            if now is None or now.move != claim.move:
                self._mover.send(
                    contact, Dropped(claim.move)
                )  # else the giver finds out only later

        self._decide()
        self._mover.execute_once(do.Abandon(claim.move), abandoned)

    def _finish(self, claim: Claim) -> None:
        self._decide()
        self._mover.execute_once(do.Finish(claim.move), lambda _: self._mover.report())

    def _decide(self) -> None:
        """Ask for nothing more; a later claim begins anew."""
        if self._taking is not None:
            self._taking.deciding = True

    def _import(self, taking: Taking, batches: tuple[do.Import, ...]) -> None:
        """Have them decided."""

        def imported(so: bool) -> None:
            taking.importing -= 1
            estate = self._mover.estate
            claim = estate.claim if estate is not None else None
            if estate is not None and claim is not None and self._taking is taking:
                self._go_on(estate, claim, taking)

        taking.importing += len(batches)
        for batch in batches:
            taking.copied += batch.size
            self._mover.execute(batch, imported)

    def _adopt(self, taking: Taking, given: Given) -> None:
        def adopted(so: bool) -> None:
            taking.deciding = False
            claim = self._mover.estate.claim if self._mover.estate is not None else None
            if not so and claim is not None and claim.move == given.move:
                # The copies have a hole; or what lies between is another's by now.
                self.abandon(claim)
            self._mover.report()

        taking.deciding = True
        facts = (given.low, given.until, given.clock, given.lives, given.epochs, given.rows)
        self._mover.execute(do.Adopt(given.move, *facts, given.newest), adopted)
