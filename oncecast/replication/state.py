"""State shared by the components of a replica. See also values.py and votes.py."""

from __future__ import annotations

from collections import deque

import google_crc32c

from oncecast.errors import Outdated
from oncecast.kernel.protocol import NodeId, Protocol
from oncecast.replication.ballot import BOTTOM
from oncecast.replication.events import LeaderChanged
from oncecast.replication.messages import Behind, Bound, Item, Vote, Want
from oncecast.replication.options import GroupOptions
from oncecast.replication.quorum import NO_MEMBERS, Config, Member, Memberships

HOLES_AT_ONCE = 16
ASKED_MAX = 64  # maximum number of nodes whose answers the replica waits for
ANSWER_TIMES = 5  # how long the replica waits for an answer, in suspicion times


class Membership:
    """This replica's identity, and the group members that it knows."""

    def __init__(
        self, me: NodeId, incarnation: int, contacts: tuple[NodeId, ...], known_level: int = 1
    ) -> None:
        self.me, self.incarnation, self.contacts = me, incarnation, contacts
        self.known_level = known_level  # the highest entry level that this program can read
        self.history = Memberships()
        self.latest_in_log = NO_MEMBERS  # the last membership in the log, applied or not
        # The id of the group that this node learns from before it becomes a member.
        self.adopted = 0

    @property
    def config(self) -> Config:
        return self.history.last

    @property
    def group(self) -> int:
        return self.history.last.group or self.adopted

    @property
    def self_as_member(self) -> Member:
        return Member(self.me, self.incarnation)

    @property
    def is_member(self) -> bool:
        return Member(self.me, self.incarnation) in self.history.last.members

    @property
    def is_single(self) -> bool:
        """Return whether the group has one member, so that its leader needs no other votes."""
        return len(self.history.last.members) == 1

    @property
    def is_alone(self) -> bool:
        return self.config.nodes() == [self.me]

    def start(self, slot: int, config: Config) -> None:
        """Start with this membership. Raise Outdated if this program cannot read its entries."""
        self._check_level(config)
        self.history.start(slot, config)

    def decided(self, slot: int, config: Config) -> None:
        """Follow the membership decided at `slot`. Raise Outdated as `start` does."""
        self._check_level(config)
        self.history.decided(slot, config)

    def _check_level(self, config: Config) -> None:
        if config.level > self.known_level:
            raise Outdated(config.level, self.known_level)

    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(self.config.nodes()) or self.contacts

    def others(self) -> list[NodeId]:
        return [node for node, _ in self.history.last.members if node != self.me]


class Progress:
    """The slots that this replica knows to be chosen, and those that it has applied."""

    def __init__(self, options: GroupOptions) -> None:
        self.applied = 0
        self.certain = 0  # the last slot up to which the local log proves that all slots are chosen
        self.known = 0  # the highest slot known to be chosen; the local log may lack it
        # The last slot that a snapshot has replaced; votes on earlier slots prove nothing.
        self.skipped = 0
        self.learned: dict[int, None] = {}  # unapplied slots that other replicas report as chosen
        self.chain = 0  # checksum of all applied slots
        # The checksums after the last commands and snapshots, and after the last checks.
        self.chains: deque[tuple[int, int]] = deque(maxlen=2 * options.step_slots)
        self.checks: deque[tuple[int, int]] = deque(maxlen=8)

    @property
    def known_to_be_chosen(self) -> int:
        """Return the slot up to which all slots are chosen, even if some are unreadable here."""
        return max(self.applied, self.certain)

    def sure_of(self, slot: int) -> bool:
        """Return whether the log proves that the value it holds for this slot was chosen."""
        return self.skipped < slot <= self.certain or slot in self.learned

    def apply(self, slot: int, item: Item) -> None:
        self.applied = slot
        chain = google_crc32c.extend(self.chain, b"%d %d " % (slot, item.kind))
        self.chain = google_crc32c.extend(chain, item.data)
        self.learned.pop(slot, None)

    def jump(self, slot: int, chain: int) -> None:
        """Continue after a snapshot of all slots up to `slot`."""
        self.applied = slot
        self.certain = max(self.certain, slot)
        self.chain = chain
        self.chains.append((slot, chain))

    def chain_at(self, slot: int) -> int:
        """Return the checksum after the command at `slot`; 0 for slot 0."""
        chain = next((chain for at, chain in reversed(self.chains) if at == slot), None)
        assert chain is not None or not slot, f"no checksum is kept for slot {slot}"
        return chain or 0


