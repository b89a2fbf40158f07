"""How arcs of the ring change hands: the leader of the taker copies, then asks to be given (REP-6).

A group that owns nothing looks for the owner of its position and claims what lies before it there.
While the giver serves on, the taker copies batches, round after round, until little is left; then
the giver freezes the part, the rest is copied, and the taker adopts it. What is done and decided is
in the estates of both groups, so any leader of either goes on from there. A move that cannot be
done is abandoned, and the giver thaws what it had frozen for it. A group that has lost sight of the
other asks the ring for it by its name; of one that is gone it knows how their move has ended.

Needs the service of its group, links, and the ring stack of its process. Gives GroupFacts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

from oncecast.dht.ring import after, key_of
from oncecast.kernel.protocol import NodeId, Protocol, Value
from oncecast.pubsub import moves as do
from oncecast.pubsub import state
from oncecast.pubsub.estate import Claim, Estate, PartName, Party
from oncecast.pubsub.moving import names_of_parts
from oncecast.pubsub.places import Places
from oncecast.pubsub.results import MoveStep
from oncecast.pubsub.service import Execute, Executed, Service
from oncecast.replication.events import LeaderChanged
from oncecast.ring.events import GiveUp, GroupFacts, KeyOwner, WhereIs, WhoseKey
from oncecast.ring.giver import Giver
from oncecast.ring.moves import (
    Dropped,
    Follow,
    Give,
    Given,
    Gone,
    MoveMessage,
    NotGiven,
    Pull,
    Pulled,
    PulledParts,
    PullParts,
    Survey,
    Surveyed,
    TakeAll,
    Taken,
    TopicEnds,
    Waiting,
)

TOKENS = 1 << 48  # from here on, so that they are nobody else's
ANSWER_WITHIN = 1.0
ROUNDS_MAX = 8
FOLLOWS_MAX = 3  # from one replica to another that may lead, before it waits a while
PARTS_MAX = 64  # asked for at once


class Pace(Value):
    """Timer."""


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


class Mover(Protocol):
    name = "mover"
    Message = MoveMessage | KeyOwner | GroupFacts | GiveUp
    Observed = Executed | LeaderChanged
    Timer = Pace

    def __init__(
        self,
        me: NodeId,
        rng: Random,
        *,
        service: Service,
        home: NodeId,  # the ring stack of its process
        group: str,
        first: bool = False,  # of a new ring
        replicas: int = 3,  # that a group should have
        every: float = 0.25,
        report_every: float = 1.0,
        pull_bytes: int = 1 << 20,  # in one answer of a giver, unless one batch is larger
        little_bytes: int = 1 << 18,  # of a round after which the rest may be copied while frozen
    ) -> None:
        super().__init__(me, rng)
        self._service, self.home, self._group, self._first = service, home, group, first
        self._replicas = replicas
        self._every, self._report_every = every, report_every
        self._reported = -report_every
        self.pull_bytes, self.little_bytes = pull_bytes, little_bytes
        self._tokens = TOKENS
        self._pending: dict[int, Callable[[bool], None]] = {}
        self._once: dict[str, None] = {}  # kinds of commands that are under way
        self._taking: Taking | None = None
        self._giver = Giver(self, service)

    def start(self) -> None:
        self.later(self._every, Pace())

    # -- what the group has decided --

    @property
    def estate(self) -> Estate | None:
        return self._service.machine.registry.estate

    @property
    def speaks(self) -> bool:
        """Whether what is known here is all that was ever decided, and it may say so."""
        return self._service.leading and self._service.group.leads(self.now)

    def execute(self, command: do.Move, then: Callable[[bool], None]) -> None:
        self._tokens += 1
        self._pending[self._tokens] = then
        self.ask(Execute(self._tokens, command))

    def execute_once(self, command: do.Move, then: Callable[[bool], object] = bool) -> None:
        """Unless one of its kind is under way."""
        kind = type(command).__name__
        if kind in self._once:
            return
        self._once[kind] = None

        def done(so: bool) -> None:
            self._once.pop(kind, None)
            then(so)

        self.execute(command, done)

    def under_way(self, kind: type[do.Move]) -> bool:
        return kind.__name__ in self._once

    def observe(self, event: Executed | LeaderChanged) -> None:
        if isinstance(event, LeaderChanged):
            self._pending.clear()
            self._once.clear()
            self._taking = None
            self._report()
        elif event.token in self._pending:
            result = event.result
            self._pending.pop(event.token)(isinstance(result, MoveStep) and result.so)

    # -- in time --

    def timeout(self, timer: Pace) -> None:
        self.later(self._every, timer)
        if self.now >= self._reported + self._report_every:
            self._report()
        if not self.speaks:
            return
        estate = self.estate
        if estate is None:
            self.execute_once(do.Found(self._group, self._first), lambda _: self._report())
        elif estate.claim is not None and estate.retired and not estate.claim.adopted:
            self._abandon(estate.claim)
        elif estate.claim is not None:
            self._take(estate, estate.claim)
        elif estate.retired:
            if estate.low is not None and estate.frozen is None:
                self.send(self.home, WhoseKey(after(estate.position)))
        elif estate.low is None:
            self.send(self.home, WhoseKey(estate.position))
        if estate is not None:
            self._giver.remind(estate)

    def _report(self) -> None:
        """To the ring stack of this process."""
        self._reported = self.now
        estate, group = self.estate, self._service.group
        if estate is not None:
            place = self._service.machine.registry.place
            facts = (self._service.leader, group.nodes(), place)
            retired = estate.retired and estate.claim is None  # it may still come to own something
            self.send(self.home, GroupFacts(estate.group, estate.low, *facts, retired), after=0)

    # -- messages --

    def receive(
        self, sender: NodeId, message: MoveMessage | KeyOwner | GroupFacts | GiveUp
    ) -> None:
        if isinstance(message, Follow):
            self._follow(message)
            return
        if not self.speaks:
            if not isinstance(message, KeyOwner | GroupFacts | GiveUp | TakeAll):
                group = self._service.group
                follow = Follow(message.move, self._service.leader, group.nodes())
                self.send(sender, follow, after=0)
            return
        estate = self.estate
        if estate is None:
            return
        match message:
            case GiveUp():
                nodes = self._service.group.nodes()
                if not estate.retired and any(node.startswith(f"{sender}/") for node in nodes):
                    self.execute_once(do.Retire())
            case GroupFacts():
                self._found_again(estate, message)
            case KeyOwner() if estate.retired:
                nodes = self._service.group.nodes()
                if message.owner.group != self._group and message.owner.leader:
                    self.send(message.owner.leader, TakeAll(Party(self._group, nodes)))
            case KeyOwner():
                self._claim(estate, message)
            case TakeAll(giver):
                idle = estate.claim is None and not estate.retired
                if idle and giver.nodes and estate.low == key_of(giver.group):
                    self.execute_once(do.Claim(self._new_move(), giver))
            case Survey() | Pull() | PullParts() | Give() | Taken() | Dropped():
                self._giver.receive(sender, estate, message)
            case Surveyed() | Pulled() | PulledParts() | Given() | NotGiven() | Gone():
                self._told(estate, message)
            case Waiting(move):
                if estate.claim is None or estate.claim.move != move:
                    self.send(sender, Dropped(move))
                elif estate.claim.adopted:
                    self.send(sender, Taken(move))
            case _:
                assert_never(message)

    def _claim(self, estate: Estate, found: KeyOwner) -> None:
        """What others rely on is taken over only by a group with all its replicas."""
        owner, replicas = found.owner, len(self._service.group.nodes())
        whole = replicas >= min(self._replicas, found.processes)
        idle = estate.claim is None and estate.low is None and found.key == estate.position
        if whole and idle and owner.nodes and owner.group != self._group:
            move = self._new_move()
            nodes = dict.fromkeys((owner.leader, *owner.nodes))
            giver = Party(owner.group, tuple(node for node in nodes if node))
            self.execute_once(do.Claim(move, giver))

    def _new_move(self) -> str:
        return f"{self._group}-{self.rng.getrandbits(64):016x}"

    # -- taking --

    def _take(self, estate: Estate, claim: Claim) -> None:
        taking = self._taking
        if taking is None or taking.move != claim.move:
            taking = self._taking = Taking(claim)
        if taking.question is None:
            self._go_on(estate, claim, taking)
        elif self.now >= taking.asked + ANSWER_WITHIN:
            at = taking.nodes.index(taking.contact) if taking.contact in taking.nodes else -1
            taking.contact = taking.nodes[(at + 1) % len(taking.nodes)]
            self._ask_giver(taking, taking.question)
            self.send(self.home, WhereIs(claim.giver.group))

    def _ask_giver(self, taking: Taking, question: Value) -> None:
        taking.question, taking.asked, taking.follows = question, self.now, 0
        self.send(taking.contact, question)

    def _found_again(self, estate: Estate, facts: GroupFacts) -> None:
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
                self._abandon(claim)
        self._giver.found_again(estate, facts)

    def _follow(self, follow: Follow) -> None:
        taking = self._taking
        if taking is None or taking.move != follow.move:
            self._giver.follow(follow)
            return
        taking.nodes = tuple(dict.fromkeys((*follow.nodes, *taking.nodes)))
        # Two that take each other for the leader must not keep us running to and fro.
        tired = taking.follows >= FOLLOWS_MAX or taking.question is None
        if follow.leader and follow.leader != taking.contact and not tired:
            taking.contact = follow.leader
            taking.follows += 1
            assert taking.question is not None
            self.send(taking.contact, taking.question)

    def _go_on(self, estate: Estate, claim: Claim, taking: Taking) -> None:
        """Ask for what is needed next, if nothing is under way."""
        if taking.importing or taking.deciding:
            return
        move = claim.move
        if claim.adopted:
            self._ask_giver(taking, Taken(move))
            return
        until = estate.position if estate.low is None else estate.low
        if taking.given is None and taking.behind is not None:
            self._ask_giver(taking, Survey(move, until, taking.behind))
            return
        pull = self._pull(estate, taking)
        if pull is not None:
            self._ask_giver(taking, pull)
        elif taking.given is not None:
            if estate.frozen is None and not self.under_way(do.Freeze):  # else it waits for that
                self._adopt(taking, taking.given)
        elif taking.copied > self.little_bytes and taking.rounds < ROUNDS_MAX:
            taking.rounds += 1
            taking.copied, taking.behind = 0, ""
            self._go_on(estate, claim, taking)
        else:
            nodes = self._service.group.nodes()
            self._ask_giver(taking, Give(move, until, Party(self._group, nodes)))

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

    def _told(
        self,
        estate: Estate,
        told: Surveyed | Pulled | PulledParts | Given | NotGiven | Gone,
    ) -> None:
        taking, claim = self._taking, estate.claim
        if taking is None or claim is None or told.move != claim.move or not taking.question:
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
                topics, sources = state.moved_in(told.rows, Places())
                taking.parts = list(names_of_parts(sources))
                ends = (TopicEnds(t.name, t.id, t.index.first, t.index.next) for t in topics)
                taking.topics = {each.topic: each for each in ends}
            case NotGiven(), Survey() | Give():
                self._abandon(claim)
            case Gone(), Taken():
                self._finish(claim)
            case _:
                return
        taking.question = None
        self._go_on(estate, claim, taking)

    def _abandon(self, claim: Claim) -> None:
        taking = self._taking
        known = taking is not None and taking.move == claim.move
        contact = taking.contact if taking is not None and known else claim.giver.nodes[0]

        def abandoned(so: bool) -> None:
            now = self.estate.claim if self.estate is not None else None
            if now is None or now.move != claim.move:
                self.send(contact, Dropped(claim.move))  # else the giver finds out only later

        self._decide(claim)
        self.execute_once(do.Abandon(claim.move), abandoned)

    def _finish(self, claim: Claim) -> None:
        self._decide(claim)
        self.execute_once(do.Finish(claim.move), lambda _: self._report())

    def _decide(self, claim: Claim) -> None:
        """From now on nothing more is asked for this claim."""
        if self._taking is not None and self._taking.move == claim.move:
            self._taking.deciding = True

    def _import(self, taking: Taking, batches: tuple[do.Import, ...]) -> None:
        """Have them decided."""

        def imported(so: bool) -> None:
            taking.importing -= 1
            estate = self.estate
            claim = estate.claim if estate is not None else None
            if estate is not None and claim is not None and self._taking is taking:
                self._go_on(estate, claim, taking)

        taking.importing += len(batches)
        for batch in batches:
            taking.copied += batch.size
            self.execute(batch, imported)

    def _adopt(self, taking: Taking, given: Given) -> None:
        def adopted(so: bool) -> None:
            taking.deciding = False
            claim = self.estate.claim if self.estate is not None else None
            if not so and claim is not None and claim.move == given.move:
                # The copies have a hole; or what lies between is another's by now.
                self._abandon(claim)
            self._report()

        taking.deciding = True
        facts = (given.low, given.until, given.clock, given.lives, given.epochs, given.rows)
        self.execute(do.Adopt(given.move, *facts), adopted)
