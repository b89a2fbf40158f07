"""A replica of a Multi-Paxos group: acceptor, learner and leader as one protocol (REP-1, REP-2).

    messages, records, timers    messages.py
    storing and applying         core.py         one order, applied without a gap
    promising and voting         acceptor.py     never back, never before the disk
    counting and catching up     learner.py, supply.py
    standing and proposing       leader.py       with a lease, so that reads need no round
    who is a member              seats.py        decided in the same order
    stopping                     retiring.py     not before another one leads

Needs: links to the others, a log. Gives: what replication/events.py says, over opaque bytes.
docs/protocols/multipaxos.md says how it differs from the papers, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oncecast.errors import Crippled, Diverged
from oncecast.kernel.protocol import NodeId
from oncecast.replication import messages as m
from oncecast.replication.ballot import Ballot
from oncecast.replication.events import Change, Compact, Digest, HandOver, Propose, Retire
from oncecast.replication.messages import CHECK, Beat, Born, Item, OfferDue, Reborn, Silence, Sum
from oncecast.replication.quorum import NOBODY, Config
from oncecast.replication.retiring import Retirement
from oncecast.replication.seats import Seats

SENDERS_MAX = 256  # nodes whose last message is remembered


class Paxos(Seats):
    Request = Propose | Compact | Digest | Change | HandOver | Retire

    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.retirement = Retirement(self)
        self.sums: dict[int, dict[NodeId, tuple[int, bytes]]] = {}
        self.compared = 0.0
        self.last_message: dict[NodeId, float] = {}  # when each other node was heard last

    def start(self) -> None:
        if not self.born:
            self._begin_life()
        self.finish_restore()
        bound = self._bound()
        self._move_house()
        if not self.damage:
            self.finish_alone()
        self.started = True
        self.advance()
        alone = self.config.nodes() == [self.me]
        if self.damage:
            alone = self._outlive_damage(alone)
        alone = alone and not bound
        # What was answered to a leader before a restart still binds.
        self.heard = self.now - self.options.suspicion if alone else self.now
        if not self.seated:
            self.later(0.0, OfferDue())
        elif alone:
            self.lead_alone()
        else:
            self.later(self.patience(), Silence())

    def _outlive_damage(self, alone: bool) -> bool:
        """Whether it is alone indeed: what cannot be read may have said otherwise."""
        if alone:
            self.contacts = tuple(dict.fromkeys((*self.rumour.nodes(), *self.contacts)))
            if not self.sources():
                raise Crippled(
                    f"replica {self.me}: {self.damage}, and no other replica has them",
                    'run "oncecast log verify"',
                )
        if self.forgetful:
            self.live_anew(self.rng.getrandbits(62) + 1, self.rebirths + 1)
            self.append(Reborn(self.life, self.rebirths))
        return False

    def _begin_life(self) -> None:
        self.life = self.life or self.rng.getrandbits(62) + 1
        config = self.founders
        if config is NOBODY and not self.contacts:
            config = Config(1, (self.self_as_member,), self.options.size, self.life)
        self.memberships.start(0, config)
        self.append(Born(self.life, config))

    def _bound(self) -> bool:
        """Return whether another node may still hold a lease from this one.

        A leader that removes itself from a group of two leaves the other one alone, and may not
        know yet that it is removed.
        """
        if self.config.version == 1:
            return False  # no other node was ever a member; this one may have changed its address
        alone = len(self.config.members) == 1
        own = ("", self.me, *(self.config.nodes() if alone else ()))
        return self.promised.node not in own

    def _move_house(self) -> None:
        """Who is alone may go by another address from now on: nobody else knows the old one."""
        config = self.config
        alone = len(config.members) == 1 and config.members[0].life == self.life
        if alone and not self.seated:
            moved = Config(config.version, (self.self_as_member,), config.size, config.group)
            self.memberships.start(self.applied, moved)

    def request(self, request: Propose | Compact | Digest | Change | HandOver | Retire) -> None:
        if isinstance(request, Propose):
            self.on_propose(request)
        elif isinstance(request, Compact):
            self.on_compact(request)
        elif isinstance(request, Digest):
            self._compare_mine(request)
        elif isinstance(request, Change):
            self.on_change(request)
        elif isinstance(request, HandOver):
            self.on_hand_over(request)
        else:
            self.retirement.begin()

    def down(self, peer: NodeId) -> None:
        self.retirement.lost(peer)

    def follow(self, ballot: Ballot) -> None:
        super().follow(ballot)
        if self.retired:
            self.retirement.followed()

    def receive(self, sender: NodeId, message: m.Message) -> None:
        self.last_message[sender] = self.now
        if len(self.last_message) > SENDERS_MAX:
            self._forget_sender()
        theirs = getattr(message, "group", 0)
        if theirs and self.group and theirs != self.group:
            self._hear_of_another_group(sender, message)
        else:
            HANDLERS[type(message)](self, sender, message)

    def _forget_sender(self) -> None:
        """Forget the node that was silent for longest, if possible one that is not a replica."""
        replicas = self.nodes()
        oldest = min(
            self.last_message, key=lambda node: (node in replicas, self.last_message[node])
        )
        del self.last_message[oldest]

    def _hear_of_another_group(self, sender: NodeId, message: m.Message) -> None:
        """A first node that has lost its disk, and was not told to join, founds another group."""
        if isinstance(message, Beat):
            raise Diverged(
                f"replica {self.me}: {sender} leads another group that has this node as a member",
                f"move its data directory away and let it join again, with --join {sender}",
            )

    def timeout(self, timer: m.Timer) -> None:
        TIMERS[type(timer)](self)

    # -- comparing --

    def beat(self) -> None:
        super().beat()
        every, reign = self.options.compare_every, self.reign
        if not every or reign is None or not reign.acting or not self.others():
            return
        if self.now >= self.compared + every:
            self.compared = self.now
            reign.queue.append((-1, Item(CHECK, b"")))
            self.proceed()

    def _compare_mine(self, digest: Digest) -> None:
        chain = next((chain for slot, chain in self.checks if slot == digest.place), None)
        if chain is not None:  # a replica that was far behind comes upon many checks at once
            self._compare(self.me, Sum(digest.place, chain, digest.digest))

    def on_sum(self, sender: NodeId, message: Sum) -> None:
        self._compare(sender, message)

    def _compare(self, node: NodeId, total: Sum) -> None:
        sums = self.sums.setdefault(total.slot, {})
        sums[node] = total.chain, total.digest
        for old in sorted(self.sums)[:-4]:
            del self.sums[old]
        if node == self.me:
            for other in self.others():
                self.send(other, total)
        mine, config = sums.get(self.me), self.memberships.of(total.slot)
        if mine is None:
            return
        against = [each for each in config.nodes() if sums.get(each, mine) != mine]
        if against and len(config.members) - len(against) < config.majority:
            raise Diverged(
                f"replica {self.me}: its state at slot {total.slot} differs from that of "
                f"{len(against)} of {len(config.members)} replicas"
            )


Handler = Callable[[Paxos, NodeId, Any], None]

HANDLERS: dict[type, Handler] = {
    m.Canvass: Paxos.on_canvass,
    m.Consent: Paxos.on_consent,
    m.Prepare: Paxos.on_prepare,
    m.Promise: Paxos.on_promise,
    m.Reject: Paxos.on_reject,
    m.Accept: Paxos.on_accept,
    m.Accepted: Paxos.on_accepted,
    m.Beat: Paxos.on_beat,
    m.Heard: Paxos.on_heard,
    m.Release: Paxos.on_release,
    m.Want: Paxos.on_want,
    m.Chosen: Paxos.on_chosen,
    m.Lacking: Paxos.on_lacking,
    m.Recall: Paxos.on_recall,
    m.Recalled: Paxos.on_recalled,
    m.Ahead: Paxos.on_ahead,
    m.WantPiece: Paxos.on_want_piece,
    m.Piece: Paxos.on_piece,
    m.Offer: Paxos.on_offer,
    m.Guide: Paxos.on_guide,
    m.Sum: Paxos.on_sum,
    m.Stored: Paxos.on_stored,
}

TIMERS: dict[type, Callable[[Paxos], None]] = {
    m.BeatDue: Paxos.beat,
    m.Silence: Paxos.on_silence,
    m.Unanswered: Paxos.on_unanswered,
    m.Flush: Paxos.on_flush,
    m.Behind: Paxos.on_behind,
    m.Unclaimed: Paxos.on_unclaimed,
    m.OfferDue: Paxos.on_offer_due,
}