class Following:
    """The leader that this replica follows, and the lease that it has granted."""

    def __init__(self, io: Protocol, options: GroupOptions) -> None:
        self.io, self.options = io, options
        self.ballot = BOTTOM  # ballot of the last known leader
        self.leader = NodeId("")
        self.heard = 0.0
        # Seconds for which an answer binds this replica, as stored on disk; 0 if unknown.
        self.bound = 0.0
        self.bound_in = 0  # the number of the record with that time
        self.bound_until = 0.0  # the end of a lease that an earlier run may have granted
        self.failed_ballots = 0  # number of failed elections since the last leader

    def leased(self, candidate: NodeId) -> bool:
        """Return whether a leader other than `candidate` may still hold this replica's lease."""
        return candidate != self.leader and self.io.now < self.lease_end

    @property
    def lease_end(self) -> float:
        """Return the time until which a leader may hold this replica's lease."""
        return max(self.heard + self.options.suspicion, self.bound_until)

    def resume(self) -> None:
        """Keep the lease that an earlier run may have granted, perhaps for a longer time."""
        self.heard, suspicion = self.io.now, self.options.suspicion
        if self.bound > suspicion:
            self.bound_until = self.io.now + self.bound
        elif 0 < self.bound < suspicion:
            self._bind(suspicion)

    def heard_leader(self) -> None:
        """Record a message from the leader, which binds this replica for the suspicion time."""
        self.heard, self.failed_ballots = self.io.now, 0
        if self.bound > self.options.suspicion and self.io.now >= self.bound_until:
            self._bind(self.options.suspicion)

    def _bind(self, suspicion: float) -> None:
        self.bound, self.bound_in = suspicion, self.io.append(Bound(suspicion))

    def release(self) -> None:
        """End the lease, so that this replica may promise another candidate immediately."""
        self.heard = self.io.now - self.options.suspicion
        self.bound_until = self.io.now

    def lose_leader(self) -> None:
        if self.leader:
            self.leader = NodeId("")
            self.io.emit(LeaderChanged(self.leader), after=0)

    def patience(self) -> float:
        """Return how long to wait for a leader, randomized so that replicas differ."""
        return self.options.suspicion * (1 + self.io.rng.random() / 4)

    def recess(self) -> float:
        """Return how long to wait for another candidate, and count its ballot.

        The time doubles with each ballot that elects no leader. An election takes a round trip and
        two writes. Candidates that waited less would end each other's elections.
        """
        options = self.options
        self.failed_ballots += 1
        return min(2.0 ** min(self.failed_ballots, 64) * 2 * options.resend, options.suspicion)


