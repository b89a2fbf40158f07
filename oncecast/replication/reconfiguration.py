"""Membership changes: the leader proposes them one member at a time, and the log decides.

A node that is not a member offers itself. The leader admits it if the group has too few members, or
if a member has been silent for too long. The silent member stays until the new one has joined,
because it may come back and its disk counts until then. If it is back by then, the member that
joined last is removed again. The one exception is a node that lost its disk: its old incarnation
is removed first. That incarnation will never vote again, and a node cannot be a member twice.

A member has a vote, so the leader first lets a newcomer catch up. Then it proposes a membership
that includes the newcomer. Consecutive memberships differ by at most one member. Safety depends on
this, because their majorities then overlap.

A membership also has a level, which tells which entries its members can read. Each node reports the
highest level that it supports, in its offers and its answers to heartbeats. When all members are
present and support a higher level, the leader proposes the same members with that level. Levels and
members change in one sequence, so no member ever has to read an entry that it does not support.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.events import Change, NotSeated, Suspected
from oncecast.replication.leader import Leader, Term
from oncecast.replication.messages import CONFIG, NOOP, Guide, Heard, Item, Offer, OfferDue, Silence
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import SIZE_MAX, Config, Member, encode_config
from oncecast.replication.roster import Roster
from oncecast.replication.state import Fetching, Following, Membership, Progress

OFFERS_MAX = CONTACTS_MAX = 64
NO_NODE = NodeId("")


@dataclass(eq=False)
class Reconfiguration:
    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    following: Following
    roster: Roster
    leader: Leader

    # -- messages to the leader --

    def on_offer(self, sender: NodeId, message: Offer) -> None:
        config, roster, term = self.membership.config, self.roster, self.leader.term
        self.io.send(sender, Guide(self.following.leader, config.without_secrets()), after=0)
        if term is None or not term.acting:
            return
        if message.level < config.level:
            roster.turn_away(sender, message.level, config.level)
            return
        if config.member(sender) is None:
            roster.last_heard[sender] = self.io.now  # silence does not count before a node joins
        if config.member(sender) or sender in roster.offers or len(roster.offers) < OFFERS_MAX:
            applied = self.progress.applied
            member = Member(sender, message.incarnation)
            roster.note_offer(member, message.applied, applied, message.level)
        self.look()

    def on_heard(self, sender: NodeId, message: Heard) -> None:
        roster = self.roster
        self.leader.on_heard(sender, message)
        member = Member(sender, message.incarnation)
        roster.reported[member] = message.applied
        if member in self.membership.config.members:
            roster.levels[member] = message.level
            roster.last_heard[sender] = self.io.now
            if sender in roster.silent:
                del roster.silent[sender]
                self.io.emit(Suspected(sender, False), after=0)
        offered = roster.offers.get(sender)
        if offered is not None and offered.member.incarnation == message.incarnation:
            chosen = roster.chosen_at(message.stamp, self.progress.applied)
            earlier = roster.chosen_before(message.stamp, chosen)
            roster.note_offer(offered.member, message.applied, chosen, offered.level, earlier)
            if sender == roster.newcomer:
                self.look()  # the newcomer may have caught up
        term = self.leader.term
        if term is not None and term.removing > self.progress.applied:
            self.leader.proceed()  # a removal waits for the slots that members report

    def on_change(self, change: Change) -> None:
        self.roster.changes.append(change)
        self.look()

    # -- the next membership --

    def look(self) -> None:
        """Suspect silent members, and propose the next membership if one is due."""
        roster, membership, term = self.roster, self.membership, self.leader.term
        if term is None or not term.acting:
            roster.changes.clear()  # clients must ask the next leader again
            return
        self._suspect(term)
        roster.forget_old()
        if roster.newcomer and roster.newcomer not in roster.offers:
            self._choose_newcomer(NodeId(""))
        if term.changing is not None:
            return
        term.withdraw_membership()  # a member may have failed in the meantime
        config = self._next(term)
        if config is None:
            self.leader.proceed()  # commands may have waited behind it
            return
        if term.proven == membership.config.version or not membership.others():
            # Put the change first, because a group with a backlog of commands needs it most.
            term.queue.appendleft((-1, Item(CONFIG, encode_config(config))))
        elif not term.queue and not term.in_flight:
            # The leader must decide a slot of its own ballot first.
            term.queue.append((-1, Item(NOOP, b"")))
        self.leader.proceed()

    def progressed(self) -> None:
        self.leader.progressed()
        if self.roster.changes:
            self.look()

    def _suspect(self, term: Term) -> None:
        silent = self.roster.silent
        for node in self.membership.others():
            if node not in silent and self._silence(term, node) > self.options.suspicion:
                silent[node] = None
                self.io.emit(Suspected(node, True), after=0)

    def _silence(self, term: Term, node: NodeId) -> float:
        return self.io.now - max(term.since, self.roster.last_heard.get(node, 0.0))

    def _next(self, term: Term) -> Config | None:
        """Return the next membership to propose, or None if no change is due or possible now."""
        config, changes = self.membership.config, self.roster.changes
        while changes:
            step = self._towards(changes[0])
            if step is not config:
                return step
            changes.pop(0)
        lost = self.roster.lost_disk()
        if lost:
            left = config.removed(lost)
            return left if self._informed(left) else None
        if len(config.members) > config.size:
            return self._without_one(term)
        return self._with_one(term) or self._raised()

    def _raised(self) -> Config | None:
        """Return the membership at the highest level that all members support, or None."""
        config, level = self.membership.config, self.roster.common_level()
        return config.successor(*config.members, level=level) if level > config.level else None

    def _towards(self, change: Change) -> Config | None:
        """Return the next step of a change, or None while it waits for a node to catch up.

        Return the current membership if the change is done or impossible.
        """
        config, roster, size = self.membership.config, self.roster, change.size
        if not 0 <= size <= SIZE_MAX:
            return config
        if change.add and config.member(change.add) is None:
            if change.add not in roster.offers:
                return config
            member = roster.offers[change.add].member
            if roster.caught_up(change.add) and self._answers(member):
                return config.added(member, size)
            self._choose_newcomer(change.add)
            return None
        if change.remove and config.member(change.remove):
            left = config.removed(change.remove, size)
            if not roster.viable(left):
                return config
            return left if self._may_lose(change.remove, left) else None
        if size and size != config.size:
            return config.successor(*config.members, size=size)
        return config

    def _without_one(self, term: Term) -> Config | None:
        """Return the membership without the longest silent member, or else the last to join.

        Return None if no member can be removed now.
        """
        config, roster, others = self.membership.config, self.roster, self.membership.others()
        patience = self.options.suspicion
        # Whether enough time has passed to tell which members are silent.
        judged = self.io.now - term.since > patience
        if not judged or not roster.viable(config) or not self.leader.covered(term):
            return None  # the first member that comes back should stay
        longest = max(others, key=lambda node: self._silence(term, node))
        silent = self._silence(term, longest) > patience
        node = longest if silent else others[-1]
        left = config.removed(node)
        return left if roster.viable(left) and self._may_lose(node, left) else None

    def _may_lose(self, node: NodeId, left: Config) -> bool:
        """Return whether the members in `left` need no more slots from this member.

        An entry that this leader cannot read may be readable on that member.
        """
        fetching = self.leader.fetching
        needed = any(not fetching.gone_everywhere(slot) for slot in fetching.holes)
        return self._informed(left) and (self.roster.absent(node) or not needed)

    def _informed(self, left: Config) -> bool:
        """Return whether the members in `left` have the slots that a removal needs.

        Commands wait behind a removal. If it has waited for too long, commands go first, and the
        members must report the slots before it is proposed again. Otherwise a member that cannot
        catch up would block the group.
        """
        roster, term = self.roster, self.leader.term
        if not roster.informed(left) or term is None:
            return False
        late = self.io.now > term.removing_since + self.options.suspicion
        return not late or roster.have(left, term.removing - 1)

    def _with_one(self, term: Term) -> Config | None:
        config, roster, limit = self.membership.config, self.roster, self.options.replace_after
        free, others = len(config.members) < config.size, self.membership.others()
        if not free and all(self._silence(term, node) <= limit for node in others):
            self._choose_newcomer(NodeId(""))  # the group needs no new member
            return None
        waiting = [node for node in roster.offers if config.member(node) is None]
        for node in waiting:
            member = roster.offers[node].member
            if roster.caught_up(node) and self._answers(member):
                return config.added(member)
        if waiting:
            self._choose_newcomer(self._next_newcomer(waiting))
        return None

    def _answers(self, member: Member) -> bool:
        """Return whether a newcomer has answered this leader recently.

        A newcomer has a vote as soon as it is a member. If a group of two included a node that
        never answers, it could decide nothing, not even the removal of that node.
        """
        term = self.leader.term
        return term is not None and term.ends.get(member, 0.0) > self.io.now

    def _next_newcomer(self, waiting: list[NodeId]) -> NodeId:
        """Return the next newcomer. Newcomers take turns, in case one never catches up."""
        newcomer, options = self.roster.newcomer, self.options
        if newcomer not in waiting:
            return waiting[0]
        answers = self._answers(self.roster.offers[newcomer].member)
        turn = options.replace_after if answers else 2 * options.suspicion
        if self.io.now < self.roster.newcomer_since + min(turn, options.replace_after):
            return newcomer
        return waiting[(waiting.index(newcomer) + 1) % len(waiting)]

    def _choose_newcomer(self, node: NodeId) -> None:
        """Let this node catch up: it learns which slots are chosen and fetches them."""
        roster, term = self.roster, self.leader.term
        if node != roster.newcomer:
            roster.choose_newcomer(node)
            if node and term is not None:
                roster.beats.append((self.io.now, self.progress.applied))
                self.leader.beat_to(node, term)  # without waiting for the next heartbeat

    # -- after a change --

    def reconfigured(self, before: Config) -> None:
        """Act on a new membership that replaces `before`."""
        membership, roster = self.membership, self.roster
        roster.reconfigured()
        if roster.newcomer in membership.config.nodes():
            self._choose_newcomer(NodeId(""))
        self.leader.reconfigured()
        if not membership.is_member:
            self.io.later(self.options.heartbeat, OfferDue())
        elif membership.self_as_member not in before.members:
            # Wait for a leader, because the leader that admitted this replica may have failed.
            self.io.later(self.following.patience(), Silence())


@dataclass(eq=False)
class Joining:
    """Offers this node to the leader until it becomes a member."""

    io: Protocol
    options: GroupOptions
    membership: Membership
    progress: Progress
    following: Following
    fetching: Fetching
    guide: NodeId = NO_NODE  # the node that a member named as the leader
    needed_level: int = 0  # level of the group, as last reported

    def on_offer_due(self) -> None:
        if self.membership.is_member:
            return
        if self.io.now >= self.following.heard + 2 * self.options.suspicion:
            self.following.lose_leader()  # otherwise clients would still be sent to that leader
        self.offer()
        self.io.later(self.options.heartbeat, OfferDue())

    def offer(self) -> None:
        leader = self.following.leader or self.guide
        for node in [leader] if leader else self.fetching.sources():
            self.fetching.ask(node)
            membership = self.membership
            offer = Offer(membership.incarnation, self.progress.applied, membership.known_level)
            self.io.send(node, offer)
        # If this node does not answer, the next attempt goes to other nodes.
        self.guide = NodeId("")

    def on_guide(self, sender: NodeId, message: Guide) -> None:
        membership = self.membership
        if membership.is_member or not message.config.members:
            return
        self.guide = message.leader if message.leader != membership.me else NodeId("")
        nodes = [node for node in message.config.nodes() if node != membership.me]
        membership.contacts = tuple(dict.fromkeys((*nodes, *membership.contacts)))[:CONTACTS_MAX]
        level, known = message.config.level, membership.known_level
        if level > known and level != self.needed_level:
            self.needed_level = level
            self.io.emit(NotSeated(membership.me, known, level), after=0)
