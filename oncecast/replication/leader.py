"""The leader: it stands, finishes what others have begun, and then proposes what it is asked to.

Multi-Paxos: one Prepare serves all slots. Slots are pipelined within a window, and what is proposed
in one turn while others are on their way shares an Accept. A slot is proposed only when it is known
who votes on it: while a change of the membership is on its way, what comes behind it waits. A
change is proposed only by who has had something decided under the present membership with its own
ballot: so nobody with a lower one can decide anything behind it.

A leader may answer by itself, without a round, for as long as a majority has promised to promise
nobody else anything: its lease. It counts from when the Beat was sent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from random import Random
from typing import Any

from oncecast.errors import Crippled
from oncecast.kernel.protocol import NodeId
from oncecast.replication.acceptor import FOR_EVER
from oncecast.replication.ballot import Ballot, above
from oncecast.replication.core import decode_config, encode_config
from oncecast.replication.events import HandOver, LeaderChanged, Propose
from oncecast.replication.messages import (
    COMMAND,
    CONFIG,
    Accept,
    Accepted,
    Beat,
    BeatDue,
    Canvass,
    Consent,
    Flush,
    Heard,
    Item,
    Prepare,
    Promise,
    Reject,
    Release,
    Silence,
    Unanswered,
)
from oncecast.replication.promises import Promises
from oncecast.replication.quorum import Config, Member
from oncecast.replication.supply import Supplier

SLOWEST = 8 << 20  # bytes a second that are sent and stored at least


class Reign:
    """One ballot of ours, from the Prepare to whatever ends it."""

    def __init__(self, ballot: Ballot, now: float) -> None:
        self.ballot, self.since = ballot, now
        self.audible = now  # who votes could not answer a Beat before
        self.promises = Promises()
        self.elected = False  # a majority has promised
        self.acting = False  # all that could have been chosen before is applied
        self.next = 0  # slot to propose
        self.queue: deque[tuple[int, Item]] = deque()
        self.flying: deque[tuple[int, int]] = deque()  # slot and bytes, proposed and not applied
        self.flying_bytes = 0
        self.changing: tuple[int, Config] | None = None  # a membership on its way
        self.proven = 0  # the membership under which something was decided with this ballot
        self.answered = 0  # what was applied when the answers were last looked at
        self.ends: dict[Member, float] = {}  # when each is free again to promise somebody else
        self.waiting = self.flushing = False  # a timer is set

    @property
    def idle(self) -> bool:
        """There is nothing that it should propose."""
        return self.acting and not self.queue and self.next > self.promises.horizon


class Leader(Supplier):
    def __init__(self, me: NodeId, rng: Random, **options: Any) -> None:
        super().__init__(me, rng, **options)
        self.reign: Reign | None = None
        self.seen = self.promised  # the highest ballot heard of
        self.consents: dict[Member, None] = {}  # who would hear us, if we stood
        self.retired = False  # it is about to stop, and leads no more

    # -- standing --

    def on_silence(self) -> None:
        if self.reign is not None or not self.seated or self.retired:
            return
        left = self.heard + self.options.suspicion - self.now
        if left > 0:
            self.later(left, Silence())
        elif self.others():
            self._canvass()
        elif all(last <= self.applied for _, last in self.lost):
            self.stand()  # nobody else votes, and nothing that is lost can say otherwise

    def _canvass(self) -> None:
        """Stand only if a majority hears of no leader either: a ballot ends any reign below it, and
        who was away, or is half cut off, would end one that all the others are content with."""
        self._lose_leader()
        self.consents = {self.self_as_member: None}
        for node in self.others():
            self.send(node, Canvass(self.applied + 1, self.group), after=0)
        self.later(self.options.resend * (1 + self.rng.random()), Silence())

    def on_consent(self, sender: NodeId, message: Consent) -> None:
        if self.reign is not None or self.leased(self.me):
            return  # there is a leader by now
        self.consents[Member(sender, message.life)] = None
        if self.config.agreed(self.consents):
            self.stand()

    def stand(self) -> None:
        if not self.seated or self.retired:
            return
        self.seen = ballot = above(max(self.seen, self.promised), self.me)
        self._lose_leader()
        self.reign = Reign(ballot, self.now)
        self.store_promise(ballot)
        first = self.applied + 1
        self.send(self.me, self._promise(ballot, first))
        for node in self.others():
            # Not before it is on disk: another life must not use the same ballot.
            self.send(node, Prepare(ballot, first, self.group))
        self._await_answers(self.reign)

    def finish_alone(self) -> None:
        """Apply what is on disk of a group of one: it is chosen, up to where others vote, too."""
        while self.applied < self.places.end - 1 and self.config.nodes() == [self.me]:
            self.certain = max(self.certain, self.applied + 1)
            before = self.applied
            self.finish_restore()
            if self.applied == before:
                raise Crippled(f"replica {self.me}: slot {before + 1} is not in its log")
            if self.memberships.since == self.applied:
                self.write_again(self.applied, Item(CONFIG, encode_config(self.config)))

    def lead_alone(self) -> None:
        self.seen = self.promised = ballot = above(max(self.seen, self.promised), self.me)
        self.reign = Reign(ballot, self.now)
        self.reign.promises.add(self.self_as_member, self._promise(ballot, self.applied + 1))
        self.proceed()

    def on_promise(self, sender: NodeId, message: Promise) -> None:
        reign = self.reign
        if reign is None or message.ballot != reign.ballot:
            return
        if message.first > self.applied + 1:
            return  # an earlier life asked for it, and for less
        reign.promises.add(Member(sender, message.life), message)
        if message.known > self.applied:
            self.known = max(self.known, message.known)
            self.want_from(sender)
            self.await_more()
        self.proceed()

    def on_reject(self, sender: NodeId, message: Reject) -> None:
        self.seen = max(self.seen, message.ballot)
        if self.reign is not None and message.ballot > self.reign.ballot:
            if self.reign.elected:  # whom we have heard is ourselves, and it leads no more
                self.heard = self.now - self.options.suspicion
            self.step_down()
            self.later(self.recess() * (1 + 3 * self.rng.random()) / 4, Silence())

    def outrun(self, ballot: Ballot) -> None:
        self.seen = max(self.seen, ballot)
        if self.reign is not None and self.reign.ballot < ballot:
            self.step_down()

    def keep_learned(self, slot: int, item: Item) -> None:
        """Who hears that something else was chosen than it has proposed leads no more: it must not
        call that its own, nor tell others that what they accepted from it was chosen."""
        reign = self.reign
        flying = reign.flying if reign is not None else ()
        if flying and flying[0][0] <= slot <= flying[-1][0] and self.readable(slot) != item:
            self.step_down()
        super().keep_learned(slot, item)

    def overtaken(self) -> None:
        if self.reign is not None and self.reign.flying:
            self.step_down()

    def step_down(self) -> None:
        self.reign = None
        self.tokens.clear()
        self._lose_leader()
        self.later(self.patience(), Silence())

    def _lose_leader(self) -> None:
        if self.leader:
            self.leader = NodeId("")
            self.emit(LeaderChanged(self.leader), after=0)

    # -- proposing --

    def on_propose(self, request: Propose) -> None:
        reign = self.reign
        if reign is None or not reign.acting:
            return  # who asks has heard that somebody else leads, or will
        reign.queue.append((request.token, Item(COMMAND, request.value)))
        if not reign.flying or len(self.config.members) == 1:
            self.proceed()
        elif not reign.flushing:
            reign.flushing = True
            self.later(0.0, Flush())

    def on_flush(self) -> None:
        if self.reign is not None:
            self.reign.flushing = False
            self.proceed()

    def apply(self, slot: int, item: Item) -> None:
        reign, version = self.reign, self.config.version
        fresh = reign is not None and (reign.proven < version or item.kind == CONFIG)
        if reign is None or not fresh or not self._won(reign, slot):
            super().apply(slot, item)
            return
        super().apply(slot, item)
        reign.proven = self.config.version

    def _won(self, reign: Reign, slot: int) -> bool:
        """Whether this slot was decided with our ballot."""
        tally = self.tallies.get(slot)
        return (
            tally is not None and tally.ballot == reign.ballot and self.config.agreed(tally.voters)
        )

    def progressed(self) -> None:
        reign = self.reign
        if reign is None:
            return
        while reign.flying and reign.flying[0][0] <= self.applied:
            slot, size = reign.flying.popleft()
            reign.flying_bytes -= size
            reign.promises.forget(slot)
        if reign.changing is not None and reign.changing[0] <= self.applied:
            reign.changing = None
        self.proceed()

    def proceed(self) -> None:
        """Propose all that may be proposed now; what others have begun comes first."""
        reign = self.reign
        while reign is not None and reign is self.reign and not reign.idle:
            reign.next = max(reign.next, self.applied + 1)
            if reign.changing is not None:
                return
            items = self._next_items(reign)
            if reign is not self.reign:
                return
            self._take_office(reign)
            if not items:
                if not reign.idle:
                    self._await_answers(reign)  # of who can say more
                return
            self._propose(reign, items)

    def _next_items(self, reign: Reign) -> list[Item]:
        config, promises, options = self.config, reign.promises, self.options
        items: list[Item] = []
        room = min(options.accept_bytes, options.window_bytes - reign.flying_bytes)
        slot = reign.next
        while room > 0 and len(reign.flying) + len(items) < options.window_slots:
            begun = slot <= promises.horizon
            if not (begun or reign.queue) or not promises.cover(slot, config):
                break
            value = promises.value(slot, config) if begun else None
            if self._beaten(slot, value):
                self.step_down()
                return []
            if value is not None:
                items.append(value)
            else:
                self.tokens[slot], item = reign.queue.popleft()
                items.append(item)
            if items[-1].kind == CONFIG:
                break
            room -= len(items[-1].data)
            slot += 1
        return items

    def _beaten(self, slot: int, value: Item | None) -> bool:
        """Whether another value was chosen than what this leader would propose: only a leader with
        a higher ballot can have done that. `value` is None for a new command."""
        if slot > self.certain and slot not in self.told:
            return False
        return value is None or self.readable(slot) not in (None, value)

    def _propose(self, reign: Reign, items: list[Item]) -> None:
        first = reign.next
        accept = Accept(reign.ballot, first, tuple(items), self.applied, self.group)
        others = self.others()
        for node in self.followers():
            self.send(node, accept, after=0)
        self.accept(accept)
        for slot, item in enumerate(items, first):
            reign.flying.append((slot, len(item.data)))
            reign.flying_bytes += len(item.data)
        reign.next = first + len(items)
        if items[-1].kind == CONFIG:
            reign.changing = reign.next - 1, decode_config(items[-1].data)
        for node in others:
            self.send(node, Accepted(reign.ballot, first, reign.next - 1, self.life))
        self.say_stored()
        if others:
            self._await_answers(reign)

    def _await_answers(self, reign: Reign) -> None:
        if not reign.waiting:
            reign.waiting = True
            # What is large is on its way for longer: said again, it would wait behind itself.
            self.later(self.options.resend + reign.flying_bytes / SLOWEST, Unanswered())

    def on_unanswered(self) -> None:
        """Say it again to who has not answered."""
        reign = self.reign
        if reign is None:
            return
        reign.waiting = False
        self._prepare_again(reign)
        if reign.flying and reign.answered == self.applied:
            self._accept_again(reign)
        reign.answered = self.applied
        if reign.flying or not reign.idle or not self._covered(reign):
            self._await_answers(reign)

    def _prepare_again(self, reign: Reign) -> None:
        """Ask who has not promised, or could not report all of its votes at once."""
        for member in self.config.members:
            promise = reign.promises.members.get(member)
            whole = promise is not None and all(high <= self.applied for _, high in promise.lost)
            if not whole and member.node != self.me:
                self.send(member.node, Prepare(reign.ballot, self.applied + 1, self.group))

    def _accept_again(self, reign: Reign) -> None:
        first = self.applied + 1
        items: list[Item] = []
        room = self.options.accept_bytes
        while room > 0 and first + len(items) < reign.next:
            item = self.readable(first + len(items))
            if item is None:
                break
            items.append(item)
            room -= len(item.data)
        tally = self.tallies.get(first)
        answered = tally.voters if tally is not None and tally.ballot == reign.ballot else {}
        accept = Accept(reign.ballot, first, tuple(items), self.applied, self.group)
        for member in self.config.members:
            if member.node != self.me and member not in answered and items:
                self.send(member.node, accept, after=0)

    # -- leading --

    def _take_office(self, reign: Reign) -> None:
        promises = reign.promises
        if reign.acting or self.applied < promises.known:
            return  # who has not caught up does not know who votes now
        if not self._covered(reign):
            return
        if not reign.elected:
            reign.elected = True
            reign.audible, self.vain = self.now, 0
            self.ballot = reign.ballot
            self.beat()
        if self.applied >= promises.horizon:
            reign.acting = True
            self.leader = self.me
            self.emit(LeaderChanged(self.me), after=0)

    def beat(self) -> None:
        reign = self.reign
        if reign is None or not reign.elected:
            return
        heard = max(self.lease_ends(), reign.audible)
        if self.now > heard + self.options.suspicion:
            self.step_down()  # no majority hears us: who asks should ask elsewhere
            return
        self.heard = self.now
        reign.ends[self.self_as_member] = self.now + self.options.lease(self.options.suspicion)
        for node in self.audience():
            self.beat_to(node, reign)
        self.later(self.options.heartbeat, BeatDue())

    def beat_to(self, node: NodeId, reign: Reign) -> None:
        self.send(node, Beat(reign.ballot, self.applied, self.now, self.group), after=0)

    def reconfigured(self, before: Config) -> None:
        """Who votes from now on must have promised too."""
        reign = self.reign
        if reign is None:
            return
        if not self.seated:
            self.resign(reign, NodeId(""))
            return
        reign.audible = self.now
        self.later(0.0, BeatDue())
        if not self._covered(reign):
            self._prepare_again(reign)
            self._await_answers(reign)

    def _covered(self, reign: Reign) -> bool:
        """Whether a majority of those who vote now has promised."""
        return reign.promises.cover(reign.promises.horizon + 1, self.config)

    @abstractmethod
    def audience(self) -> list[NodeId]:
        """Return the nodes that hear that this one leads."""

    @abstractmethod
    def followers(self) -> list[NodeId]:
        """Return the nodes that hear of each proposal."""

    def on_heard(self, sender: NodeId, message: Heard) -> None:
        reign = self.reign
        if reign is None or message.ballot != reign.ballot:
            return
        member = Member(sender, message.life)
        end = message.stamp + self.options.lease(message.bound)
        reign.ends[member] = max(end, reign.ends.get(member, end))

    def lease_ends(self) -> float:
        """Until when, on our clock, nobody else can have been elected."""
        reign = self.reign
        if reign is None or not reign.elected:
            return 0.0
        ends = self._lease(reign, self.config)
        return ends if reign.changing is None else min(ends, self._lease(reign, reign.changing[1]))

    def _lease(self, reign: Reign, config: Config) -> float:
        if len(config.members) == 1 and config.members[0].node == self.me:
            return FOR_EVER
        ends = sorted(reign.ends.get(member, reign.since) for member in config.members)
        return ends[len(ends) - config.majority]

    def leads(self, now: float) -> bool:
        """Whether what is applied here is all that anybody can have heard of."""
        return self.reign is not None and self.reign.acting and now < self.lease_ends()

    def on_hand_over(self, request: HandOver) -> None:
        reign = self.reign
        if reign is not None and reign.acting and request.heir in self.others():
            self.resign(reign, request.heir)

    def resign(self, reign: Reign, heir: NodeId) -> None:
        self.step_down()
        if reign.acting:  # or else somebody may lead who still relies on what it was answered
            self.heard = self.now - self.options.suspicion
            for node in self.others():
                self.send(node, Release(reign.ballot, heir), after=0)