class Fetching:
    """The chosen slots that are missing here, and the replicas that were asked for them."""

    def __init__(
        self,
        io: Protocol,
        options: GroupOptions,
        membership: Membership,
        progress: Progress,
        following: Following,
    ) -> None:
        self.io, self.options = io, options
        self.membership, self.progress, self.following = membership, progress, following
        self.asked: dict[NodeId, float] = {}  # time of the last request to each node
        self.tried: dict[NodeId, None] = {}  # replicas that did not have the next slot
        self.source = NodeId("")  # the last node that had slots this replica was missing
        self.lost_by: dict[NodeId, None] = {}  # replicas whose disk has lost the next slot
        self.applied_when_set = -1  # the last applied slot when the timer was set, or -1
        # Applied slots that are unreadable here, with the replicas that have also lost them.
        self.holes: dict[int, dict[NodeId, None]] = {}
        # Other replicas' votes for the holes.
        self.recalled: dict[int, dict[Member, Vote | None]] = {}

    def sources(self) -> list[NodeId]:
        """Return the nodes that may have the missing slots."""
        # The leader may be a member that this replica does not know, and the only complete replica.
        membership = self.membership
        leader, contacts = self.following.leader, membership.contacts
        nodes = dict.fromkeys((*membership.config.nodes(), leader, *contacts))
        return [node for node in nodes if node and node != membership.me]

    def ask(self, node: NodeId) -> None:
        """Accept answers from this node from now on."""
        self.asked.pop(node, None)
        self.asked[node] = self.io.now
        if len(self.asked) > ASKED_MAX:
            del self.asked[next(iter(self.asked))]

    def awaits(self, node: NodeId) -> bool:
        """Return whether an answer from this node may still be in flight.

        A replica that waits for an answer asks again after `resend` seconds.
        """
        asked = self.asked.get(node)
        return asked is not None and self.io.now <= asked + ANSWER_TIMES * self.options.suspicion

    def want_from(self, node: NodeId) -> None:
        self.ask(node)
        progress, group = self.progress, self.membership.group
        if progress.known > progress.applied:
            self.io.send(node, Want(progress.applied + 1, progress.known, group), after=0)
        for slot in list(self.holes)[:HOLES_AT_ONCE]:
            self.io.send(node, Want(slot, slot, group), after=0)

    def want_from_next(self) -> None:
        """Ask the next source for the missing slots, and set a timer to try another."""
        sources = self.sources()
        untried = [node for node in sources if node not in self.tried]
        if not untried:
            self.tried.clear()
            untried = sources
        if untried:
            node = self._choose(untried)
            self.tried[node] = None
            self.want_from(node)
        self.io.later(self.options.resend, Behind())

    def _choose(self, nodes: list[NodeId]) -> NodeId:
        """Choose the leader. A newcomer fetches many slots, so it prefers other nodes.

        A newcomer first asks the last node that had slots, because many others may lack them too.
        """
        leader = self.following.leader
        if self.membership.is_member and leader in nodes:
            return leader
        if self.source in nodes and not self.membership.is_member:
            return self.source
        return self.io.rng.choice([node for node in nodes if node != leader] or nodes)

    def await_more(self) -> None:
        """Set the timer to ask for missing slots. If it is already set, do not postpone it."""
        if self.applied_when_set < 0:
            self.io.later(self.options.resend, Behind())
            self.applied_when_set = self.progress.applied

    def progressed(self) -> None:
        """Forget which replicas lacked the slot that was just applied."""
        self.tried.clear()
        self.lost_by.clear()

    # -- holes --

    def note_hole(self, slot: int) -> None:
        if slot not in self.holes:
            self.holes[slot] = {}
            self.io.later(0.0, Behind())

    def fill_first(self, needed: int, slot: int) -> None:
        """Ask for the `needed` slot before `slot`, which cannot be filled without it."""
        self.note_hole(needed)
        self.holes[slot] = self.holes.pop(slot)

    def fill_hole(self, slot: int) -> None:
        del self.holes[slot]
        self.recalled.pop(slot, None)

    def forget_holes(self, needed: int) -> None:
        for slot in [slot for slot in self.holes if slot < needed]:
            self.fill_hole(slot)

    def gone_everywhere(self, slot: int) -> bool:
        """Return whether all other replicas have lost this slot too."""
        return self.all_of(self.holes.get(slot, {}))

    def all_of(self, nodes: dict[NodeId, None]) -> bool:
        """Return whether `nodes` includes every node that could be asked."""
        membership = self.membership
        asked = membership.others() if membership.is_member else self.sources()
        return all(node in nodes for node in asked)
